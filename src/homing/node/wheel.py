"""A timer wheel: any number of deadlines, moved for nothing, one real timer for all of them.

Deadlines fall into ticks; a tick holds its keys, a heap holds the ticks that hold any. Moving a
deadline back, which every sign of life from a peer does, only writes a number down: the key
stays where it is and is put further away when its tick comes. Every key is in one
tick, so the wheel holds no more than was asked for, whatever is set, moved and cancelled.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush

# Deadlines of a messaging node are tens of milliseconds and up; a power of two keeps ticks exact.
TICK = 1 / 128


class Wheel:
    """Deadlines by key. Pure: `advance` is told the time."""

    __slots__ = ("_keys", "_moved", "_ticks", "_where")

    def __init__(self) -> None:
        self._where: dict[Hashable, int] = {}  # the tick a key is in
        self._moved: dict[Hashable, int] = {}  # the later one it goes to when that comes
        self._keys: dict[int, dict[Hashable, None]] = {}
        self._ticks: list[int] = []

    def __len__(self) -> int:
        return len(self._where)

    @property
    def next(self) -> float | None:
        """When `advance` is worth calling next; None: nothing is waited for."""
        ticks = self._ticks
        while ticks and not self._keys[ticks[0]]:
            del self._keys[heappop(ticks)]
        return ticks[0] * TICK if ticks else None

    def set(self, key: Hashable, deadline: float) -> None:
        """Make `key` due at `deadline`; one that is set already is moved."""
        tick = int(deadline / TICK) + 1
        where = self._where.get(key)
        if where is None:
            self._put(key, tick)
        elif tick > where:
            self._moved[key] = tick
        else:
            self._moved.pop(key, None)
            if tick < where:
                del self._keys[where][key]
                self._put(key, tick)

    def cancel(self, key: Hashable) -> None:
        """Forget a key; unknown ones are ignored."""
        where = self._where.pop(key, None)
        if where is not None:
            del self._keys[where][key]
            self._moved.pop(key, None)

    def advance(self, now: float) -> list[Hashable]:
        """Every key whose deadline is here, earliest tick first; they are forgotten."""
        due: list[Hashable] = []
        ticks = self._ticks
        while ticks and ticks[0] * TICK <= now:
            for key in self._keys.pop(heappop(ticks)):
                later = self._moved.pop(key, None)
                if later is None:
                    del self._where[key]
                    due.append(key)
                else:
                    self._put(key, later)
        return due

    def _put(self, key: Hashable, tick: int) -> None:
        self._where[key] = tick
        keys = self._keys.get(tick)
        if keys is None:
            self._keys[tick] = {key: None}
            heappush(self._ticks, tick)
        else:
            keys[key] = None
