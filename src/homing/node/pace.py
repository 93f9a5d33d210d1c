"""Whether a broker has so little, or so much at once, under way that it pays to look for more before sleeping (ADR 0019)."""

from __future__ import annotations

from typing import Final

from homing.node.turn import Turn
from homing.service.dispatch import DispatchCore

DOZEN: Final = 12
"""Messages a read that come from few peers which each send many: looking does not make turns smaller then."""


class Pace:
    """Asked at every chunk: whoever sends next may do so at once."""

    __slots__ = ("_core", "_messages", "_reads", "_turn")

    def __init__(self, core: DispatchCore, turn: Turn) -> None:
        self._core = core
        self._turn = turn
        self._messages = 0
        self._reads = 0

    def is_alone(self) -> bool:
        """At most one request is under way."""
        return self._core.live <= 1

    def is_quick(self) -> bool:
        """At most one request is under way, or what comes comes by the dozen."""
        if self._core.live <= 1:
            return True
        messages = self._core.record.accepts + self._core.record.answers
        reads = self._turn.reads
        dozens = messages - self._messages >= DOZEN * (reads - self._reads)
        self._messages, self._reads = messages, reads
        return dozens
