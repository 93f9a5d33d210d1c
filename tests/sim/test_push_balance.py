"""Publishers that matchers send to each other, under faults: complete, once, in order."""

from __future__ import annotations

from homing.testing import FaultPlan, explore, seeds
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber
from tests.sim.test_push import check_once, plan, spaced

PUBLISHERS, COUNT, EVERY, CALM = 4, 150, 0.1, 60.0
APART = 1000
"""Between the numbers of one publisher and the next."""


def run(fabric: Fabric, until: float) -> tuple[list[SimPublisher], list[str]]:
    """All publishers come to the same matcher; durable sessions at both connectors."""
    durable = [
        fabric.subscriber(n, n % 2, b'{"n":{"use":2,"low":0}}', durable=True) for n in range(2)
    ]
    names = [f"publisher-{n}" for n in range(PUBLISHERS)]
    for number, name in enumerate(names):
        fabric.publisher(name, COUNT, EVERY, number * APART)
    fabric.sim.run(until=until)
    return [fabric.sim.nodes[name].role for name in names], durable


def check_complete(fabric: Fabric, publishers: list[SimPublisher], durable: list[str]) -> None:
    for publisher in publishers:
        assert len(publisher.results) == COUNT, f"{COUNT - len(publisher.results)} never ended"
    accepted = {number for publisher in publishers for number in publisher.accepted}
    for name in durable:
        subscriber: SimSubscriber = fabric.sim.nodes[name].role
        missing = sorted(accepted - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.doubled, f"{name} got {subscriber.doubled} again, unflagged"


def check_order(fabric: Fabric, durable: list[str]) -> None:
    """Of each publisher; different ones may overtake each other."""
    for name in durable:
        for number in range(PUBLISHERS):
            got = [n for n in fabric.sim.nodes[name].role.got if n // APART == number]
            assert got == sorted(got), f"{name} got {got}"


def test_half_of_them_go_to_the_other_matcher() -> None:
    fabric = Fabric(1, FaultPlan())
    publishers, durable = run(fabric, CALM)
    assert [publisher.moves for publisher in publishers].count(1) == PUBLISHERS // 2
    check_complete(fabric, publishers, durable)
    check_once(fabric, durable)
    check_order(fabric, durable)
    fabric.sim.finish()


def any_faults(seed: int, faults: FaultPlan) -> None:
    """Whatever fails, however many at once: complete and once."""
    fabric = Fabric(seed, faults)
    publishers, durable = run(fabric, CALM + 60.0)
    check_complete(fabric, publishers, durable)
    check_once(fabric, durable)
    fabric.sim.finish()


def one_at_a_time(seed: int, faults: FaultPlan) -> None:
    """One thing fails at a time and recovers before the next: in order too."""
    fabric = Fabric(seed, faults)
    publishers, durable = run(fabric, CALM + 60.0)
    check_complete(fabric, publishers, durable)
    check_once(fabric, durable)
    check_order(fabric, durable)
    fabric.sim.finish()


def test_nothing_is_lost_or_doubled_on_the_way() -> None:
    assert explore(any_faults, seeds(ci=15, nightly=300), plan) > 0


def test_order_is_kept_on_the_way() -> None:
    assert explore(one_at_a_time, seeds(ci=15, nightly=300), spaced) > 0
