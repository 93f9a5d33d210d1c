"""A whole fabric in one thread: roles, network, disks and clocks, all from one seed.

    sim = Simulation(seed=7, faults=FaultPlan.random(7, ["a", "b"], until=50.0))
    sim.node("a", lambda host: Broker("a", host), listen={"localfe": "tcp://a:5555"})
    sim.node("b", lambda host: Client(host, "tcp://a:5555"))
    sim.always(no_worker_beyond_its_credit)
    sim.at_end(every_request_was_answered)
    sim.run(until=60.0)
    sim.finish()

Events happen in the order of virtual time, ties in the order they were asked for. The same
seed, plan and roles give the same trace. A role that raises, an invariant that fails and
virtual time that stands still end the run with a SimulationFailure that tells how to replay.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Literal

from homing.ports import Role
from homing.testing.conditions import LAN, Conditions
from homing.testing.disk import Disk
from homing.testing.failure import SimulationFailure
from homing.testing.faults import Crash, FaultPlan
from homing.testing.host import DEAD, PAUSED, SimHost
from homing.testing.misfortune import crash, schedule
from homing.testing.network import Network
from homing.testing.trace import Trace

Factory = Callable[[SimHost], Role]
SameName = Literal["refuse", "replace"]
Check = Callable[["Simulation"], None]
Action = Callable[[Any, Any], None]

# Events without virtual time moving: far more than any burst of real work, and reached
# within seconds by two roles that answer each other without end over a zero-delay line.
_STANDSTILL = 300_000


class Node:
    """A name, a disk and a skewed wall clock that outlive the processes running there."""

    def __init__(self, name: str, factory: Factory) -> None:
        self.name = name
        self.factory = factory
        self.disk = Disk()
        self.skew = 0.0  # of the wall clock, seconds
        self.pauses = 0  # faults that stall it now
        self.traps: list[Crash] = []  # crashes that wait for a step of this node's
        self.sync_delay = 0.0  # what a slow disk adds to every sync
        self.identities: Mapping[str, bytes] = {}
        self.users: Mapping[str, str] = {}
        self.same_name: Mapping[str, SameName] = {}
        self.host: SimHost

    @property
    def role(self) -> Any:
        """The role of the life that is (or last was) running; typed as you know it to be."""
        return self.host.role

    @property
    def up(self) -> bool:
        """Whether a process runs here, stalled or not."""
        return self.host.state != DEAD


class Simulation:
    """Seeded, single-threaded, on virtual time; see the module's docstring."""

    def __init__(
        self,
        seed: int = 0,
        faults: FaultPlan = FaultPlan(),  # noqa: B008 - frozen, a value
        conditions: Conditions = LAN,
        keep: int | None = 1000,
    ) -> None:
        """`keep`: how many of the trace's last steps stay readable (None: all)."""
        self.seed = seed
        self.faults = faults
        self.conditions = conditions
        self.now = 0.0
        self.events = 0
        self.random = Random(f"{seed}/world")
        self.trace = Trace(keep)
        self.nodes: dict[str, Node] = {}
        self.network = Network(self)
        self._heap: list[tuple[float, int, SimHost | None, Action, Any, Any]] = []
        self._order = 0
        self._each: list[Check] = []
        self._last: list[Check] = []
        self._begun = False

    # Building

    def node(
        self,
        name: str,
        factory: Factory,
        *,
        listen: Mapping[str, str] | None = None,
        identities: Mapping[str, bytes] | None = None,
        users: Mapping[str, str] | None = None,
        same_name: Mapping[str, SameName] | None = None,
        skew: float = 0.0,
        capacity: int | None = None,
    ) -> Node:
        """Add a node and start it: `factory(host)` makes its role, now and after each crash.

        `listen`: plug -> endpoint that others dial. `identities`: plug -> routing id it tells
        its peers (others get made-up ones). `users`: plug -> authenticated name it dials with.
        `same_name`: plug -> what becomes of a second peer with a routing id that is taken; by
        default the role gets both links.
        """
        if name in self.nodes:
            raise ValueError(f"there is a node {name!r} already")
        node = self.nodes[name] = Node(name, factory)
        node.identities, node.users, node.skew = identities or {}, users or {}, skew
        node.same_name = same_name or {}
        if capacity is not None:
            node.disk.capacity = capacity
        for plug, endpoint in (listen or {}).items():
            self.network.listen(endpoint, node, plug)
        self._start(node, 1)
        return node

    def always(self, check: Check, every: float | None = None) -> None:
        """Call `check(sim)` after each event, or `every` so many virtual seconds."""
        if every is None:
            self._each.append(check)
        else:
            self.push(self.now + every, None, self._periodic, check, every)

    def at_end(self, check: Check) -> None:
        """Call `check(sim)` in `finish`."""
        self._last.append(check)

    def at(self, when: float, action: Callable[[], object]) -> None:
        """Do something of the test's own at a virtual time: a workload, a kill."""
        self.push(when, None, _call, action)

    # Running

    def run(self, until: float) -> None:
        """Let everything happen up to the virtual time `until`."""
        if not self._begun:
            self._begun = True
            schedule(self, self.faults)
        try:
            self._run(until)
        except SimulationFailure:
            raise
        except Exception as error:
            raise SimulationFailure(self, error) from error
        self.now = max(self.now, until)

    def run_until(self, reached: Callable[[], bool], limit: float) -> None:
        """Run until `reached()`, checked every virtual 10 ms; a failure past the time `limit`."""
        while not reached():
            if self.now >= limit:
                raise SimulationFailure(self, TimeoutError(f"not reached by {limit} s"))
            self.run(min(self.now + 0.01, limit))

    def finish(self) -> str:
        """Call the `at_end` checks; returns the trace's digest."""
        for check in self._last:
            try:
                check(self)
            except Exception as error:
                raise SimulationFailure(self, error) from error
        return self.trace.digest()

    def _run(self, until: float) -> None:
        heap, pop, each = self._heap, heapq.heappop, self._each
        began, mark = self.now, self.events + _STANDSTILL
        while heap and heap[0][0] <= until:
            when, _, host, action, first, second = pop(heap)
            if host is not None and host.state:
                if host.state == PAUSED:
                    host.stalled.append((action, first, second))
                continue
            self.now = when
            self.events += 1
            action(first, second)
            for check in each:
                check(self)
            if self.events >= mark:
                if self.now == began:
                    raise RuntimeError(f"{_STANDSTILL} events and time stands still")
                began, mark = self.now, self.events + _STANDSTILL

    def push(
        self,
        when: float,
        host: SimHost | None,
        action: Action,
        first: Any = None,
        second: Any = None,
    ) -> None:
        """Schedule `action(first, second)`; not run if `host` is dead by then."""
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, host, action, first, second))

    def dispatch(self, host: SimHost, action: Action, first: Any) -> None:
        """Do it now, or when the host's pause ends, or not at all if it is dead."""
        if host.state == PAUSED:
            host.stalled.append((action, first, None))
        elif host.state != DEAD:
            action(first, None)

    def _periodic(self, check: Check, every: float) -> None:
        check(self)
        self.push(self.now + every, None, self._periodic, check, every)

    # Lives of nodes

    def crash(self, name: str, *, silent: bool = False) -> None:
        """Kill a node's process and lose what its disk had not synced."""
        node = self.nodes[name]
        if node.up:
            self.network.orphan(node.host, silent)
            node.host.die()
            torn = node.disk.crash(self.random)
            self.trace.note(self.now, name, "crash", f"{torn} unsynced bytes suffered")

    def spring(self, node: Node, moment: str) -> None:
        """Let the crashes happen that waited for this step, once it is over."""
        for fault in [fault for fault in node.traps if fault.after == moment]:
            node.traps.remove(fault)
            self.push(self.now, None, crash, self, fault)

    def restart(self, name: str) -> None:
        """Start a crashed node anew on its disk."""
        node = self.nodes[name]
        if not node.up:
            self.network.returned(name)
            self._start(node, node.host.life + 1)

    def _start(self, node: Node, life: int) -> None:
        self.trace.note(self.now, node.name, "start", f"life {life}")
        node.host = SimHost(self, node, life)
        node.host.role = node.factory(node.host)


def _call(action: Callable[[], object], _: Any) -> None:
    action()
