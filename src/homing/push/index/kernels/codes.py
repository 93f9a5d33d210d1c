"""Codes: where a value falls between a lane's cuts, and which row of a page that means."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ABSENT,
    ABSENT_ROW,
    ALWAYS,
    BUCKETS,
    CUT,
    CUTSTART,
    LANES,
    LINE,
    NONE,
)


@kernel()
def code_of(cuts, start, end, value):
    """How many of cuts[start:end] are at or below the value; a binary search without branches."""
    count = end - start
    if count == 0:
        return 0
    at = start
    while count > 1:
        half = count >> 1
        at = at + half if cuts[at + half] <= value else at
        count -= half
    return at - start + (1 if cuts[at] <= value else 0)


@kernel()
def bucket_shift(top):
    """How far to shift codes 0..top so that they fit the buckets of a page."""
    shift = 0
    while top >> shift >= BUCKETS:
        shift += 1
    return shift


@kernel()
def encode(block, lanes, values, codes, rows):
    """The codes of all values in the block's cuts, and the row offsets they have in common rows."""
    block32 = block.view(np.uint32)
    blockf = block.view(np.float64)
    cutstart = 2 * np.int64(block[CUTSTART])
    cuts = np.int64(block[CUT])
    known = np.int64(block[LANES])
    for event in range(values.shape[0]):
        codes[event, ALWAYS] = 0
        codes[event, NONE] = ABSENT
        rows[event, ALWAYS] = 0
        rows[event, NONE] = ABSENT_ROW
    for i in range(lanes.size):
        lane = np.int64(lanes[i])
        c = i + NONE + 1
        if lane < known:
            start = cuts + np.int64(block32[cutstart + lane])
            end = cuts + np.int64(block32[cutstart + lane + 1])
            shift = bucket_shift(end - start)
            for event in range(values.shape[0]):
                value = values[event, c]
                code = code_of(blockf, start, end, value)
                absent = value != value
                codes[event, c] = ABSENT if absent else code
                rows[event, c] = ABSENT_ROW if absent else (code >> shift) * LINE
        else:
            for event in range(values.shape[0]):
                codes[event, c] = ABSENT
                rows[event, c] = ABSENT_ROW
