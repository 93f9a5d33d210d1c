"""Codes: where a value falls between a lane's cuts, and which row of a page that means."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ABSENT,
    ALWAYS,
    CUT,
    CUTSTART,
    LANES,
    NONE,
)

U0, U1, U_ABSENT = np.uint64(0), np.uint64(1), np.uint64(ABSENT)


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
def span_of(cuts, start, end, low, high):
    """The codes of two values, searched for together: neither waits for the other's memory."""
    count = end - start
    if count == 0:
        return 0, 0
    a = b = start
    while count > 1:
        half = count >> 1
        a = a + half if cuts[a + half] <= low else a
        b = b + half if cuts[b + half] <= high else b
        count -= half
    return a - start + (1 if cuts[a] <= low else 0), b - start + (1 if cuts[b] <= high else 0)


@kernel()
def codes_of(cuts, values, codes):
    """The code of each value, all searched for step by step: none waits for another's memory."""
    codes[:] = 0
    count = np.uint64(cuts.size)
    while count > np.uint64(0):
        half = (count + np.uint64(1)) >> np.uint64(1)
        for i in range(values.size):
            at = np.uint64(codes[i])
            codes[i] = at + half * np.uint64(cuts[at + half - np.uint64(1)] <= values[i])
        count -= half


@kernel()
def shift_for(top, buckets):
    """How far to shift codes 0..top so that they fit so many buckets."""
    shift = 0
    while top >> shift >= buckets:
        shift += 1
    return shift


@kernel()
def encode(block, lanes, values, codes):
    """The codes of all values in the block's cuts."""
    block32 = block.view(np.uint32)
    blockf = block.view(np.float64)
    cutstart = 2 * np.int64(block[CUTSTART])
    cuts = np.int64(block[CUT])
    known = np.int64(block[LANES])
    mine, found = np.empty(values.shape[0]), np.empty(values.shape[0], np.uint64)
    for event in range(values.shape[0]):
        codes[event, ALWAYS] = 0
        codes[event, NONE] = ABSENT
    for i in range(lanes.size):
        lane = np.int64(lanes[i])
        c = i + NONE + 1
        if lane < known:
            start = cuts + np.int64(block32[cutstart + lane])
            end = cuts + np.int64(block32[cutstart + lane + 1])
            for event in range(values.shape[0]):
                mine[event] = values[event, c]
            codes_of(blockf[start:end], mine, found)
            for event in range(values.shape[0]):
                absent = mine[event] != mine[event]
                codes[event, c] = ABSENT if absent else found[event]
        else:
            for event in range(values.shape[0]):
                codes[event, c] = ABSENT


@kernel()
def encode_one(block, lanes, values, codes):
    """The same for a single publication: its lanes, instead of many values, are searched step by step."""
    block32 = block.view(np.uint32)
    cutstart = np.uint64(2) * block[CUTSTART]
    cuts = block[int(block[CUT]) :].view(np.float64)
    known = np.int64(block[LANES])
    codes[0, ALWAYS], codes[0, NONE] = 0, ABSENT
    flat = values.reshape(-1)[NONE + 1 :]
    count = np.uint64(lanes.size)
    # Where each lane's search has come to, and how many cuts it still has to do with.
    at, left = np.empty(count, np.uint64), np.empty(count, np.uint64)
    most = U0
    for i in range(count):
        at[i] = left[i] = U0
        if lanes[i] < known:
            place = cutstart + np.uint64(lanes[i])
            at[i] = np.uint64(block32[place])
            left[i] = np.uint64(block32[place + U1]) - at[i]
            most = max(most, left[i])
    while most > U0:
        for i in range(count):
            if left[i] > U0:
                half = (left[i] + U1) >> U1
                left[i] -= half
                at[i] += half * np.uint64(cuts[at[i] + half - U1] <= flat[i])
        most -= (most + U1) >> U1
    for i in range(count):
        code = U_ABSENT
        # NaN is no value, and a lane that came after this block is none of its.
        if lanes[i] < known and flat[i] == flat[i]:
            code = at[i] - np.uint64(block32[cutstart + np.uint64(lanes[i])])
        codes[0, np.int64(i) + NONE + 1] = code
