"""Publishers that matchers send to each other, under faults: complete, once, in order."""

from __future__ import annotations

from homing.testing import FaultPlan, explore, seeds
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber
from tests.sim.test_push import check_once, plan, spaced

PUBLISHERS = [f"publisher-{number}" for number in range(4)]
SUBSCRIBERS = [f"subscriber-{number}" for number in range(2)]
COUNT, EVERY, CALM = 150, 0.1, 60.0
APART = 1000
"""Between the numbers of one publisher and the next."""


def run(fabric: Fabric, until: float) -> tuple[list[SimPublisher], list[str]]:
    """All publishers come to the same matcher; durable sessions at both connectors."""
    durable = [
        fabric.subscriber(n, n % 2, b'{"n":{"use":2,"low":0}}', durable=True) for n in range(2)
    ]
    for number, name in enumerate(PUBLISHERS):
        fabric.publisher(name, COUNT, EVERY, number * APART)
    fabric.sim.run(until=until)
    return [fabric.sim.nodes[name].role for name in PUBLISHERS], durable


def check_complete(fabric: Fabric, publishers: list[SimPublisher], durable: list[str]) -> None:
    for publisher in publishers:
        assert len(publisher.results) == COUNT, f"{COUNT - len(publisher.results)} never ended"
    accepted = {number for publisher in publishers for number in publisher.accepted}
    for name in durable:
        subscriber: SimSubscriber = fabric.sim.nodes[name].role
        missing = sorted(accepted - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.doubled, f"{name} got {subscriber.doubled} again, unflagged"


def check_order(fabric: Fabric) -> None:
    """Of each publisher; different ones may overtake each other."""
    for name in SUBSCRIBERS:
        for number in range(len(PUBLISHERS)):
            got = [n for n in fabric.sim.nodes[name].role.got if n // APART == number]
            assert got == sorted(got), f"{name} got {got}"


def any_faults(seed: int, faults: FaultPlan, until: float = CALM + 60.0) -> Fabric:
    """Whatever fails, however many at once: complete and once."""
    fabric = Fabric(seed, faults)
    publishers, durable = run(fabric, until)
    check_complete(fabric, publishers, durable)
    check_once(fabric, durable)
    fabric.sim.finish()
    return fabric


def one_at_a_time(seed: int, faults: FaultPlan) -> None:
    """One thing fails at a time and recovers before the next: in order too."""
    check_order(any_faults(seed, faults))


def test_half_of_them_go_to_the_other_matcher() -> None:
    fabric = any_faults(1, FaultPlan(), CALM)
    check_order(fabric)
    moves = [fabric.sim.nodes[name].role.moves for name in PUBLISHERS]
    assert moves.count(1) == len(PUBLISHERS) // 2


def test_nothing_is_lost_or_doubled_on_the_way() -> None:
    assert explore(any_faults, seeds(ci=15, nightly=300), plan) > 0


def test_order_is_kept_on_the_way() -> None:
    assert explore(one_at_a_time, seeds(ci=15, nightly=300), spaced) > 0
