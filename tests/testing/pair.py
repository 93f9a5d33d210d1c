"""Two simulated nodes and shorthand for what they do: the smallest stage for the tests beside it."""

from __future__ import annotations

from functools import partial

from homing.testing import (
    LOCAL,
    AnyFault,
    Conditions,
    FaultPlan,
    Node,
    Probe,
    SimHost,
    Simulation,
)

SERVER = "tcp://server:1"


def pair(seed: int = 1, *faults: AnyFault, conditions: Conditions = LOCAL) -> Simulation:
    """A probe that listens, a probe that dials it."""
    sim = Simulation(seed, FaultPlan(faults), conditions, keep=None)
    sim.node("server", Probe, listen={"front": SERVER})
    sim.node("client", lambda host: Probe(host, {"back": SERVER}), identities={"back": b"me"})
    return sim


def say(sim: Simulation, name: str, message: bytes) -> None:
    """One node sends something on its newest link, if it has one."""
    sim.nodes[name].role.send(message)


def talk(sim: Simulation, start: float, count: int, gap: float = 0.01) -> None:
    """The client sends 0, 1, 2… every `gap` seconds."""
    for number in range(count):
        sim.at(start + number * gap, partial(say, sim, "client", b"%d" % number))


def numbers(sim: Simulation) -> list[int]:
    return [int(message) for message in sim.nodes["server"].role.messages]


def write_down(host: SimHost, first: int, end: int) -> None:
    for number in range(first, end):
        host.journal([number])


def write_if_possible(node: Node) -> None:
    if node.up and not node.disk.full:
        node.host.journal(["x"])
