"""The end of a loop turn: every link that was sent to is written to once.

A link may gather: it waits for more to send as long as turns come at once that bring something, a few
of them at most.

A link may be put off: it waits for more to send, for a few turns that have something else to write.
As long as such turns come at once the loop keeps turning; when one does not they are waited for
for a moment. Where none comes in that time nobody gains from waiting, and it is not tried again for a
while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

# A busy broker's turn takes 0.03 ms and brings two answers or three: some thirty together, in less
# time than their requests have stood in line.
PATIENCE: Final = 16
# Turns that a link gathers for: whoever waits for it has something to do, but not for long.
ROUNDS: Final = 8
# Seconds after which the turns that were waited for are waited for no more.
MOMENT: Final = 0.002
# Once a moment passed without such a turn, the loop is not about to be busy: so many times links
# that were put off are flushed at once before waiting is tried again.
DOUBT: Final = 16


class Flushable(Protocol):
    """Something with bytes to write at the end of the turn."""

    def flush(self) -> None: ...

    def ripe(self) -> bool:
        """Whether a link that was put off need not wait any longer."""
        ...


class Turn:
    """Gathers the links with something to send; the loop's next step flushes them all.

    A callback scheduled while sockets are being read runs before the loop waits again, so all
    that one turn's reads have caused leaves with one write a link.
    """

    __slots__ = (
        "_age",
        "_armed",
        "_call_later",
        "_call_soon",
        "_called",
        "_dirty",
        "_doubt",
        "_gathering",
        "_group",
        "_put_off",
        "_rounds",
        "alone",
        "news",
        "pressed",
        "reads",
    )

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        call_later: Callable[[float, Callable[[], None]], Any],
    ) -> None:
        self._call_soon = call_soon
        self._call_later = call_later
        self._called = False
        self._dirty: list[Flushable] = []
        self._put_off: list[Flushable] = []
        self._age = 0  # turns that the first of those has waited
        self._group = 0  # counts those that were put off together
        self._armed = -1  # the group that a moment was begun for; -1: none is under way
        self._doubt = 0
        self.alone: Callable[[], bool] | None = (
            None  # whether nothing could come to travel with what is sent
        )
        self.news = False  # something was read since the last flush
        self.reads = 0  # chunks that links have read so far
        self.pressed = False  # the disk is behind: who sends more waits
        self._gathering: list[Flushable] = []
        self._rounds = 0  # turns that the first of those has waited

    def add(self, link: Flushable) -> None:
        """Flush this link when the turn ends; a link adds itself once a turn."""
        if not self._called:
            self._called = True
            self._call_soon(self.flush)
        self._dirty.append(link)

    def put_off(self, link: Flushable) -> None:
        """Flush this link in a few turns that have something else to write, or in a moment."""
        if not self._called:
            self._called = True
            self._call_soon(self.flush)
        self._put_off.append(link)

    def gather(self, link: Flushable) -> None:
        """Flush this link as soon as a turn brings nothing new, or a few have passed."""
        if not self._called:
            self._called = True
            self._call_soon(self.flush)
        self._gathering.append(link)

    def hasten(self) -> None:
        """Nothing will come to travel with what was sent: it leaves before the turn ends."""
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for link in dirty:
                link.flush()

    def flush(self) -> None:
        """Write everything that has gathered."""
        self._called = False
        dirty = self._dirty
        self._dirty = []
        for link in dirty:
            link.flush()
        if self._gathering:
            self._gather_on()
        self.news = False
        if self._put_off:
            self._wait_on(len(dirty) > 0)

    def _gather_on(self) -> None:
        """Does the next turn come at once? Only one that brought something tells of a next one."""
        if self.news and self._rounds < ROUNDS:
            self._rounds += 1
            if not self._called:
                self._called = True
                self._call_soon(self.flush)
            return
        gathering = self._gathering
        self._gathering = []
        self._rounds = 0
        for link in gathering:
            link.flush()

    def _wait_on(self, busy: bool) -> None:
        waiting = self._put_off
        self._put_off = []
        self._age += busy
        patient = 0 < self._age < PATIENCE
        if self._doubt:
            self._doubt -= 1
            patient = False
        for link in waiting:
            if patient and not link.ripe():
                self._put_off.append(link)
            else:
                link.flush()
        if not self._put_off:
            self._age = 0
            self._group += 1
        elif self._armed < 0 and not busy:
            self._arm()
        elif self._armed < 0 and not self._called:
            # Does the next turn come at once? Where one did not, a moment is under way already.
            self._called = True
            self._call_soon(self.flush)

    def _arm(self) -> None:
        self._armed = self._group
        self._call_later(MOMENT, self._late)

    def _late(self) -> None:
        """A moment has passed: whoever has waited for all of it waits no more."""
        begun_for = self._armed
        self._armed = -1
        if not self._put_off:
            return
        if begun_for != self._group:
            self._arm()
            return
        if self._age < 2:
            self._doubt = DOUBT
        waiting = self._put_off
        self._put_off = []
        self._age = 0
        self._group += 1
        for link in waiting:
            link.flush()
