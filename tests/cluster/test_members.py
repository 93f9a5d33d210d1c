"""The pure view of the fabric: joins, leaves, failures, earlier lives."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.cluster.members import Change, Member, View, from_tags
from homing.cluster.static import parse_member, parse_members
from homing.errors import ConfigError, Malformed

NODE = Member("a", b"\x01" * 8, frozenset({"matcher"}), {"status": "127.0.0.1:7002"}, 3)


def test_join_change_fail() -> None:
    view = View()
    moved = msgspec.structs.replace(NODE, endpoints={"status": "127.0.0.1:8002"}, epoch=4)
    assert view.up(NODE) == [Change("joined", NODE)]
    assert view.up(NODE) == []
    assert view.up(moved) == [Change("changed", moved)]
    assert view.up(NODE) == [], "news of an earlier life"
    assert view.down(NODE, failed=True) == [], "the earlier life's failure"
    assert view.members("matcher") == [moved]
    assert view.members("connector") == []
    assert view.down(moved, failed=True) == [Change("failed", moved)]
    assert view.down(moved, failed=True) == []
    assert view.up(NODE) == [], "an earlier life stays dead"
    assert len(view) == 0


ids = st.sampled_from([bytes([n]) * 8 for n in range(5)])
members = st.builds(
    Member, st.just("n"), ids, st.just(frozenset({"matcher"})), st.just({}), st.integers(0, 3)
)


@given(st.lists(st.tuples(st.sampled_from(["up", "down", "replace"]), st.lists(members))))
def test_changes_tell_exactly_how_the_view_changed(
    steps: list[tuple[str, list[Member]]],
) -> None:
    view, told = View(), dict[bytes, Member]()
    for step, which in steps:
        changes = view.replace(which) if step == "replace" else []
        for member in which if step != "replace" else []:
            changes += view.up(member) if step == "up" else view.down(member, failed=False)
        for change in changes:
            if change.kind in ("joined", "changed"):
                assert (change.member.id in told) == (change.kind == "changed")
                told[change.member.id] = change.member
            else:
                del told[change.member.id]
        assert view.members() == sorted(told.values(), key=lambda member: member.id)


def test_of_two_with_one_id_the_one_that_started_last_is_known_however_they_are_listed() -> None:
    """Each agent lists them in an order of its own: nodes disagreed on which of them is meant."""
    twin = msgspec.structs.replace(NODE, name="b", epoch=4)
    for listed in ([NODE, twin], [twin, NODE]):
        view = View()
        view.replace(listed)
        assert view.members() == [twin]
        assert view.replace(listed) == []


def test_tags_round_trip() -> None:
    assert from_tags("a", NODE.tags()) == NODE
    assert from_tags("stranger", {"dc": "x"}) is None


@pytest.mark.parametrize(
    "tags",
    [
        {"role": "matcher", "id": "zz"},
        {"role": "matcher", "id": "01" * 8, "epoch": "-1"},
        {"role": "matcher", "id": "01" * 8, "epoch": "9" * 5_000},
        {"role": "matcher", "id": "01" * 8, "address": "nonsense"},
        {"role": "matcher", "id": "01" * 8, "address": "status=127.0.0.1:"},
        {"role": "matcher", "id": "01" * 8, "address": "status=nonsense"},
    ],
)
def test_tags_that_make_no_sense(tags: dict[str, str]) -> None:
    with pytest.raises(Malformed):
        from_tags("a", tags)


def test_tags_larger_than_serf_carries() -> None:
    wide = msgspec.structs.replace(NODE, endpoints={f"plug{n}": "host:1" for n in range(60)})
    with pytest.raises(Malformed, match="512"):
        wide.tags()


def test_static_list() -> None:
    member = parse_member("matcher,dispatcher:0011223344556677@status=127.0.0.1:7002")
    assert member.roles == {"matcher", "dispatcher"}
    assert member.endpoints == {"status": "127.0.0.1:7002"}


def test_every_bad_line_of_a_static_list_is_named() -> None:
    good = "matcher:0011223344556677@status=127.0.0.1:7002"
    far = "matcher:0011223344556688@status=127.0.0.1:" + "9" * 5_000
    with pytest.raises(ConfigError) as caught:
        parse_members([good, "nonsense", good, "matcher:00@status=127.0.0.1:1", "a:b@c", far])
    assert len(caught.value.problems) == 5
