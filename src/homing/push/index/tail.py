"""Tail: the block that takes new subscriptions, and how any block is read without kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Piece

Words = npt.NDArray[np.uint64]

# Entries are scanned one by one until they are paged: 512 cost a publication about a microsecond.
ENTRIES = 512
# Room for the bounds of 512 ordinary subscriptions; one that needs more gets a tail of its own.
BOUNDS = 4096

_SECTIONS = (
    (at.FIRST, 4, 1),
    (at.SUBS, 4, 1),
    (at.RESIDUAL, 4, 0),
    (at.ID, 8, 0),
    (at.DEAD, 1, 0),
)


class Tail:
    """A block without pages, filled in place by the one writer.

    Readers may look at it at any time: an entry is complete before ENTRIES counts it.
    """

    def __init__(self, entries: int = ENTRIES, bounds: int = BOUNDS) -> None:
        self.words = _empty_block(entries, bounds)
        self.positions: dict[int, tuple[int, int]] = {}
        self._room = entries
        self._bound_room = bounds
        self._used = 0
        self._bounds_used = 0
        # memoryviews: they take a number three times as fast as an array does.
        self._first = memoryview(section32(self.words, at.FIRST, entries + 1).data)
        self._residual = memoryview(section32(self.words, at.RESIDUAL, entries).data)
        self._lane = memoryview(section32(self.words, at.LANE, bounds).data)
        begin = int(self.words[at.BOUND])
        self._bound = memoryview(self.words.view(np.float64)[begin : begin + 2 * bounds].data)
        begin = int(self.words[at.ID])
        self._id = memoryview(self.words[begin : begin + entries].data)
        begin = 8 * int(self.words[at.DEAD])
        self._dead = memoryview(self.words.view(np.uint8)[begin : begin + entries].data)

    def __len__(self) -> int:
        return self._used

    def fits(self, boxes: Sequence[tuple[Piece, int]]) -> bool:
        """Whether these boxes still have room."""
        if self._used + len(boxes) > self._room:
            return False
        return self._bounds_used + sum(len(piece) for piece, _ in boxes) <= self._bound_room

    def append(self, subscription: int, boxes: Sequence[tuple[Piece, int]]) -> None:
        """Add a subscription's boxes; the caller made sure that they fit."""
        entry, used = self._used, self._bounds_used
        lane: memoryview[int] = self._lane
        bound: memoryview[float] = self._bound  # type: ignore[assignment]
        for piece, residual in boxes:
            for number, low, high in piece:
                lane[used] = number
                bound[2 * used] = low
                bound[2 * used + 1] = high
                used += 1
            self._residual[entry] = residual
            self._id[entry] = subscription
            entry += 1
            self._first[entry] = used
        self.positions[subscription] = (self._used, entry)
        self._used, self._bounds_used = entry, used
        self.words[at.ENTRIES] = self.words[at.SUBSCRIBERS] = entry

    def remove(self, subscription: int) -> bool:
        """Whether it was here; its boxes are dead now."""
        position = self.positions.pop(subscription, None)
        if position is None:
            return False
        for entry in range(*position):
            self._dead[entry] = 1
        return True


def _empty_block(entries: int, bounds: int) -> Words:
    sizes = [(section, size * (entries + extra)) for section, size, extra in _SECTIONS]
    sizes += [(at.LANE, 4 * bounds), (at.BOUND, 16 * bounds)]
    words = np.zeros(at.HEADER + sum(-(-octets // 8) for _, octets in sizes), np.uint64)
    offset = at.HEADER
    for section, octets in sizes:
        words[section] = offset
        offset += -(-octets // 8)
    words[at.MAGIC] = at.VERSION
    words[at.WORDS] = words.size
    section32(words, at.SUBS, entries + 1)[:] = np.arange(entries + 1)
    return words


def section32(words: Words, section: int, count: int) -> npt.NDArray[np.uint32]:
    """A section of 32-bit numbers."""
    begin = 2 * int(words[section])
    return words.view(np.uint32)[begin : begin + count]


def ids_of(words: Words) -> npt.NDArray[np.uint64]:
    """The subscription id at each subscriber position."""
    begin = int(words[at.ID])
    return words[begin : begin + int(words[at.SUBSCRIBERS])]


def dead_of(words: Words) -> npt.NDArray[np.uint8]:
    """The dead flag at each subscriber position; writing to it kills."""
    begin = 8 * int(words[at.DEAD])
    return words.view(np.uint8)[begin : begin + int(words[at.SUBSCRIBERS])]


def scan(
    words: Words, values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """The ids in one block that a publication satisfies, and their residual checks, by numpy.

    `values[lane]` is the publication's value on a lane, NaN for none. What answers while the
    kernels are not there yet; it looks at every bound of the block.
    """
    entries = int(words[at.ENTRIES])
    first = section32(words, at.FIRST, entries + 1).astype(np.int64)
    count = int(first[-1])
    lane = section32(words, at.LANE, count)
    begin = int(words[at.BOUND])
    bound = words.view(np.float64)[begin : begin + 2 * count].reshape(-1, 2)
    value = values[lane & at.LANE_MASK]
    inside = (bound[:, 0] <= value) & (value <= bound[:, 1])
    passes = inside != (lane >= at.EXCLUDE)
    real = np.flatnonzero(np.diff(first))
    if real.size == 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint32)
    matched = real[np.logical_and.reduceat(passes, first[real])]
    subs = section32(words, at.SUBS, entries + 1).astype(np.int64)
    counts = subs[matched + 1] - subs[matched]
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    position = np.arange(total) + np.repeat(subs[matched] - (ends - counts), counts)
    alive = dead_of(words)[position] == 0
    residual = np.repeat(section32(words, at.RESIDUAL, entries)[matched], counts)
    return ids_of(words)[position[alive]], residual[alive]
