"""Eras: when a matcher took what it owes, as all matchers count."""

from __future__ import annotations

from homing.push.eras import LAST, Eras
from homing.push.outbox import Outbox, Parcel


def test_who_comes_begins_an_era_behind_all_that_others_told() -> None:
    eras = Eras()
    first = eras.current
    eras.begin()
    assert eras.current is not first
    assert eras.current.number == 0, "nobody has told anything"
    eras.tell(eras.current)
    assert eras.heard(3)
    assert not eras.heard(3), "no news"
    eras.begin()
    assert eras.current.number == 4
    eras.heard(2)
    eras.begin()
    assert eras.current.number == 4, "numbers never fall"


def test_others_hear_of_a_number_once() -> None:
    eras = Eras()
    eras.heard(3)
    eras.begin()
    assert eras.tell(eras.current)
    assert not eras.tell(eras.current)
    assert eras.newest == 4


def test_numbers_stay_within_what_the_wire_holds() -> None:
    eras = Eras()
    eras.heard(LAST)
    eras.begin()
    assert eras.current.number == LAST


def test_publishers_that_come_and_go_leave_nothing_behind() -> None:
    eras, outbox = Eras(), Outbox(b"connector")
    for count in range(1000):
        eras.begin()
        outbox.add(Parcel(count.to_bytes(12, "big"), b"", b"", bytes(12), era=eras.current))
        if count:
            assert outbox.acked((count - 1).to_bytes(12, "big"), bytes(12)) is not None
    assert len(outbox._ends) <= 1
