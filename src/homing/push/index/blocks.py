"""Blocks seen by numpy: their sections as arrays, and a match without kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from homing.push.index.kernels import layout as at

Words = npt.NDArray[np.uint64]


def aligned(count: int) -> Words:
    """Zeroed words that start on a cache line."""
    spare = np.empty(count + at.LINE, np.uint64)
    begin = -(spare.ctypes.data // 8) % at.LINE
    words = spare[begin : begin + count]
    # Writing, where numpy.zeros would not, lets the system hand out huge pages at once.
    words.fill(0)
    return words


def table_of(blocks: Sequence[Words]) -> Words:
    """The address and the size of each block, one after the other: how kernels are given many."""
    pairs = [number for block in blocks for number in (block.ctypes.data, block.size)]
    return np.array(pairs, np.uint64)


def section32(words: Words, section: int, count: int) -> npt.NDArray[np.uint32]:
    """A section of 32-bit numbers."""
    begin = 2 * int(words[section])
    return words.view(np.uint32)[begin : begin + count]


def entries_of(words: Words) -> npt.NDArray[np.uint32]:
    """A row for each entry and one more: first bound, first subscriber, residual check, 0."""
    return section32(words, at.ENTRY, 4 * int(words[at.ENTRIES]) + 4).reshape(-1, 4)


def bounds_of(words: Words) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
    """The lane of each bound, and its (low, high)."""
    count = int(entries_of(words)[-1, 0])
    begin = int(words[at.BOUND])
    rows = words[begin : begin + 3 * count].reshape(-1, 3)
    return rows[:, 0], rows.view(np.float64)[:, 1:]


def ids_of(words: Words) -> npt.NDArray[np.uint64]:
    """The subscription id at each subscriber position."""
    begin = int(words[at.ID])
    return words[begin : begin + int(words[at.SUBSCRIBERS])]


def dead_of(words: Words) -> npt.NDArray[np.uint8]:
    """The dead flag at each subscriber position; writing to it kills."""
    begin = 8 * int(words[at.DEAD])
    return words.view(np.uint8)[begin : begin + int(words[at.SUBSCRIBERS])]


def bury(words: Words, positions: npt.NDArray[np.int64]) -> None:
    """Kill the subscribers at these positions, as the kernel of the same name does."""
    dead_of(words)[positions] = 1
    words[at.DEADCOUNT] += np.uint64(positions.size)
    flags, kinds = _flags(words, positions), words.view(np.uint16)
    kinds[flags[kinds[flags] == at.PLAIN]] = at.GONE


def revive(words: Words) -> None:
    """Make the records agree with the dead flags, where they know of later deaths than those."""
    positions = np.flatnonzero(dead_of(words) == 0)
    flags, kinds = _flags(words, positions), words.view(np.uint16)
    kinds[flags[kinds[flags] == at.GONE]] = at.PLAIN


def _flags(words: Words, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Where the records of these subscribers' entries have their flags, in 16-bit numbers."""
    entry = np.searchsorted(entries_of(words)[:, 1], positions, side="right") - 1
    page = words[int(words[at.PAGEAT]) :][entry >> at.SLOT_BITS] + words[at.PAGE]
    dimensions = words[page + np.uint64(at.LINE)] & np.uint64(0xFFFFFFFF)
    records = page + np.uint64(at.LINE + at.HEAD) + dimensions * np.uint64(at.ROW_WORDS)
    slot = (entry & (at.SLOTS - 1)).astype(np.uint64)
    flags: npt.NDArray[np.uint64] = records + slot * np.uint64(at.LINE)
    return flags * np.uint64(4) + np.uint64(at.FLAG)


def expanded(begin: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The element numbers begin[i] … begin[i] + counts[i] - 1, row after row."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    numbers: npt.NDArray[np.int64] = np.arange(total) + np.repeat(begin - (ends - counts), counts)
    return numbers


def scan(
    words: Words, values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """The ids in one block that a publication satisfies, and their residual checks.

    `values[lane]` is the publication's value on a lane, NaN for none. What answers while the
    kernels are not there yet; it looks at every bound of the block.
    """
    entry = entries_of(words)
    first = entry[:, 0].astype(np.int64)
    real = np.flatnonzero(first[1:] > first[:-1])
    if real.size == 0:
        return np.empty(0, np.uint64), np.empty(0, np.uint32)
    lane, bound = bounds_of(words)
    value = values[lane & np.uint64(at.LANE_MASK)]
    inside = (bound[:, 0] <= value) & (value <= bound[:, 1])
    passes = inside != (lane >= at.EXCLUDE)
    matched = real[np.logical_and.reduceat(passes, first[real])]
    begin = entry[matched, 1].astype(np.int64)
    counts = entry[matched + 1, 1].astype(np.int64) - begin
    position = expanded(begin, counts)
    alive = dead_of(words)[position] == 0
    residual = np.repeat(entry[matched, 2], counts)
    return ids_of(words)[position[alive]], residual[alive]
