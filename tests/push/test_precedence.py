"""Who goes first at a connector: matchers that are late, lost and back, and that wait in circles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.push import precedence
from homing.push.precedence import GRACE, Precedence

C1, C2 = b"conn0001", b"conn0002"


def test_a_lost_matcher_goes_first_where_it_was_late_until_it_has_caught_up() -> None:
    ours = Precedence("a")
    ours.lost("b", [C1], 0.0)
    assert ours.must_wait(C1, 1.0)
    assert not ours.must_wait(C2, 1.0)
    assert ours.waits() == [(C1, "b")]
    ours.heard("b", {C1}, [])
    assert ours.must_wait(C1, 1000.0)
    ours.heard("b", set(), [])
    assert not ours.must_wait(C1, 1000.0)
    assert ours.waits() == []


def test_one_that_does_not_come_back_is_waited_for_a_while() -> None:
    ours = Precedence("a")
    ours.lost("b", [C1], 0.0)
    assert ours.must_wait(C1, GRACE - 0.1)
    assert not ours.must_wait(C1, GRACE)


def test_of_two_that_wait_for_each_other_the_first_by_name_goes() -> None:
    a, b = Precedence("a"), Precedence("b")
    a.lost("b", [C1, C2], 0.0)
    b.lost("a", [C1], 0.0)
    a.heard("b", {C1, C2}, b.waits())
    b.heard("a", {C1}, a.waits())
    assert not a.must_wait(C1, 100.0)
    assert b.must_wait(C1, 100.0)
    assert a.must_wait(C2, 100.0)  # there b waits for nobody
    b.heard("a", set(), a.waits())  # a has caught up
    assert not b.must_wait(C1, 100.0)


def test_the_first_of_a_circle_still_waits_for_one_outside_of_it() -> None:
    a = Precedence("a")
    a.lost("b", [C1], 0.0)
    a.lost("c", [C1], 0.0)
    a.heard("b", {C1}, [(C1, "a")])
    a.heard("c", {C1}, [])
    assert a.must_wait(C1, 100.0)
    a.heard("c", set(), [])
    assert not a.must_wait(C1, 100.0)


NAMES = "abcdef"
EDGES = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20)


@given(EDGES.map(lambda edges: {(one, other) for one, other in edges if one != other}))
def test_whoever_waits_for_whom_all_get_their_turn_one_after_the_other(
    edges: set[tuple[str, str]],
) -> None:
    """Who may go has caught up then; nobody goes while one goes that it waits for."""
    all_of_them = {name: Precedence(name) for name in NAMES}
    for one, other in edges:
        all_of_them[one].lost(other, [C1], 0.0)
    late = set(NAMES)
    while late:
        told = {name: ours.waits() for name, ours in all_of_them.items()}
        for name, ours in all_of_them.items():
            for other in NAMES:
                if other != name:
                    ours.heard(other, {C1} if other in late else set(), told[other])
        free = {name for name in late if not all_of_them[name].must_wait(C1, 100.0)}
        assert free, f"all of {late} wait"
        assert not {(one, other) for one, other in edges if one in free and other in free} - {
            (one, other) for one, other in edges if one < other
        }
        late -= free


def test_of_two_that_wait_for_each_other_the_one_with_the_older_era_goes() -> None:
    a, b = Precedence("a"), Precedence("b")
    a.let_go("b", {C1})
    b.let_go("a", {C1})
    a.heard("b", {C1}, b.waits(), {C1: 4})
    b.heard("a", {C1}, a.waits(), {C1: 5})
    assert a.must_wait(C1, 1.0, era=5), "though it is the first by name"
    assert not a.must_wait(C1, 1.0, era=4), "took at the same time"
    assert not b.must_wait(C1, 1.0, era=4)
    a.heard("b", {C1}, b.waits(), {C1: 6})
    assert not a.must_wait(C1, 1.0, era=5)
    b.heard("a", set(), a.waits())
    assert not b.must_wait(C1, 1.0, era=6)


def test_one_that_is_lost_goes_before_what_is_of_a_later_era() -> None:
    ours = Precedence("a")
    ours.heard("b", {C1}, [], {C1: 4})
    ours.lost("b", [C1], 0.0)
    assert ours.must_wait(C1, 1.0, era=5)
    assert not ours.must_wait(C1, 1.0, era=4)
    assert not ours.must_wait(C1, GRACE, era=5)


SPELLS = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.integers(0, 9), min_size=1).map(sorted), min_size=2
)


@given(SPELLS)
def test_whatever_was_taken_when_it_goes_in_the_order_of_eras(spells: dict[str, list[int]]) -> None:
    """Everybody waits for everybody; whoever may go hands over one thing, and tells what it owes then."""
    all_of_them = {name: Precedence(name) for name in spells}
    gone = []
    for name, ours in all_of_them.items():
        ours_not = spells.keys() - {name}
        assert [ours.let_go(other, {C1}) for other in ours_not] == [[C1]] * len(ours_not)
    expected = sorted(era for eras in spells.values() for era in eras)
    while any(spells.values()):
        for name, ours in all_of_them.items():
            for other, eras in spells.items():
                if other != name:
                    told = {C1: eras[0]} if eras else {}
                    ours.heard(other, set(told), all_of_them[other].waits(), told)
        owing = [name for name, eras in spells.items() if eras]
        free = [n for n in owing if not all_of_them[n].must_wait(C1, 1.0, era=spells[n][0])]
        assert free, f"all of {owing} wait"
        gone += [spells[name].pop(0) for name in free]
    assert gone == expected


def test_only_so_many_are_waited_for() -> None:
    ours = Precedence("a")
    connectors = [number.to_bytes(8, "big") for number in range(precedence.MAX_WAITS + 1)]
    ours.lost("b", connectors, 0.0)
    assert len(ours.waits()) == precedence.MAX_WAITS
    assert not ours.must_wait(connectors[-1], 1.0)


def test_one_that_lives_has_its_time_from_when_the_connector_can_be_reached_and_only_once() -> None:
    ours = Precedence("a")
    assert ours.let_go("b", {C1}) == [C1]
    assert ours.let_go("b", {C1}) == []
    assert ours.must_wait(C1, 1000.0, reachable=False)
    assert ours.waits() == [(C1, "b")]
    assert ours.must_wait(C1, 1000.0)
    assert ours.must_wait(C1, 1000.0 + GRACE - 0.1, reachable=False)
    assert not ours.must_wait(C1, 1000.0 + GRACE)
    assert ours.waits() == []
    ours.heard("b", {C1}, [])
    assert ours.let_go("b", {C1}) == [], "it has had its time"
    ours.heard("b", set(), [])
    assert ours.let_go("b", {C1}) == [C1], "it was late, has caught up, and is late again"
    ours.heard("b", set(), [])
    assert not ours.must_wait(C1, 2000.0)


def test_one_that_is_lost_while_it_goes_first_is_waited_for_as_any_other() -> None:
    ours = Precedence("a")
    ours.let_go("b", {C1})
    ours.lost("b", {C1}, 0.0)
    assert ours.must_wait(C1, GRACE - 0.1)
    assert not ours.must_wait(C1, GRACE)
