"""The push plane under faults: nothing acknowledged is lost, doubled or out of order."""

from __future__ import annotations

from random import Random

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


def run(fabric: Fabric, until: float) -> tuple[SimPublisher, list[str], list[str]]:
    """Durable sessions at both connectors, and one that is not, while faults strike."""
    sim = fabric.sim
    durable = [
        fabric.subscriber(n, n % 2, b'{"n":{"use":2,"low":0}}', durable=True) for n in range(3)
    ]
    plain = [fabric.subscriber(9, 0, b'{"n":{"use":2,"low":0}}', durable=False)]
    fabric.publisher("publisher", COUNT, EVERY)
    sim.run(until=3.0)
    for name in (*durable, *plain):
        assert sim.nodes[name].role.confirmed, f"{name} is not subscribed before the faults"
    sim.run(until=until)
    return sim.nodes["publisher"].role, durable, plain


def check_complete(fabric: Fabric, publisher: SimPublisher, durable: list[str]) -> None:
    """Everything ended, what was accepted arrived, nobody owes anything."""
    sim = fabric.sim
    assert len(publisher.results) == COUNT, f"{COUNT - len(publisher.results)} never ended"
    for name in durable:
        subscriber: SimSubscriber = sim.nodes[name].role
        missing = sorted(set(publisher.accepted) - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.gaps
        assert not subscriber.doubled, f"{name} got {subscriber.doubled} again, unflagged"
    for name in fabric.servers:
        owed = getattr(sim.nodes[name].role, "owed", ())
        assert len(owed) == 0, f"{name} still owes {len(owed)}"
        assert not getattr(sim.nodes[name].role, "outboxes", {})


def check_ring(fabric: Fabric) -> None:
    """When all is well again every matcher knows all of them."""
    for name in fabric.matchers:
        assert len(fabric.sim.nodes[name].role.ring) == len(fabric.matchers), name


def check_once(fabric: Fabric, names: list[str]) -> None:
    for name in names:
        got: list[int] = fabric.sim.nodes[name].role.got
        assert len(got) == len(set(got)), f"{name} got some twice: {got}"


def check_order(fabric: Fabric, names: list[str]) -> None:
    for name in names:
        got: list[int] = fabric.sim.nodes[name].role.got
        assert got == sorted(got), f"{name} got {got}"


def any_faults(seed: int, faults: FaultPlan) -> None:
    """Whatever fails, however many at once: complete and once."""
    fabric = Fabric(seed, faults)
    publisher, durable, plain = run(fabric, CALM + 60.0)
    check_complete(fabric, publisher, durable)
    check_once(fabric, durable + plain)
    check_ring(fabric)
    fabric.sim.finish()


def one_matcher(seed: int, faults: FaultPlan) -> None:
    """The same with nowhere else to go: also in order."""
    fabric = Fabric(seed, faults, matchers=1)
    publisher, durable, plain = run(fabric, CALM + 60.0)
    check_complete(fabric, publisher, durable)
    check_once(fabric, durable + plain)
    check_order(fabric, durable + plain)
    fabric.sim.finish()


def one_at_a_time(seed: int, faults: FaultPlan) -> None:
    """One thing fails at a time and recovers before the next: in order over any failover."""
    fabric = Fabric(seed, faults)
    publisher, durable, plain = run(fabric, CALM + 60.0)
    check_complete(fabric, publisher, durable)
    check_once(fabric, durable + plain)
    check_order(fabric, durable + plain)
    fabric.sim.finish()


def plan(seed: int, matchers: int = 2) -> FaultPlan:
    """Faults among the servers, from the time that all clients are subscribed."""
    servers = Fabric(0, FaultPlan(), matchers=matchers).servers
    later = FaultPlan.random(seed, servers, until=CALM - 5.0, kinds=KINDS, every=4.0, longest=6.0)
    return FaultPlan(tuple(fault for fault in later.faults if fault.at > 3.5))


def spaced(seed: int) -> FaultPlan:
    """A crash of one node every 12 s, up to 5 s long."""
    random = Random(f"spaced/{seed}")
    servers = Fabric(0, FaultPlan()).servers
    return FaultPlan(
        tuple(
            Crash(at=at + random.random(), node=random.choice(servers), down=random.uniform(0, 5))
            for at in (4.0, 16.0, 28.0, 40.0)
        )
    )


def test_nothing_acknowledged_is_lost_for_durable_sessions() -> None:
    assert explore(any_faults, seeds(ci=80, nightly=1000), plan) > 0


def test_order_is_kept_whatever_fails() -> None:
    assert explore(one_matcher, seeds(ci=60, nightly=500), lambda seed: plan(seed, 1)) > 0


def test_order_is_kept_when_one_node_at_a_time_is_killed() -> None:
    assert explore(one_at_a_time, seeds(ci=60, nightly=500), spaced) > 0


def away(seed: int) -> FaultPlan:
    """A connector is away, publications for it are acknowledged, and then their matcher dies."""
    random = Random(f"away/{seed}")
    faults: list[Crash] = []
    for at in (5.0, 30.0):
        connector, matcher = f"connector-{random.randrange(2)}", f"matcher-{random.randrange(2)}"
        down = random.uniform(3, 8)
        later = at + random.uniform(1.5, 3.0)
        faults.append(Crash(at=at, node=connector, down=down))
        faults.append(Crash(at=later, node=matcher, down=random.uniform(0, 9)))
    return FaultPlan(tuple(faults))


def test_order_is_kept_when_a_matcher_dies_while_a_connector_is_away() -> None:
    assert explore(one_at_a_time, seeds(ci=40, nightly=400), away) > 0


def leaving(seed: int) -> FaultPlan:
    """A connector is away, and the publisher loses its matcher, which lives on and owes it something."""
    random = Random(f"leaving/{seed}")
    faults: list[Crash | Disconnect | Partition] = []
    for at in (5.0, 30.0):
        connector, matcher = f"connector-{random.randrange(2)}", f"matcher-{random.randrange(2)}"
        later, lasts = at + random.uniform(1.2, 3.0), random.uniform(1.0, 9.0)
        faults.append(Crash(at=at, node=connector, down=random.uniform(3, 8)))
        faults.append(Partition(at=later, left=("publisher",), right=(matcher,), lasts=lasts))
        faults.append(Disconnect(at=later + 0.01, left="publisher", right=matcher))
    return FaultPlan(tuple(faults))


def test_order_is_kept_when_a_publisher_leaves_a_matcher_while_a_connector_is_away() -> None:
    assert explore(one_at_a_time, seeds(ci=40, nightly=400), leaving) > 0
