"""Makes a plan's faults happen in a simulation: each begins, and most end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from homing.testing.faults import (
    AnyFault,
    Crash,
    Disconnect,
    Duplicate,
    FaultPlan,
    FullDisk,
    Partition,
    Pause,
    Skew,
    Slow,
    SlowDisk,
)

if TYPE_CHECKING:
    from homing.testing.simulation import Simulation


def schedule(sim: Simulation, plan: FaultPlan) -> None:
    """Put every fault's beginning and end on the simulation's calendar."""
    named = {name for fault in plan.faults for name in fault.nodes()}
    unknown = sorted(named - set(sim.nodes))
    if unknown:
        raise ValueError(f"faults name nodes that are not there: {', '.join(unknown)}")
    for fault in plan.faults:
        sim.push(fault.at, None, _strike, sim, fault)
        lasts = getattr(fault, "lasts", None)
        if lasts is not None:
            sim.push(fault.at + lasts, None, _pass, sim, fault)


def _strike(sim: Simulation, fault: AnyFault) -> None:
    sim.trace.note(sim.now, "-", "fault", repr(fault))
    begin(fault, sim)


def _pass(sim: Simulation, fault: AnyFault) -> None:
    sim.trace.note(sim.now, "-", "over", repr(fault))
    end(fault, sim)


def begin(fault: AnyFault, sim: Simulation) -> None:
    """Make it happen."""
    match fault:
        case Crash():
            if fault.after:
                sim.nodes[fault.node].traps.append(fault)
            else:
                crash(sim, fault)
        case Pause():
            sim.nodes[fault.node].pauses += 1
            sim.nodes[fault.node].host.stall()
        case Skew():
            sim.nodes[fault.node].skew += fault.seconds
        case FullDisk():
            sim.nodes[fault.node].disk.full += 1
        case SlowDisk():
            sim.nodes[fault.node].sync_delay += fault.delay
        case Disconnect():
            sim.network.disconnect(fault.left, fault.right)
        case Duplicate():
            sim.network.duplicate(fault.left, fault.right)
        case Slow():
            sim.network.slow(fault)
        case Partition():
            for left, right in _ways(fault):
                sim.network.cut(left, right)


def end(fault: AnyFault, sim: Simulation) -> None:
    """Make it pass; of overlapping ones, the last to pass is the end of it."""
    match fault:
        case Pause():
            sim.nodes[fault.node].pauses -= 1
            if not sim.nodes[fault.node].pauses:
                sim.nodes[fault.node].host.resume()
        case FullDisk():
            sim.nodes[fault.node].disk.full -= 1
        case SlowDisk():
            sim.nodes[fault.node].sync_delay -= fault.delay
        case Slow():
            sim.network.quicken(fault)
        case Partition():
            for left, right in _ways(fault):
                sim.network.heal(left, right)
        case Crash() | Skew() | Disconnect() | Duplicate():
            pass  # of one moment: nothing to undo, and a restart is planned by its crash


def crash(sim: Simulation, fault: Crash) -> None:
    """Kill the node now; plan its restart."""
    sim.crash(fault.node, silent=fault.silent)
    if fault.down is not None:
        sim.at(sim.now + fault.down, partial(sim.restart, fault.node))


def _ways(fault: Partition) -> Iterator[tuple[str, str]]:
    for left, right in product(fault.left, fault.right):
        yield left, right
        if not fault.one_way:
            yield right, left
