"""How long to wait before trying again: doubling pauses with full jitter."""

from __future__ import annotations

from collections.abc import Callable

# The first retry soon enough that a restarted peer is hardly missed.
FIRST = 0.05
# Back within seconds of a peer's return, while a thousand who wait do not come all at once.
LAST = 5.0


class Backoff:
    """Pauses that double from `first` to `last`; each is cut by a random share of up to half."""

    __slots__ = ("_first", "_last", "_next", "_random")

    def __init__(
        self, random: Callable[[], float], first: float = FIRST, last: float = LAST
    ) -> None:
        """`random` gives numbers in [0, 1)."""
        self._random = random
        self._first = first
        self._last = last
        self._next = first

    def pause(self) -> float:
        """Seconds to wait before the next try."""
        pause = self._next * (1.0 - self._random() / 2)
        self._next = min(self._next * 2, self._last)
        return pause

    def reset(self) -> None:
        """It worked: the next trouble starts from the shortest pause."""
        self._next = self._first
