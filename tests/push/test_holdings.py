"""Shares of a plan: whoever says it holds a tile answers for all of it, through every move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.push.holdings import Holdings, read_standing
from homing.push.index.oracle import Oracle
from homing.push.placement import EVERYWHERE, Cut, Plan, Tile, Tree
from homing.push.ring import Ring
from homing.push.share import Share
from homing.push.subscription import dump_fields, parse_fields
from homing.push.table import Entry
from homing.push.values import Field, Value
from tests.push.test_placement import NODES, accepts, attributes, plans, some_fields

C1, C2 = b"conn0001", b"conn0002"
LOW, HIGH = b'{"n":{"use":2,"high":4}}', b'{"n":{"use":2,"low":6}}'
TILED = Plan(1, (Tree((Cut("n", 5, ~0, ~1),), (NODES[:2], NODES[2:4])),))


def client_id(number: int) -> bytes:
    return number.to_bytes(12, "big")


def sync(table: Holdings, connector: bytes, *told: tuple[int, bytes]) -> list[Entry]:
    table.begin_sync(connector)
    for client, fields in told:
        table.set(client_id(client), connector, b"default", fields)
    return table.end_sync(connector)


def told_by(*holdings: tuple[str, Holdings]) -> dict[tuple[bytes, Tile], set[str]]:
    told: dict[tuple[bytes, Tile], set[str]] = {}
    for name, table in holdings:
        for share in table.shares:
            for tile in share.held:
                told.setdefault((share.name, tile), set()).add(name)
    return told


@given(plans, st.lists(some_fields, max_size=6), attributes, st.sets(st.sampled_from(NODES)))
def test_one_holder_of_each_tile_together_find_everybody_once(
    plan: Plan, subscriptions: list[dict[str, Field]], attrs: dict[str, Value], lost: set[str]
) -> None:
    alive = [node for node in NODES if node not in lost] or [NODES[0]]
    ring = Ring(alive)
    shares = {node: Share(plan, Oracle) for node in alive}
    for node, share in shares.items():
        share.want({t for t in plan.tiles if node in plan.owners(t, ring)}, [C1], [C1], True)
        share.begin_sync(C1)
        for number, fields in enumerate(subscriptions):
            share.set(client_id(number), C1, b"default", dump_fields(fields))
        share.end_sync(C1)
        share.settle(True)
        assert share.held == share.wanted
    found: list[bytes] = []
    for tile in plan.asked(attrs):
        holder = shares[plan.owners(tile, ring)[-1]]
        assert tile in holder.held
        places = holder.match([tile], attrs)[1]
        found += [places[at : at + 12] for at in range(0, len(places), 20)]
    wanted = [client_id(n) for n, fields in enumerate(subscriptions) if accepts(fields, attrs)]
    assert sorted(found) == wanted


def test_a_tile_is_held_when_every_connector_told_all_after_it_was_wanted() -> None:
    table = Holdings(NODES[0], Oracle, TILED)
    table.know([C1, C2])
    table.begin_sync(C1)  # before the wish: what was named so far may have been let go
    table.place(None, [C1], informed=True)
    table.end_sync(C1)
    assert not table.settle(informed=True)
    sync(table, C1, (1, LOW), (2, HIGH))
    assert not table.settle(informed=True)
    sync(table, C2, (3, LOW))
    assert table.settle(informed=True)
    assert table.settled
    assert table.shares[0].held == {(0, 0)}
    assert {entry.client for entry in table} == {client_id(1), client_id(3)}
    assert table.here({"n": 1}) == (2, client_id(1) + C1 + client_id(3) + C2)
    assert table.here({"n": 9}) is None


def test_a_change_may_move_a_subscription_out_of_the_share_and_back() -> None:
    table = Holdings(NODES[0], Oracle, TILED)
    table.place(None, [], informed=True)
    table.settle(informed=True)
    assert table.set(client_id(1), C1, b"default", LOW)
    assert table.set(client_id(1), C1, b"default", HIGH)
    assert len(table) == 0
    assert not table.remove(client_id(1), C1, b"default")
    assert table.set(client_id(1), C1, b"default", LOW)
    assert not table.set(client_id(1), C1, b"default", LOW)
    assert len(table) == 1


TWO_TREES = Plan(
    1,
    (
        Tree((Cut("n", 5, ~0, ~1),), (NODES[:2], NODES[2:4])),
        Tree((Cut("m", 5, ~0, ~1),), (NODES[:2], NODES[2:4])),
    ),
)
BY_N, BY_M = b'{"n":{"use":2,"high":4}}', b'{"m":{"use":2,"high":4}}'
BOTH = {"n": 1, "m": 1}


def holding(node: str, plan: Plan) -> Holdings:
    """Of a matcher that holds its tiles, with nothing in them."""
    table = Holdings(node, Oracle, plan)
    table.place(None, [], informed=True)
    table.settle(informed=True)
    return table


def test_who_is_found_in_two_trees_is_listed_once() -> None:
    table = holding(NODES[0], TWO_TREES)
    table.set(client_id(1), C1, b"a", BY_N)
    table.set(client_id(1), C1, b"b", BY_M)
    assert table.here(BOTH) == (2, client_id(1) + C1)


def test_a_subscription_that_changes_trees_is_found_whoever_hears_of_it_first() -> None:
    asked_before, asked_after = holding(NODES[0], TWO_TREES), holding(NODES[1], TWO_TREES)
    for table in (asked_before, asked_after):
        table.set(client_id(1), C1, b"default", BY_N)
    by_n, by_m = TWO_TREES.asked(BOTH)
    early = asked_before.newest.match([by_m], BOTH)
    asked_after.set(client_id(1), C1, b"default", BY_M)
    late = asked_after.newest.match([by_n], BOTH)
    assert early == (0, b"")
    assert late == (0, client_id(1) + C1), "found, and counted where it is now"
    assert asked_after.here(BOTH) == (1, client_id(1) + C1)
    # It is what it asks for now that is found, and only while it asks for something.
    assert asked_after.here({"n": 1, "m": 9}) is None
    assert asked_after.newest.match([by_n], {"n": 1, "m": 9}) == (0, b"")
    asked_after.beat()
    assert asked_after.newest.match([by_n], BOTH) == late
    asked_after.beat()
    assert asked_after.newest.match([by_n], BOTH) == (0, b"")


@pytest.mark.parametrize("end", ["removed", "not named", "connector forgotten", "back"])
def test_what_has_left_a_tree_ends_with_the_subscription(end: str) -> None:
    table = holding(NODES[0], TWO_TREES)
    table.set(client_id(1), C1, b"default", BY_N)
    table.set(client_id(1), C1, b"default", BY_M)
    if end == "removed":
        assert table.remove(client_id(1), C1, b"")
    elif end == "not named":
        assert len(sync(table, C1)) == 1
    elif end == "connector forgotten":
        assert len(table.forget(C1)) == 1
    else:
        table.set(client_id(1), C1, b"default", BY_N)
        assert table.here(BOTH) == (1, client_id(1) + C1)
        table.remove(client_id(1), C1, b"default")
    assert table.here(BOTH) == (0, b"")


def test_what_leaves_trees_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.push.leaving.MAX_LEAVING", 3)
    table = holding(NODES[0], TWO_TREES)
    for fields in (BY_N, BY_M):
        for number in range(5):
            table.set(client_id(number), C1, b"default", fields)
    left = table.newest.leaving
    assert len(left) == 3
    listed = left.find(0, BOTH)
    assert [listed[at : at + 12] for at in range(0, len(listed), 20)] == [
        client_id(number) for number in (2, 3, 4)
    ]


def test_a_stand_in_gives_up_what_it_held_once_the_owners_hold_it() -> None:
    ring = Ring(NODES[:1])
    table = Holdings(NODES[0], Oracle, TILED)
    table.place(ring, [C1], informed=True)
    table.know([C1])
    table.place(ring, [C1], informed=True)
    sync(table, C1, (1, LOW), (2, HIGH))
    table.settle(informed=True)
    assert table.shares[0].held == {(0, 0), (0, 1)}
    back = Ring(NODES[:4])
    table.place(back, [C1], informed=True)
    owner = Holdings(NODES[2], Oracle, TILED)
    other = Holdings(NODES[3], Oracle, TILED)
    assert not table.review(back, told_by((NODES[2], owner)))
    for one in (owner, other):
        one.place(None, [], informed=True)
        sync(one, C1, (1, LOW), (2, HIGH))
        one.settle(informed=True)
    assert table.review(back, told_by((NODES[2], owner), (NODES[3], other)))
    assert not table.sweep()
    assert {entry.client for entry in table} == {client_id(1)}
    assert table.here({"n": 9}) is None


def test_the_old_plan_answers_until_the_new_one_is_held() -> None:
    ring = Ring(NODES[:1])
    table = Holdings(NODES[0], Oracle)
    table.place(None, [], informed=True)
    table.settle(informed=True)
    table.know([C1])
    sync(table, C1, (1, LOW), (2, HIGH))
    assert table.follow(TILED, {})
    assert not table.follow(TILED, {})
    table.place(ring, [C1], informed=True)
    assert table.here({"n": 9}) == (1, client_id(2) + C1)
    sync(table, C1, (1, LOW), (2, HIGH))
    table.settle(informed=True)
    assert [share.plan.epoch for share in table.shares] == [0, 1]
    assert not table.follow(Plan(0, TILED.trees), {})
    assert table.review(ring, {})
    assert [share.plan.epoch for share in table.shares] == [1]
    assert table.here({"n": 9}) == (1, client_id(2) + C1)
    assert table.follow(Plan(3, EVERYWHERE.trees), {})
    assert table.follow(Plan(4, TILED.trees), {})  # of the third nothing is held yet
    assert [share.plan.epoch for share in table.shares] == [1, 4]


@pytest.mark.parametrize("complete", [True, False])
def test_of_two_plans_the_one_that_answers_stays_when_a_third_comes(complete: bool) -> None:
    table = Holdings(NODES[0], Oracle)
    table.place(None, [], informed=True)
    table.settle(informed=True)
    table.follow(TILED, {})
    table.place(Ring(NODES), [], informed=True)
    table.settle(informed=True)
    name, held = table.newest.name, table.newest.held
    assert 0 < len(held) < len(TILED.tiles)
    told = {(name, tile): {NODES[1]} for tile in set(TILED.tiles) - held} if complete else {}
    assert table.follow(Plan(3, EVERYWHERE.trees), told)
    assert [share.plan.epoch for share in table.shares] == [1 if complete else 0, 3]


def test_a_restart_trusts_its_journal_for_what_it_held_and_no_more() -> None:
    table = Holdings(NODES[0], Oracle, TILED)
    table.place(None, [], informed=True)
    table.settle(informed=True)
    table.know([C1])
    sync(table, C1, (1, LOW))
    standing = read_standing(table.standing(Ring(NODES).names))
    assert standing is not None
    again = Holdings(NODES[0], Oracle)
    again.restore(standing, list(table))
    again.place(None, [], informed=True)  # its connector is away: the journal knows what it had
    assert again.settle(informed=True)
    assert again.here({"n": 1}) == (1, client_id(1) + C1)
    again.place(Ring(NODES[:1]), [], informed=True)
    assert not again.settle(informed=True)  # of this tile the journal tells nothing
    assert again.forget(C1)
    assert again.settle(informed=True)
    assert len(again) == 0


def test_what_another_version_journaled_is_no_standing() -> None:
    assert read_standing(b'["0011223344556677"]') is None
    assert read_standing(b"nonsense") is None


def test_a_sync_that_breaks_off_takes_nothing_away() -> None:
    table = Holdings(NODES[0], Oracle)
    table.place(None, [], informed=True)
    table.know([C1])
    sync(table, C1, (1, LOW))
    table.begin_sync(C1)
    for share in table.shares:
        share.abort_syncs([C1])
    assert table.end_sync(C1) == []
    assert len(table) == 1
    assert parse_fields(next(iter(table)).fields)
