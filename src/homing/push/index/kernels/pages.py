"""Filling pages: rows, records and sketches, as in layout.py."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.codes import shift_for, span_of
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ASK,
    BUCKETS,
    EVERY,
    FLAG,
    HEAD,
    LINE,
    NO_RESIDUAL,
    PLAIN,
    RECORD_LANES,
    ROW_WORDS,
    ROWS,
    SKETCH,
    SKETCHED,
    SLOTS,
    TERRACES,
    UNBOUNDED,
)


@kernel()
def span_codes(mine, first, lane, bound, cutstart, cuts, wanted, low, high, records, d):
    """Every slot's codes on one lane, kept in its record; low -1: it does not look at the lane."""
    start, end = np.int64(cutstart[wanted]), np.int64(cutstart[wanted + 1])
    for slot in range(mine.size):
        low[slot] = -1
        e = mine[slot]
        for i in range(np.int64(first[e]), np.int64(first[e + 1])):
            if lane[i] == wanted:
                low[slot], high[slot] = span_of(cuts, start, end, bound[2 * i], bound[2 * i + 1])
                at = 2 * RECORD_LANES * slot
                # What is not below a low bound that is a cut itself is inside for certain, and
                # so is everything on the open side of a bound.
                cut = bound[2 * i] == -np.inf
                cut |= low[slot] > 0 and cuts[start + low[slot] - 1] == bound[2 * i]
                records[at + d] = low[slot] + 1 - cut
                records[at + RECORD_LANES + d] = high[slot] + 1 + (bound[2 * i + 1] == np.inf)
                records[at + FLAG] += 1
                break


@kernel()
def blank_records(records):
    """Records that let everything pass; FLAG will count the bounds that are kept."""
    for at in range(0, records.size, 2 * RECORD_LANES):
        for d in range(RECORD_LANES):
            records[at + d] = 0
            records[at + RECORD_LANES + d] = UNBOUNDED


@kernel()
def finish_records(mine, first, residual, subs, ids, records):
    """Each record's flag and id, once FLAG has counted the bounds that it holds."""
    words = records.view(np.uint32)
    for slot in range(mine.size):
        e = mine[slot]
        at = 2 * RECORD_LANES * slot
        plain = records[at + FLAG] == first[e + 1] - first[e]
        plain &= residual[e] == NO_RESIDUAL and subs[e + 1] - subs[e] == 1
        records[at + FLAG] = PLAIN if plain else ASK
        identity = ids[subs[e]]
        words[(at + FLAG + 1) >> 1] = identity & np.uint64(0xFFFFFFFF)
        words[(at + RECORD_LANES + FLAG + 1) >> 1] = identity >> np.uint64(32)


@kernel()
def fill_rows(pages, rows, low, high, base, shift, count):
    """The 33 rows of one dimension."""
    for begin in range(0, count, 64):
        word = rows + (begin >> 6)
        everywhere = np.uint64(0)
        for slot in range(begin, min(begin + 64, count)):
            bit = np.uint64(1) << np.uint64(slot & 63)
            if low[slot] < 0:
                everywhere |= bit
            else:
                for r in range((low[slot] - base) >> shift, ((high[slot] - base) >> shift) + 1):
                    pages[word + r * LINE] |= bit
        for r in range(ROWS):
            pages[word + r * LINE] |= everywhere


@kernel()
def narrowest(records, at, tops, taken):
    """The dimension with the narrowest bounds of a record, but for those taken; -1: there is none."""
    best, least = -1, UNBOUNDED
    for d in range(tops.size):
        low, high = np.int64(records[at + d]), np.int64(records[at + RECORD_LANES + d])
        bounded = low > 0 or high < UNBOUNDED
        if bounded and not taken >> d & 1 and min(high, tops[d] + 1) - low < least:
            best, least = d, min(high, tops[d] + 1) - low
    return best


@kernel()
def fill_sketches(pages, at, records, dimensions, access, cutstart):
    """Each record's narrowest dimensions but lane `access`, whose codes are there already.

    Whatever its record may let pass, a sketch lets pass.
    """
    tops = np.empty(dimensions.size, np.int64)
    on_access = 0
    for d in range(dimensions.size):
        lane = dimensions[d]
        tops[d] = np.int64(cutstart[lane + 1]) - np.int64(cutstart[lane])
        on_access |= (lane == access) << d
    sketches = pages[at:].view(np.uint16)
    for slot in range(records.size // (2 * RECORD_LANES)):
        record, sketch = 2 * RECORD_LANES * slot, 4 * SKETCH * slot
        taken = on_access
        for k in range(1, SKETCHED + 1):
            d = narrowest(records, record, tops, taken)
            low, high = 0, 1
            if d < 0:
                d = EVERY
            else:
                taken |= 1 << d
                shift = shift_for(tops[d], TERRACES)
                low = max(np.int64(records[record + d]) - 1, 0) >> shift
                high = min(np.int64(records[record + RECORD_LANES + d]) - 1, tops[d]) >> shift
                high += 1
            sketches[sketch + 2 * k] = d * (TERRACES + 1) + low
            sketches[sketch + 2 * k + 1] = d * (TERRACES + 1) + high


@kernel(
    "void(u8[::1],i8[::1],u4[::1],u4[::1],u4[::1],u4[::1],f8[::1],u8[::1],"
    "u4[::1],f8[::1],u2[:,::1],i4[:,::1],i4[:,::1],i4[::1],i8[::1])"
)
def fill_pages(
    pages,
    entries,
    first,
    subs,
    residual,
    lane,
    bound,
    ids,
    cutstart,
    cuts,
    boxes,
    access,
    dimensions,
    counts,
    sizes,
):
    """Write every page's body: live bits, dimensions, rows, records, sketches.

    The access lanes have buckets of their own, as fine as the page's box allows.
    """
    low = np.zeros(SLOTS, np.int64)
    high = np.zeros(SLOTS, np.int64)
    at = 0
    for page in range(counts.size):
        mine = entries[page * SLOTS : page * SLOTS + sizes[page]]
        for slot in range(mine.size):
            pages[at + (slot >> 6)] |= np.uint64(1) << np.uint64(slot & 63)
        pages[at + LINE] = counts[page] | mine.size << 32
        about = at + LINE + 1
        rows = at + LINE + HEAD
        records_at = rows + ROW_WORDS * counts[page]
        sketches_at = records_at + LINE * mine.size
        records = pages[records_at:sketches_at].view(np.uint16)
        blank_records(records)
        for d in range(counts[page]):
            wanted = dimensions[page, d]
            span_codes(mine, first, lane, bound, cutstart, cuts, wanted, low, high, records, d)
            base = np.int64(0)
            top = np.int64(cutstart[wanted + 1]) - np.int64(cutstart[wanted])
            if wanted == access[page, 0] or wanted == access[page, 1]:
                side = 0 if wanted == access[page, 0] else 2
                base, top = np.int64(boxes[page, side]), np.int64(boxes[page, side + 1])
            if wanted == access[page, 0]:
                for slot in range(mine.size):
                    pages[sketches_at + SKETCH * slot] = low[slot] | high[slot] << 16
            shift = shift_for(top - base, BUCKETS)
            fill_rows(pages, rows, low, high, base, shift, mine.size)
            pages[about + d] = wanted | base << 32 | shift << 48
            rows += ROW_WORDS
        finish_records(mine, first, residual, subs, ids, records)
        kept = dimensions[page, : counts[page]]
        fill_sketches(pages, sketches_at, records, kept, access[page, 0], cutstart)
        at = sketches_at + SKETCH * mine.size + -SKETCH * mine.size % LINE
