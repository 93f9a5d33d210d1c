"""Looking for more before sleeping: as long as it pays, and seldom where it does not."""

from __future__ import annotations

from collections.abc import Callable

from homing.node.lookout import SELDOM, WORTH, Lookout

MOMENT = 0.0001
STEP = MOMENT / 5


class Loop:
    """A loop on a clock of its own: each turn takes a fifth of a moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Callable[[], None]] = []
        self.yields = 0
        self.served = 0
        self.busy = False
        self.lookout = Lookout(
            self.calls.append, lambda: self.now, self._give_way, lambda: not self.busy, MOMENT
        )

    def _give_way(self) -> None:
        self.yields += 1

    def turn(self) -> bool:
        """Whether the loop would not have slept."""
        calls = self.calls.copy()
        self.calls.clear()
        for call in calls:
            call()
        self.now += STEP
        return bool(self.calls)

    def message(self) -> None:
        self.lookout.call_soon(self._serve)

    def _serve(self) -> None:
        self.served += 1

    def sleep(self) -> int:
        """Turn until the loop sleeps; how often it turned."""
        turns = 0
        while self.turn():
            turns += 1
        return turns


def test_after_a_message_the_loop_goes_on_for_a_moment_and_gives_way() -> None:
    loop = Loop()
    loop.message()
    assert loop.sleep() == loop.yields == 5
    assert loop.served == 1


def test_who_comes_again_in_time_is_met_awake() -> None:
    loop = Loop()
    for _ in range(100):
        loop.message()
        assert loop.turn()
        assert loop.turn()
    assert loop.served == 100
    loop.sleep()
    loop.message()
    assert loop.turn(), "it paid: the next message begins another look"


def test_looks_in_vain_become_rare_but_never_end() -> None:
    loop = Loop()
    looks = 0
    for _ in range(3 << SELDOM):
        before = loop.yields
        loop.message()
        loop.sleep()
        looks += loop.yields > before
    assert SELDOM < looks <= SELDOM + 3
    assert loop.served == 3 << SELDOM


def test_a_look_that_brings_too_little_was_in_vain() -> None:
    loop = Loop()
    for _ in range(WORTH):  # the first begins it, so one too few comes
        loop.message()
        loop.turn()
    loop.sleep()
    loop.message()
    assert not loop.turn()
    loop.message()
    for _ in range(WORTH + 1):
        loop.message()
        loop.turn()
    loop.sleep()
    loop.message()
    assert loop.turn()


def test_where_much_is_under_way_the_loop_sleeps() -> None:
    loop = Loop()
    loop.busy = True
    loop.message()
    assert not loop.turn()
    loop.busy = False
    loop.message()
    assert loop.turn()
    loop.busy = True
    assert not loop.turn(), "a look ends when it is no longer worth it"
