"""Matchers under a tiled plan: shares move while matchers die, come and go, and nobody notices."""

from __future__ import annotations

from random import Random

from homing.push.matcher import Matcher
from homing.push.placement import EVERYWHERE, Cut, Plan, Tree
from homing.push.subscription import parse_fields
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
from tests.sim.push_fabric import Fabric, SimPublisher, SimSubscriber, node_id

MATCHERS = 4
COUNT, EVERY, CALM = 60, 0.4, 60.0
KINDS = (Crash, Pause, FullDisk, SlowDisk, Disconnect, Duplicate, Slow, Partition)
FILTERS = (
    (b'{"n":{"use":2,"low":0}}', range(COUNT)),
    (b'{"n":{"use":2,"low":10,"high":40}}', range(10, 41)),
    (b'{"n":{"use":2,"low":30}}', range(30, COUNT)),
    (b'{"n":{"use":2,"high":14}}', range(15)),
)


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(node_id(1, number).hex() for number in numbers)


def tiled(epoch: int, shift: int = 0) -> Plan:
    """Two trees over `n`, cut at different places; each tile has two owners."""
    owners = [names((n + shift) % MATCHERS, (n + shift + 1) % MATCHERS) for n in range(MATCHERS)]
    first = Tree(
        (Cut("n", 15, 1, 2), Cut("n", 5, ~0, ~1), Cut("n", 45, ~2, ~3)), tuple(owners), 1.0
    )
    second = Tree((Cut("n", 30 + shift, ~0, ~1),), (owners[2], owners[3]), 1.7)
    return Plan(epoch, (first, second))


def populate(fabric: Fabric) -> dict[str, range]:
    """Durable sessions with different filters at both connectors, and one that is not durable."""
    wanted = {
        fabric.subscriber(number, number % 2, fields, durable=True): numbers
        for number, (fields, numbers) in enumerate(FILTERS)
    }
    fabric.subscriber(9, 0, FILTERS[0][0], durable=False)
    fabric.publisher("publisher", COUNT, EVERY)
    fabric.sim.run(until=3.0)
    for name in (*wanted, "subscriber-9"):
        assert fabric.sim.nodes[name].role.confirmed, f"{name} is not subscribed"
    return wanted


def check(fabric: Fabric, wanted: dict[str, range], *, order: bool = False) -> None:
    sim = fabric.sim
    publisher: SimPublisher = sim.nodes["publisher"].role
    assert len(publisher.results) == COUNT, f"{COUNT - len(publisher.results)} never ended"
    for name, numbers in wanted.items():
        subscriber: SimSubscriber = sim.nodes[name].role
        missing = sorted(set(publisher.accepted) & set(numbers) - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.doubled, f"{name} got {subscriber.doubled} again, unflagged"
        assert len(subscriber.got) == len(set(subscriber.got)), f"{name}: {subscriber.got}"
        assert set(subscriber.got) <= set(numbers), f"{name}: {subscriber.got}"
        assert not subscriber.gaps
        if order:
            assert subscriber.got == sorted(subscriber.got), f"{name}: {subscriber.got}"
    sim.finish()


def check_shares(fabric: Fabric, plan: Plan) -> None:
    """When all is well again everybody follows the plan, holds exactly its tiles and no more."""
    for number, name in enumerate(fabric.matchers):
        matcher: Matcher = fabric.sim.nodes[name].role
        [share] = matcher.table.shares
        assert share.plan == plan, name
        assert share.held == plan.planned(*names(number)), name
        assert not share.gatherings
        for table_number, table in enumerate(share.tables):
            for entry in table:
                tree, tiles = plan.tiles_for(parse_fields(entry.fields))
                assert tree == table_number
                assert any((tree, tile) in share.held for tile in tiles), f"{name} holds too much"
        assert not len(matcher.surveys)


def test_each_matcher_holds_its_tiles_and_asks_for_the_rest() -> None:
    plan = tiled(1)
    fabric = Fabric(1, FaultPlan(), matchers=MATCHERS, plan=plan)
    wanted = populate(fabric)
    fabric.sim.run(until=40.0)
    publisher: SimPublisher = fabric.sim.nodes["publisher"].role
    matched = {n: 1 + sum(n in numbers for numbers in wanted.values()) for n in range(COUNT)}
    assert publisher.results == matched
    check(fabric, wanted, order=True)
    check_shares(fabric, plan)
    first: Matcher = fabric.sim.nodes[fabric.matchers[0]].role
    assert first.surveys.asks > 0
    assert sum(fabric.sim.nodes[m].role.neighbours.answers for m in fabric.matchers) > 0


def changing_trees(seed: int, faults: FaultPlan) -> None:
    """Whoever changes from one tree to the other and back misses nothing that both filters want."""
    by_n = Tree((Cut("n", -5, ~0, ~1),), (names(0, 1), names(0, 1)), 1.0)
    by_m = Tree((Cut("m", 5, ~0, ~1),), (names(2, 3), names(2, 3)), 1.0)
    plan = Plan(1, (by_n, by_m))
    turns = (
        b'{"n":{"use":2,"low":0}}',
        b'{"n":{"use":2,"low":-9},"m":{"use":3,"extra":{"exists":false}}}',
    )
    assert [plan.tiles_for(parse_fields(fields))[0] for fields in turns] == [0, 1]
    fabric = Fabric(seed, faults, matchers=MATCHERS, plan=plan)
    fidgeters = [fabric.fidgeter(n, n % 2, turns, every=0.031 + n / 1000) for n in range(4)]
    fabric.publisher("publisher", COUNT * 5, 0.01)
    fabric.sim.run(until=20.0)
    publisher: SimPublisher = fabric.sim.nodes["publisher"].role
    assert len(publisher.accepted) == COUNT * 5
    for name in fidgeters:
        subscriber: SimSubscriber = fabric.sim.nodes[name].role
        missing = sorted(set(publisher.accepted) - set(subscriber.got))
        assert not missing, f"{name} misses {missing}"
        assert not subscriber.doubled
        assert len(subscriber.got) == len(set(subscriber.got))


def any_faults(seed: int, faults: FaultPlan) -> None:
    """Whatever fails: complete and once, and at the end everything is where it belongs."""
    plan = tiled(1)
    fabric = Fabric(seed, faults, matchers=MATCHERS, plan=plan)
    wanted = populate(fabric)
    fabric.sim.run(until=CALM + 70.0)
    check(fabric, wanted)
    check_shares(fabric, plan)


def one_at_a_time(seed: int, faults: FaultPlan) -> None:
    """One matcher dies at a time, for long enough that others stand in: also in order."""
    plan = tiled(1)
    fabric = Fabric(seed, faults, matchers=MATCHERS, plan=plan)
    wanted = populate(fabric)
    fabric.sim.run(until=CALM + 40.0)
    check(fabric, wanted, order=True)
    check_shares(fabric, plan)


def new_plans(seed: int, faults: FaultPlan) -> None:
    """Plans follow each other while matchers die: everybody ends with the last."""
    random = Random(f"plans/{seed}")
    fabric = Fabric(seed, faults, matchers=MATCHERS, plan=tiled(1))
    wanted = populate(fabric)
    plans = [tiled(2, shift=1), Plan(3, EVERYWHERE.trees), tiled(4, shift=2)]
    for number, plan in enumerate(plans):
        fabric.sim.run(until=6.0 + 9 * number + random.random())
        tell(fabric, random.randrange(MATCHERS), plan)
    fabric.sim.run(until=CALM + 40.0)
    tell(fabric, 0, plans[-1])  # whoever was told may have died before it was passed on
    fabric.sim.run(until=CALM + 55.0)
    check(fabric, wanted)
    check_shares(fabric, plans[-1])


def tell(fabric: Fabric, number: int, plan: Plan) -> None:
    node = fabric.sim.nodes[fabric.matchers[number]]
    if node.up:
        node.role.neighbours.follow(plan, fabric.sim.now)


def faults(seed: int) -> FaultPlan:
    """Of any kind among all servers, from the time that all clients are subscribed."""
    servers = Fabric(0, FaultPlan(), matchers=MATCHERS).servers
    later = FaultPlan.random(seed, servers, until=CALM - 5.0, kinds=KINDS, every=4.0, longest=6.0)
    return FaultPlan(tuple(fault for fault in later.faults if fault.at > 3.5))


def deaths(seed: int) -> FaultPlan:
    """A matcher dies every 14 s and stays away for up to 9 s."""
    random = Random(f"deaths/{seed}")
    return FaultPlan(
        tuple(
            Crash(
                at=at + random.random(),
                node=f"matcher-{random.randrange(MATCHERS)}",
                down=random.uniform(0, 9),
            )
            for at in (4.0, 18.0, 32.0, 46.0)
        )
    )


def test_nothing_acknowledged_is_missed_or_doubled_under_any_faults() -> None:
    assert explore(any_faults, seeds(ci=60, nightly=700), faults) > 0


def test_order_is_kept_while_matchers_die_and_others_stand_in() -> None:
    assert explore(one_at_a_time, seeds(ci=80, nightly=700), deaths) > 0


def test_plans_follow_each_other_and_nobody_notices() -> None:
    assert explore(new_plans, seeds(ci=60, nightly=600), deaths) > 0


def test_a_subscription_that_changes_trees_misses_nothing() -> None:
    assert explore(changing_trees, seeds(ci=8, nightly=300), lambda _: FaultPlan()) > 0
