"""Eras: when a matcher took what it owes, as all matchers count."""

from __future__ import annotations

from homing.push.eras import LAST, MAX_RECENT, Eras
from homing.push.outbox import Outbox, Parcel


def test_who_comes_begins_an_era_behind_all_that_others_told() -> None:
    eras = Eras()
    first = eras.current
    eras.begin(0.0)
    assert eras.current is not first
    assert eras.current.number == 0, "nobody has told anything"
    eras.tell(eras.current)
    assert not eras.heard(3, 0.0)
    eras.begin(1.0)
    assert eras.current.number == 4
    eras.heard(2, 0.0)
    eras.begin(2.0)
    assert eras.current.number == 4, "numbers never fall"


def test_others_hear_of_a_number_once() -> None:
    eras = Eras()
    eras.heard(3, 0.0)
    eras.begin(1.0)
    assert eras.tell(eras.current)
    assert not eras.tell(eras.current)
    assert eras.newest == 4


def test_news_that_are_slower_than_the_publisher_raise_what_has_begun_since() -> None:
    eras = Eras()
    eras.begin(1.0)
    old = eras.current
    eras.begin(5.0)
    fresh = eras.current
    eras.begin(6.0)
    assert eras.heard(7, 4.0)
    assert (old.number, fresh.number, eras.current.number) == (0, 8, 8)
    assert not eras.heard(7, 4.0)


def test_what_was_told_stays_as_it_was() -> None:
    """Also one of which nothing is owed, and that began before."""
    eras = Eras()
    eras.begin(1.0)
    empty = eras.current
    eras.begin(1.5)
    told = eras.current
    eras.begin(2.0)
    eras.tell(told)
    assert eras.heard(7, 0.0)
    assert (empty.number, told.number, eras.current.number) == (0, 0, 8)


def test_numbers_stay_within_what_the_wire_holds() -> None:
    eras = Eras()
    eras.begin(1.0)
    eras.heard(LAST, 0.0)
    assert eras.current.number == LAST
    eras.begin(2.0)
    assert eras.current.number == LAST


def test_publishers_that_come_and_go_leave_nothing_behind() -> None:
    eras, outbox = Eras(), Outbox(b"connector")
    for count in range(MAX_RECENT + 1000):
        eras.begin(float(count))
        outbox.add(Parcel(count.to_bytes(12, "big"), b"", b"", bytes(12), era=eras.current))
        if count:
            assert outbox.acked((count - 1).to_bytes(12, "big"), bytes(12)) is not None
    assert len(eras._recent) <= MAX_RECENT
    assert len(outbox._ends) <= 1
