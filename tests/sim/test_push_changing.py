"""Publishers that change matchers in both directions, there and back, while a connector is away: in order."""

from __future__ import annotations

from random import Random

from homing.testing import Crash, Disconnect, FaultPlan, Partition, Slow, explore, seeds
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber

ALL = b'{"n":{"use":2,"low":0}}'
PUBLISHERS = [f"publisher-{number}" for number in range(4)]
SUBSCRIBERS = [f"subscriber-{number}" for number in range(2)]
COUNT, EVERY, CALM = 120, 0.2, 60.0
APART = 1000
"""Between the numbers of one publisher and the next."""


def run(fabric: Fabric, until: float) -> None:
    """Durable sessions at both connectors; publishers that stay at no matcher while one may be away."""
    for number in range(2):
        fabric.subscriber(number, number, ALL, durable=True)
    for number, name in enumerate(PUBLISHERS):
        fabric.changer(name, COUNT, EVERY, number * APART, until=25.0)
    fabric.sim.run(until=until)


def check(fabric: Fabric) -> None:
    """All that was accepted, once, each publisher's in order."""
    publishers: list[SimPublisher] = [fabric.sim.nodes[name].role for name in PUBLISHERS]
    accepted = {number for publisher in publishers for number in publisher.accepted}
    assert len(accepted) == COUNT * len(PUBLISHERS)
    for name in SUBSCRIBERS:
        subscriber: SimSubscriber = fabric.sim.nodes[name].role
        missing = sorted(accepted - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.doubled, f"{name} got {subscriber.doubled} again, unflagged"
        for number in range(len(PUBLISHERS)):
            got = [n for n in subscriber.got if n // APART == number]
            assert got == sorted(got), f"{name} got {got}"
    fabric.sim.finish()


def two_matchers(seed: int, faults: FaultPlan) -> None:
    fabric = Fabric(seed, faults)
    run(fabric, CALM)
    check(fabric)


def three_matchers(seed: int, faults: FaultPlan) -> None:
    fabric = Fabric(seed, faults, matchers=3)
    run(fabric, CALM)
    check(fabric)


def away(seed: int) -> FaultPlan:
    """A connector is away, for long enough that publications for it are acknowledged."""
    random = Random(f"changing/{seed}")
    return FaultPlan(
        tuple(
            Crash(at=at, node=f"connector-{random.randrange(2)}", down=random.uniform(3, 8))
            for at in (4.5, 15.0)
        )
    )


def broken(seed: int) -> FaultPlan:
    """And the matchers lose each other for a moment, again and again."""
    random = Random(f"broken/{seed}")
    breaks = [at + random.uniform(0, 6) for at in (4.5, 15.0) for _ in range(3)]
    lost = [Disconnect(at=at, left="matcher-0", right="matcher-1") for at in breaks]
    return FaultPlan((*away(seed).faults, *lost))


def deaths(seed: int) -> FaultPlan:
    """And a matcher dies, and is back with all that it owed."""
    random = Random(f"deaths/{seed}")
    crashes = [
        Crash(
            at=at + random.uniform(1.5, 5),
            node=f"matcher-{random.randrange(2)}",
            down=random.uniform(0, 5),
        )
        for at in (4.5, 15.0)
    ]
    return FaultPlan((*away(seed).faults, *crashes))


def deaf(seed: int) -> FaultPlan:
    """And the matchers hear nothing of each other for up to 5 s: as long as they wait for that (0090)."""
    random = Random(f"deaf/{seed}")
    cuts = [
        Partition(
            at=at + random.uniform(0, 6),
            left=("matcher-0",),
            right=("matcher-1",),
            lasts=random.uniform(0.5, 5),
        )
        for at in (4.5, 15.0)
    ]
    return FaultPlan((*away(seed).faults, *cuts))


def slow(seed: int) -> FaultPlan:
    """And what the matchers tell each other takes longer than a publisher to change."""
    delay = Random(f"slow/{seed}").uniform(0, 0.6)
    slower = [
        Slow(at=at, left="matcher-0", right="matcher-1", lasts=10.0, delay=delay)
        for at in (4.0, 14.5)
    ]
    return FaultPlan((*away(seed).faults, *slower))


def test_order_is_kept_when_publishers_change_in_both_directions() -> None:
    assert explore(two_matchers, seeds(ci=10, nightly=400), away) > 0


def test_order_is_kept_among_three_matchers() -> None:
    assert explore(three_matchers, seeds(ci=10, nightly=400), away) > 0


def test_order_is_kept_when_a_matcher_dies_besides() -> None:
    assert explore(two_matchers, seeds(ci=10, nightly=400), deaths) > 0


def test_order_is_kept_when_one_of_three_matchers_dies_besides() -> None:
    """31: it died with a checkpoint made when it owed nothing, and was back in the first era."""
    assert explore(three_matchers, [31, *seeds(ci=8, nightly=400)], deaths) > 0


def test_order_is_kept_when_the_matchers_do_not_hear_each_other() -> None:
    assert explore(two_matchers, seeds(ci=10, nightly=400), deaf) > 0


def test_order_is_kept_when_the_matchers_hear_each_other_late() -> None:
    assert explore(two_matchers, seeds(ci=5, nightly=200), slow) > 0


def test_order_is_kept_when_the_matchers_lose_each_other_for_a_moment() -> None:
    assert explore(two_matchers, seeds(ci=10, nightly=400), broken) > 0
