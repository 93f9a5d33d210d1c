"""When links are flushed: at the end of their turn, or with others."""

from __future__ import annotations

from collections.abc import Callable

from homing.node.turn import DOUBT, MOMENT, PATIENCE, ROUNDS, Turn


class Loop:
    """Calls what was scheduled, one turn at a time."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        assert delay == MOMENT
        self.timers.append(call)
        assert len(self.timers) == 1, "one moment at a time"

    def moment(self) -> None:
        """So much time passes that a timer fires."""
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        assert len(calls) <= 1, "one flush a turn"
        for call in calls:
            call()


class Tap:
    """A link that counts its flushes."""

    def __init__(self) -> None:
        self.flushes = 0
        self.full = False

    def flush(self) -> None:
        self.flushes += 1

    def ripe(self) -> bool:
        return self.full


def test_all_that_was_sent_to_is_flushed_once() -> None:
    loop, taps = Loop(), [Tap(), Tap()]
    turn = Turn(loop.call_soon, loop.call_later)
    for tap in taps:
        turn.add(tap)
    loop.turn()
    assert [tap.flushes for tap in taps] == [1, 1]
    assert not loop.calls


def test_what_nothing_will_travel_with_leaves_before_the_turn_ends() -> None:
    loop, tap = Loop(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.add(tap)
    turn.hasten()
    assert tap.flushes == 1
    loop.turn()
    assert tap.flushes == 1
    turn.add(tap)
    loop.turn()
    assert tap.flushes == 2, "the next turn is one like any other"


def test_a_link_put_off_waits_for_turns_with_something_else_to_write() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.put_off(patient)
    for _ in range(2):
        turn.add(busy)
        loop.turn()
    assert (busy.flushes, patient.flushes) == (2, 0)
    assert not loop.timers, "the loop is turning"
    loop.turn()
    assert (busy.flushes, patient.flushes) == (2, 0)
    assert not loop.calls, "the loop may sleep"
    turn.add(busy)
    loop.turn()
    assert not loop.calls, "and is not kept turning once it has slept"
    loop.moment()
    assert (busy.flushes, patient.flushes) == (3, 1)
    assert not loop.calls
    assert not loop.timers


def test_a_moment_that_others_began_is_not_cut_short() -> None:
    loop, busy, first, second = Loop(), Tap(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.put_off(first)
    turn.add(busy)
    loop.turn()
    loop.turn()  # nothing to write: the moment begins
    first.full = True
    turn.add(busy)
    loop.turn()
    assert first.flushes == 1
    turn.put_off(second)
    turn.add(busy)
    loop.turn()
    loop.moment()
    assert second.flushes == 0
    loop.moment()
    assert second.flushes == 1


def test_a_link_put_off_alone_is_flushed_in_its_turn() -> None:
    loop, patient = Loop(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.put_off(patient)
    loop.turn()
    assert patient.flushes == 1
    assert not loop.calls


def test_patience_ends() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.put_off(patient)
    for _ in range(PATIENCE):
        assert patient.flushes == 0
        turn.add(busy)
        loop.turn()
    assert patient.flushes == 1
    turn.put_off(patient)  # and begins anew
    turn.add(busy)
    loop.turn()
    assert patient.flushes == 1


def test_one_that_has_enough_does_not_wait_for_the_others() -> None:
    loop, busy, full, patient = Loop(), Tap(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.put_off(full)
    turn.put_off(patient)
    full.full = True
    turn.add(busy)
    loop.turn()
    assert (full.flushes, patient.flushes) == (1, 0)


def test_waiting_in_vain_is_not_tried_again_at_once() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)

    def once() -> bool:
        """Whether a link that is put off in a busy turn waits for a moment in which none follows."""
        before = patient.flushes
        turn.put_off(patient)
        turn.add(busy)
        loop.turn()
        loop.turn()
        waits = patient.flushes == before
        loop.moment()
        assert patient.flushes == before + 1
        assert not loop.calls
        return waits

    assert [once() for _ in range(DOUBT + 2)] == [True, *[False] * DOUBT, True]


def test_a_link_gathers_while_turns_bring_something() -> None:
    loop, gathering = Loop(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.news = True
    turn.gather(gathering)
    loop.turn()
    turn.news = True
    loop.turn()
    assert gathering.flushes == 0
    loop.turn()
    assert gathering.flushes == 1, "nothing came"
    assert not loop.calls, "the loop may sleep"
    assert not loop.timers


def test_a_link_does_not_gather_for_ever() -> None:
    loop, gathering = Loop(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.gather(gathering)
    turns = 0
    while not gathering.flushes:
        turn.news = True
        loop.turn()
        turns += 1
    assert turns == ROUNDS + 1
    turn.gather(gathering)  # and begins anew
    turn.news = True
    loop.turn()
    assert gathering.flushes == 1


def test_gathering_keeps_nobody_else_waiting() -> None:
    loop, gathering, busy, patient = Loop(), Tap(), Tap(), Tap()
    turn = Turn(loop.call_soon, loop.call_later)
    turn.news = True
    turn.gather(gathering)
    turn.put_off(patient)
    turn.add(busy)
    loop.turn()
    assert (gathering.flushes, busy.flushes) == (0, 1)
    loop.turn()
    assert (gathering.flushes, patient.flushes) == (1, 0)
    loop.moment()
    assert patient.flushes == 1
