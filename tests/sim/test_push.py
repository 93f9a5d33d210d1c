"""The push plane under faults: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

from homing.testing import (
    Crash,
    Disconnect,
    Duplicate,
    FaultPlan,
    FullDisk,
    Partition,
    Pause,
    Slow,
    SlowDisk,
    explore,
    seeds,
)
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber

# A token's clock is not what is tested here, so no Skew.
KINDS = (Crash, Pause, FullDisk, SlowDisk, Disconnect, Duplicate, Slow, Partition)
COUNT, EVERY, CALM = 60, 0.4, 60.0


def test_a_publication_reaches_whom_it_concerns() -> None:
    fabric = Fabric(1, FaultPlan())
    everybody = fabric.subscriber(1, 0, b'{"n":{"use":2,"low":0}}', durable=False)
    durable = fabric.subscriber(2, 1, b'{"n":{"use":2,"low":0}}', durable=True)
    few = fabric.subscriber(3, 1, b'{"n":{"use":2,"low":5,"high":6}}', durable=True)
    nobody = fabric.subscriber(4, 0, b'{"city":{"use":1,"strval":"Paris"}}', durable=False)
    fabric.publisher("publisher", 20, 0.01)
    sim = fabric.sim
    sim.run(until=10.0)
    publisher: SimPublisher = sim.nodes["publisher"].role
    assert publisher.results == {n: 3 if n in (5, 6) else 2 for n in range(20)}
    got = {name: sim.nodes[name].role.got for name in (everybody, durable, few, nobody)}
    assert got == {
        everybody: list(range(20)),
        durable: list(range(20)),
        few: [5, 6],
        nobody: [],
    }
    sim.finish()


def scenario(seed: int, faults: FaultPlan) -> None:
    """Durable sessions at both connectors while everything that can go wrong does."""
    fabric = Fabric(seed, faults)
    sim = fabric.sim
    durable = [
        fabric.subscriber(n, n % 2, b'{"n":{"use":2,"low":0}}', durable=True) for n in range(3)
    ]
    plain = [fabric.subscriber(9, 0, b'{"n":{"use":2,"low":0}}', durable=False)]
    fabric.publisher("publisher", COUNT, EVERY)
    sim.run(until=3.0)
    for name in (*durable, *plain):
        assert sim.nodes[name].role.confirmed, f"{name} is not subscribed before the faults"
    sim.run(until=CALM + 60.0)
    publisher: SimPublisher = sim.nodes["publisher"].role
    assert len(publisher.results) == COUNT, f"{COUNT - len(publisher.results)} never ended"
    accepted = publisher.accepted
    for name in durable:
        subscriber: SimSubscriber = sim.nodes[name].role
        missing = sorted(set(accepted) - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.gaps
    for name in (*durable, *plain):
        got: list[int] = sim.nodes[name].role.got
        assert got == sorted(set(got)), f"{name} got {got}"
    for name in fabric.servers:
        owed = getattr(sim.nodes[name].role, "owed", ())
        assert len(owed) == 0, f"{name} still owes {len(owed)}"
        assert not getattr(sim.nodes[name].role, "outboxes", {})
    sim.finish()


def plan(seed: int) -> FaultPlan:
    """Faults among the servers and their clients, from the time that all are subscribed."""
    servers = Fabric(0, FaultPlan()).servers
    later = FaultPlan.random(seed, servers, until=CALM - 5.0, kinds=KINDS, every=4.0, longest=6.0)
    return FaultPlan(tuple(fault for fault in later.faults if fault.at > 3.5))


def test_nothing_acknowledged_is_lost_for_durable_sessions() -> None:
    assert explore(scenario, seeds(ci=60, nightly=2000), plan) > 0
