"""The end of a loop turn: every link that was sent to is written to once.

A link may be put off: it waits a few turns for more to send, while each of those turns has
something else to write. The loop keeps turning meanwhile; as soon as a turn has nothing to write,
nobody gains from waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

# A busy broker's turn takes 0.1 ms and brings two answers or three: some twenty together, in less
# time than their requests have stood in line.
PATIENCE: Final = 8
# Once the loop turned only to find nothing, it is not about to be busy: so many times links that
# were put off are flushed at once before waiting is tried again.
DOUBT: Final = 8


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

    __slots__ = ("_age", "_call_soon", "_called", "_dirty", "_doubt", "_put_off")

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self._call_soon = call_soon
        self._called = False
        self._dirty: list[Flushable] = []
        self._put_off: list[Flushable] = []
        self._age = 0  # turns that the first of those has waited
        self._doubt = 0

    def add(self, link: Flushable) -> None:
        """Flush this link when the turn ends; a link adds itself once a turn."""
        if not self._called:
            self._called = True
            self._call_soon(self.flush)
        self._dirty.append(link)

    def put_off(self, link: Flushable) -> None:
        """Flush this link when a turn has nothing else to write, or in a few turns."""
        if not self._called:
            self._called = True
            self._call_soon(self.flush)
        self._put_off.append(link)

    def flush(self) -> None:
        """Write everything that has gathered."""
        self._called = False
        dirty = self._dirty
        self._dirty = []
        for link in dirty:
            link.flush()
        if self._put_off:
            self._wait_on(len(dirty) > 0)

    def _wait_on(self, busy: bool) -> None:
        self._age += 1
        waiting = self._put_off
        self._put_off = []
        patient = busy and self._age < PATIENCE
        if not busy and self._age == 2:
            self._doubt = DOUBT
        elif self._doubt:
            self._doubt -= 1
            patient = False
        for link in waiting:
            if patient and not link.ripe():
                self._put_off.append(link)
            else:
                link.flush()
        if not self._put_off:
            self._age = 0
        elif not self._called:
            self._called = True
            self._call_soon(self.flush)
