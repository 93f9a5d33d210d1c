"""The end of a loop turn: every link that was sent to is written to once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Flushable(Protocol):
    """Something with bytes to write at the end of the turn."""

    def flush(self) -> None: ...


class Turn:
    """Gathers the links with something to send; the loop's next step flushes them all.

    A callback scheduled while sockets are being read runs before the loop waits again, so all
    that one turn's reads have caused leaves with one write a link.
    """

    __slots__ = ("_call_soon", "_dirty")

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self._call_soon = call_soon
        self._dirty: list[Flushable] = []

    def add(self, link: Flushable) -> None:
        """Flush this link when the turn ends; a link adds itself once a turn."""
        if not self._dirty:
            self._call_soon(self.flush)
        self._dirty.append(link)

    def flush(self) -> None:
        """Write everything that has gathered."""
        dirty = self._dirty
        self._dirty = []
        for link in dirty:
            link.flush()
