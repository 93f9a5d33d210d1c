"""Looking for more before sleeping: as long as it pays, and seldom where it does not."""

from __future__ import annotations

from collections.abc import Callable

from homing.node.lookout import SELDOM, WORTH, Lookout
from homing.node.pace import DOZEN, Pace
from homing.node.turn import Turn
from homing.service.switch import Broker
from homing.testing import RecordingPort

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


def test_a_broker_looks_out_where_little_is_under_way_or_much_comes_at_once() -> None:
    core = Broker(b"a", RecordingPort()).core
    turn = Turn(lambda call: None, lambda delay, call: None)
    pace = Pace(core, turn)
    core.live = 1
    assert pace.is_quick(), "one at a time"
    assert pace.is_alone()
    core.live = 100
    assert not pace.is_alone()
    core.record.accepts, core.record.answers, turn.reads = 8 * DOZEN, 8 * DOZEN, 16
    assert pace.is_quick(), "by the dozen"
    core.record.answers += 16
    turn.reads += 8
    assert not pace.is_quick(), "from many, a few from each"
