"""Placement: complete, never twice, and only the share of a lost matcher moves."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed
from homing.push.placement import (
    COPIES,
    EVERYWHERE,
    Cut,
    Plan,
    Tree,
    dump_plan,
    load_plan,
    name_of,
    sides,
)
from homing.push.planner import make_plan
from homing.push.ring import Ring
from homing.push.subscription import parse_fields
from homing.push.values import ABSENT, PRESENT, Field, Value, none_of, one_of, span, with_prefix

NODES = tuple(f"{number:016x}" for number in range(12))
NAMES = ("price", "size", "city")

numbers = st.integers(-5, 15) | st.floats(-5, 15).map(lambda x: x + 0.0)
texts = st.text("ab~", max_size=3)
values = st.one_of(numbers, texts, st.booleans())
attributes = st.dictionaries(st.sampled_from(NAMES), values)
ranges = st.tuples(numbers, numbers, st.sampled_from([-1, 1]), st.sampled_from([-1, 1])).map(
    lambda it: span((min(it[0], it[1]), it[2]), (max(it[0], it[1]), it[3]))
)
simple = st.one_of(
    ranges,
    st.lists(values, max_size=3).map(one_of),
    st.lists(values, max_size=3).map(none_of),
    texts.map(with_prefix),
    st.sampled_from([ABSENT, PRESENT]),
)
a_field = st.lists(simple, min_size=1, max_size=2).map(lambda parts: parts[0] | parts[-1])
some_fields = st.dictionaries(st.sampled_from(NAMES), a_field.filter(bool), min_size=1)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """A random k-d tree with two random owners a tile."""
    cuts: list[Cut] = []
    tiles = 0

    def grow(depth: int) -> int:
        nonlocal tiles
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            tiles += 1
            return ~(tiles - 1)
        number = len(cuts)
        cuts.append(Cut("", 0, 0, 0))
        name, pivot = draw(st.sampled_from(NAMES)), draw(numbers | texts)
        low = grow(depth - 1)
        cuts[number] = Cut(name, pivot, low, grow(depth - 1))
        return number

    grow(4)
    owners = [draw(st.permutations(NODES))[:COPIES] for _ in range(tiles)]
    return Tree(tuple(cuts), tuple(map(tuple, owners)), draw(st.floats(0.5, 2)))


plans = st.lists(trees(), min_size=1, max_size=3).map(lambda grown: Plan(1, tuple(grown)))


def accepts(fields: dict[str, Field], attrs: dict[str, Value]) -> bool:
    return all(
        field.accepts(attrs[name]) if name in attrs else field.absent
        for name, field in fields.items()
    )


@given(plans, some_fields, attributes)
def test_a_satisfied_subscription_is_found_exactly_once(
    plan: Plan, fields: dict[str, Field], attrs: dict[str, Value]
) -> None:
    own, tiles = plan.tiles_for(fields)
    asked = [(number, tree.tile(attrs)) for number, tree in enumerate(plan.trees)]
    found = [number for number, tile in asked if number == own and tile in tiles]
    assert len(tiles) == len(set(tiles))
    assert len(found) <= 1
    if accepts(fields, attrs):
        assert found == [own]


@given(plans, some_fields, attributes, st.sets(st.sampled_from(NODES), min_size=1))
def test_whoever_is_asked_holds_it(
    plan: Plan, fields: dict[str, Field], attrs: dict[str, Value], alive: set[str]
) -> None:
    if not accepts(fields, attrs):
        return
    ring = Ring(alive)
    holders = plan.holders(fields, ring)
    tree, _ = plan.tiles_for(fields)
    choice = plan.owners(plan.asked(attrs)[tree], ring)
    assert choice
    assert set(choice) <= holders <= alive
    assert len(holders) >= min(COPIES, len(alive))


@given(plans, st.sampled_from(NODES))
def test_a_lost_matcher_moves_only_its_share(plan: Plan, lost: str) -> None:
    all_there, left = Ring(NODES), Ring(node for node in NODES if node != lost)
    for tile in plan.tiles:
        before = plan.owners(tile, all_there)
        after = plan.owners(tile, left)
        if lost not in before:
            assert after == before
        else:
            assert set(before) - {lost} <= set(after)


@given(plans, st.sampled_from(NODES))
def test_planned_tiles_are_owned_whoever_is_there(plan: Plan, node: str) -> None:
    planned = plan.planned(node)
    owned = {tile for tile in plan.tiles if node in plan.owners(tile, Ring(NODES))}
    assert planned == owned
    alone = {tile for tile in plan.tiles if node in plan.owners(tile, Ring([node]))}
    assert alone == set(plan.tiles)


@given(plans, plans)
def test_names_order_plans_by_epoch(one: Plan, other: Plan) -> None:
    later = msgspec.structs.replace(other, epoch=2)
    assert name_of(one) < name_of(later)
    assert (name_of(one) == name_of(other)) == (one == other)


@given(a_field, values, numbers | texts)
def test_sides_cover_every_value(field: Field, value: Value, pivot: float | str) -> None:
    tree = Tree((Cut("x", pivot, ~0, ~1),), ((), ()))
    low, high = sides(field, pivot)
    if field.accepts(value):
        assert (high if tree.tile({"x": value}) else low) is True
    if field.absent:
        assert low


def test_everywhere_is_one_tile_that_all_own() -> None:
    fields = parse_fields({"price": {"use": 2, "low": 1}})
    ring = Ring(NODES)
    assert EVERYWHERE.holders(fields, ring) == set(NODES)
    assert EVERYWHERE.asked({"price": 3}) == EVERYWHERE.tiles == [(0, 0)]
    assert EVERYWHERE.planned(NODES[3]) == {(0, 0)}
    assert EVERYWHERE.owners((0, 0), ring) == NODES


@given(plans)
def test_plans_round_trip(plan: Plan) -> None:
    assert load_plan(dump_plan(plan)) == plan


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        '{"epoch": -1, "trees": [{}]}',
        '{"epoch": 1, "trees": []}',
        '{"epoch": 1, "trees": [{"cuts": [["a", 1, 0, -1]], "owners": [[], []]}]}',
        '{"epoch": 1, "trees": [{"cuts": [["a", 1, -1, -1]], "owners": [[], []]}]}',
        '{"epoch": 1, "trees": [{"cuts": [["a", 1, -1, -2]], "owners": [[]]}]}',
        '{"epoch": 1, "trees": [{"cuts": [["a", 1, 7, -1]], "owners": [[], []]}]}',
    ],
)
def test_a_plan_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        load_plan(text.encode())


def workload(seed: int, count: int) -> tuple[list[dict[str, Field]], list[dict[str, Value]]]:
    """Ranges on three of six attributes around crowded centres; publications likewise."""
    rng = random.Random(seed)

    def centre() -> float:
        return rng.gauss(300, 60) if rng.random() < 0.6 else rng.uniform(0, 1000)

    subscriptions = []
    for _ in range(count):
        chosen = rng.sample(range(6), 3)
        subscriptions.append({f"a{n}": span((c := centre(), -1), (c + 100, 1)) for n in chosen})
    events: list[dict[str, Value]] = [{f"a{n}": centre() for n in range(6)} for _ in range(count)]
    return subscriptions, events


def test_a_made_plan_is_complete_balanced_and_copies_little() -> None:
    nodes = [f"{number:016x}" for number in range(32)]
    subscriptions, events = workload(1, 2000)
    plan, forecast = make_plan(7, nodes, subscriptions, events)
    assert load_plan(dump_plan(plan)) == plan
    assert plan.epoch == 7
    assert forecast.asked == len(plan.trees) == 2
    assert forecast.max_over_mean < 1.3
    others, publications = workload(2, 400)
    ring = Ring(nodes)
    copies = [len(plan.holders(fields, ring)) for fields in others]
    assert min(copies) >= COPIES
    assert sum(copies) / len(copies) < len(nodes) / 2
    for fields in others[:100]:
        tree, tiles = plan.tiles_for(fields)
        for attrs in publications:
            if accepts(fields, attrs):
                assert plan.trees[tree].tile(attrs) in tiles


def test_few_matchers_or_no_data_mean_everywhere() -> None:
    subscriptions, events = workload(1, 20)
    for nodes, subs in ((NODES[:3], subscriptions), (NODES, [])):
        plan, forecast = make_plan(3, nodes, subs, events)
        assert plan == msgspec.structs.replace(EVERYWHERE, epoch=3)
        assert forecast.copies == len(nodes)
    with pytest.raises(Malformed):
        make_plan(1, [], subscriptions, events)
