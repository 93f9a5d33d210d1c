"""When a matcher took what it owes, in a count that all matchers share. Pure.

Publishers that change matchers leave their publications at several, which owe them to the same connector. With
every publisher that comes an *era* begins: what is taken from then on has a higher number than all that
other matchers have acknowledged though it is owed, and so than what this publisher left with them. For they tell
the number before they acknowledge, and wait until all have heard it (homing.push.hearing).
Whoever owes something of a lower number goes first (homing.push.precedence). Numbers of one matcher never
fall from one era to the next, so somebody always has the lowest and can go.
"""

from __future__ import annotations

from typing import Final

LAST: Final = 0xFFFF_FFFF
"""What the wire holds; beyond it eras are one and the same. A publisher that comes each millisecond needs 49 days."""


class Era:
    """From one publisher's coming to the next one's."""

    __slots__ = ("number", "place")

    def __init__(self, number: int, place: int) -> None:
        self.number = number
        self.place = place  # among our own


class Eras:
    """Our own, and the highest number of the others'."""

    def __init__(self) -> None:
        self.current = Era(0, 0)
        self.newest = 0  # the highest number of our own that was told
        self.known = -1  # the highest of the others'

    def begin(self) -> None:
        """A publisher has come."""
        before = self.current
        self.current = Era(min(max(before.number, self.known + 1), LAST), before.place + 1)

    def resume(self, number: int) -> None:
        """An earlier life took what comes next in an era with this number."""
        if number > self.current.number:
            self.current = Era(number, self.current.place + 1)

    def tell(self, era: Era) -> bool:
        """Something of it is acknowledged and owed: whether others must hear of its number first."""
        risen = era.number > self.newest
        self.newest = max(era.number, self.newest)
        return risen

    def heard(self, newest: int) -> bool:
        """What another told; whether that is news."""
        risen = newest > self.known
        self.known = max(newest, self.known)
        return risen
