"""Tail: the block that takes new subscriptions, filled in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

import numpy as np

from homing.push.index.blocks import Words, aligned, dead_of, ids_of
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Box

# Entries are scanned one by one until they are paged: 512 cost a publication about a microsecond.
ENTRIES = 512
# Room for the bounds of 512 ordinary subscriptions; one that needs more gets a tail of its own.
BOUNDS = 4096
# Tails kept ready, 130 kB each: what a busy writer fills while a merge is at one of its steps.
SPARES = 16

_ENTRIES, _SUBSCRIBERS = at.ENTRIES, at.SUBSCRIBERS


def _packer(size: int) -> Callable[..., None]:
    """What writes bounds of together `size` numbers."""
    return Struct("=" + "Qdd" * (size // 3)).pack_into


_MANY = 48
_PACK_BOUNDS = tuple(_packer(size) for size in range(_MANY))
_pack_entry = Struct("=6I").pack_into


class Tail:
    """A block without pages, written by the one writer.

    Readers may look at it at any time: an entry is complete before ENTRIES counts it.
    """

    def __init__(
        self, entries: int = ENTRIES, bounds: int = BOUNDS, words: Words | None = None
    ) -> None:
        self.words = _empty_block(entries, bounds) if words is None else words
        self._room = entries
        self._bound_room = bounds
        self._used = 0
        self._bounds_used = 0
        # memoryviews: they take a number twice as fast as an array does.
        self._words = memoryview(self.words.data)
        self._octets = memoryview(self.words.view(np.uint8).data)
        self._entry_at = 8 * int(self.words[at.ENTRY])
        self._bound_at = 8 * int(self.words[at.BOUND])
        self._id_at = int(self.words[at.ID])
        self._dead_at = 8 * int(self.words[at.DEAD])

    @classmethod
    def of(cls, words: Words) -> Tail:
        """A tail that was kept in a file; it takes nothing new."""
        tail = cls(0, 0, words)
        tail._used = int(words[at.ENTRIES])
        return tail

    def living(self) -> dict[int, int]:
        """The subscriptions that are here, and the first entry of each."""
        alive = np.flatnonzero(dead_of(self.words) == 0)
        ids = ids_of(self.words)[alive]
        # From the last to the first: what is set last stays.
        return dict(zip(ids.tolist()[::-1], alive.tolist()[::-1], strict=True))

    def __len__(self) -> int:
        return self._used

    def append(self, subscription: int, boxes: Sequence[Box]) -> int:
        """Add a subscription's boxes and tell the first one's entry; -1: there is no room for them."""
        entry, used, words, octets = self._used, self._bounds_used, self._words, self._octets
        if entry + len(boxes) > self._room:
            return -1
        first = entry
        for bounds, residual in boxes:
            size = len(bounds)
            end = used + size // 3
            if end > self._bound_room:
                return -1  # what is not counted is not there
            pack = _PACK_BOUNDS[size] if size < _MANY else _packer(size)
            pack(octets, self._bound_at + 24 * used, *bounds)
            words[self._id_at + entry] = subscription
            # The entry, and behind it the beginning of the next, which is its end.
            _pack_entry(
                octets, self._entry_at + 16 * entry, used, entry, residual, 0, end, entry + 1
            )
            used = end
            entry += 1
        self._used = entry
        self._bounds_used = used
        words[_SUBSCRIBERS] = entry
        words[_ENTRIES] = entry
        return first

    def remove(self, subscription: int, entry: int) -> None:
        """Kill the boxes of a subscription, which are all that follow its first entry."""
        words, ids, end = self._words, self._id_at, self._used
        while entry < end and words[ids + entry] == subscription:
            self._octets[self._dead_at + entry] = 1
            entry += 1


class Spares:
    """Tails made ahead by whoever has the time: a third of a millisecond that no writer waits for."""

    def __init__(self) -> None:
        self._ready: list[Tail] = []

    def refill(self) -> None:
        """Make one if some are missing; others may want the interpreter before the next."""
        if len(self._ready) < SPARES:
            self._ready.append(Tail())

    def take(self, entries: int, bounds: int) -> Tail:
        """An empty tail with room for at least this much."""
        if self._ready and entries <= ENTRIES and bounds <= BOUNDS:
            return self._ready.pop()
        return Tail(max(entries, ENTRIES), max(bounds, BOUNDS))


def bounds_in(boxes: Sequence[Box]) -> int:
    """How many bounds these boxes have together."""
    if len(boxes) == 1:  # as nearly always
        return len(boxes[0][0]) // 3
    return sum(len(bounds) for bounds, _ in boxes) // 3


def _empty_block(entries: int, bounds: int) -> Words:
    sizes = (
        (at.ENTRY, 2 * (entries + 1)),
        (at.BOUND, 3 * bounds),
        (at.ID, entries),
        (at.DEAD, -(-entries // 8)),
    )
    words = aligned(at.HEADER + sum(size for _, size in sizes))
    offset = at.HEADER
    for section, size in sizes:
        words[section] = offset
        offset += size
    words[at.MAGIC] = at.VERSION
    words[at.WORDS] = words.size
    return words
