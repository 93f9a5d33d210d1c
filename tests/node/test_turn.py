"""When links are flushed: at the end of their turn, or with others."""

from __future__ import annotations

from collections.abc import Callable

from homing.node.turn import DOUBT, PATIENCE, Turn


class Loop:
    """Calls what was scheduled, one turn at a time."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

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
    turn = Turn(loop.call_soon)
    for tap in taps:
        turn.add(tap)
    loop.turn()
    assert [tap.flushes for tap in taps] == [1, 1]
    assert not loop.calls


def test_a_link_put_off_waits_for_a_turn_with_nothing_else_to_write() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon)
    turn.put_off(patient)
    turn.add(busy)
    loop.turn()
    assert (busy.flushes, patient.flushes) == (1, 0)
    turn.add(busy)
    loop.turn()
    assert (busy.flushes, patient.flushes) == (2, 0)
    loop.turn()
    assert (busy.flushes, patient.flushes) == (2, 1)
    loop.turn()
    assert not loop.calls, "nothing is waited for any more"


def test_a_link_put_off_alone_is_flushed_in_its_turn() -> None:
    loop, patient = Loop(), Tap()
    turn = Turn(loop.call_soon)
    turn.put_off(patient)
    loop.turn()
    assert patient.flushes == 1
    assert not loop.calls


def test_patience_ends() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon)
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
    turn = Turn(loop.call_soon)
    turn.put_off(full)
    turn.put_off(patient)
    full.full = True
    turn.add(busy)
    loop.turn()
    assert (full.flushes, patient.flushes) == (1, 0)


def test_waiting_in_vain_is_not_tried_again_at_once() -> None:
    loop, busy, patient = Loop(), Tap(), Tap()
    turn = Turn(loop.call_soon)

    def once() -> int:
        """How many turns a link that is put off in a busy one waits."""
        before = patient.flushes
        turn.put_off(patient)
        turn.add(busy)
        turns = 0
        while patient.flushes == before:
            loop.turn()
            turns += 1
        assert not loop.calls
        return turns

    assert [once() for _ in range(DOUBT + 2)] == [2, *[1] * DOUBT, 2]
