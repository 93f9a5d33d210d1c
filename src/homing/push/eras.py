"""When a matcher took what it owes, in a count that all matchers share. Pure.

Publishers that change matchers leave their publications at several, which owe them to the same connector. With
every publisher that comes an *era* begins: what is taken from then on has a higher number than all that
other matchers have acknowledged, as far as they have told, and so than what this publisher left with them.
Whoever owes something of a lower number goes first (homing.push.precedence). Numbers of one matcher never
fall from one era to the next, so somebody always has the lowest and can go.

What others tell may be slower than the publisher. Then the eras that began lately are raised; not one of which we
have told ourselves, since others may have begun theirs behind it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

LAST: Final = 0xFFFF_FFFF
"""What the wire holds; beyond it eras are one and the same. A publisher that comes each millisecond needs 49 days."""
MAX_RECENT: Final = 65_536
"""Begun within what a rumour may take: more publishers than can come in that time."""


class Era:
    """From one publisher's coming to the next one's."""

    __slots__ = ("begun", "number", "place")

    def __init__(self, number: int, place: int, begun: float) -> None:
        self.number = number
        self.place = place  # among our own
        self.begun = begun


class Eras:
    """Our own, and the highest number of the others'."""

    def __init__(self) -> None:
        self.current = Era(0, 0, 0.0)
        self.newest = 0  # the highest number of our own that was told
        self._told = 0  # the last that was told, by its place
        self._heard = -1
        self._recent: deque[Era] = deque(maxlen=MAX_RECENT)

    def begin(self, now: float) -> None:
        """A publisher has come."""
        before = self.current
        number = min(max(before.number, self._heard + 1), LAST)
        self.current = Era(number, before.place + 1, now)
        self._recent.append(self.current)

    def resume(self, number: int) -> None:
        """An earlier life took what comes next in an era with this number."""
        if number > self.current.number:
            self.current = Era(number, self.current.place + 1, -math.inf)

    def tell(self, era: Era) -> bool:
        """Something of it is acknowledged and owed: whether others must hear of its number first."""
        self._told = max(era.place, self._told)
        risen = era.number > self.newest
        self.newest = max(era.number, self.newest)
        return risen

    def heard(self, newest: int, since: float) -> bool:
        """What another told; whether eras that began `since` then have a higher number now."""
        self._heard = max(newest, self._heard)
        recent = self._recent
        while recent and (recent[0].place <= self._told or recent[0].begun <= since):
            recent.popleft()
        raised = bool(recent) and recent[0].number <= newest
        for era in recent if raised else ():
            era.number = min(max(era.number, newest + 1), LAST)
        return raised
