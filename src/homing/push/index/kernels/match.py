"""The match kernels: one publication against all blocks, and a batch page by page.

Both see publications as rows of `values`: column ALWAYS holds 0, column NONE holds NaN (no value),
and `column[lane]` says where a lane's value is, NONE for lanes that nobody in the batch has. The
same columns of `codes` hold the values' codes for the block at hand.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

from homing.push.index.kernels.codes import encode
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ABSENT,
    BOUND,
    BOX,
    CANDIDATES,
    DEAD,
    ENTRIES,
    FALSE_CANDIDATES,
    FIRST,
    ID,
    LANE,
    LANE_MASK,
    LIVE_WORDS,
    MATCHES,
    MAX_CUTS,
    NO_RESIDUAL,
    NONE,
    PAGE,
    PAGEAT,
    PAGES,
    PAGES_VISITED,
    PENDING,
    RESIDUAL,
    ROW_WORDS,
    SLOT_BITS,
    SLOTS,
    STRIP,
    STRIP_WORDS,
    STRIPS,
    SUBS,
)

U0, U1, U2, U3, U4, U5, U8, U32, U48 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 5, 8, 32, 48))
LANE_BITS = np.uint64(LANE_MASK)
LOW_HALF, CODE_BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)
ROW_STEP = np.uint64(ROW_WORDS)


@intrinsic
def _pointer(_typing, _address):
    """A pointer from the address kept in the table of blocks."""

    def generate(_context, builder, _signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


@intrinsic
def lowest_bit(_typing, _word):
    """The index of the lowest set bit, as one instruction."""

    def generate(_context, builder, _signature, args):
        return builder.cttz(args[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


@kernel()
def block_at(table, i):
    """Block number i of a table of (address, words) pairs."""
    return carray(_pointer(table[2 * i]), (np.int64(table[2 * i + 1]),), np.uint64)


@kernel()
def probe(block, column, codes, rows, pages, hits, begin, end, entries, events):
    """AND one row per dimension for each (page, publication); the bits that stay are candidates.

    Stops early, before `entries` could overflow; returns the pair to go on with and the count.
    Unsigned indices throughout: signed ones cost a test for negative numbers at every access.
    """
    width = np.uint64(codes.shape[1])
    flat_codes, flat_rows = codes.reshape(-1), rows.reshape(-1)
    bodies = block[PAGE]
    page_at = block[PAGEAT]
    room = entries.size - SLOTS
    count = 0
    for k in range(begin, end):
        if count > room:
            return k, count
        page, event = np.uint64(pages[k]), np.uint64(hits[k])
        at = bodies + block[page_at + page]
        w0, w1, w2, w3 = block[at], block[at + U1], block[at + U2], block[at + U3]
        sizes = block[at + U4]
        d = at + U5
        local = d + (sizes >> U32)
        last = d + (sizes & LOW_HALF)
        row0 = last
        me = event * width
        while d < local:
            descriptor = block[d]
            code = np.uint64(flat_codes[me + np.uint64(column[descriptor & LOW_HALF])])
            row = row0 + U4 * ((code - ((descriptor >> U32) & CODE_BITS)) >> (descriptor >> U48))
            w0 &= block[row]
            w1 &= block[row + U1]
            w2 &= block[row + U2]
            w3 &= block[row + U3]
            row0 += ROW_STEP
            d += U1
        while d < last and (w0 | w1 | w2 | w3) != U0:
            row = row0 + np.uint64(flat_rows[me + np.uint64(column[block[d]])])
            w0 &= block[row]
            w1 &= block[row + U1]
            w2 &= block[row + U2]
            w3 &= block[row + U3]
            row0 += ROW_STEP
            d += U1
        if (w0 | w1 | w2 | w3) == U0:
            continue
        base_entry = np.int64(page) << SLOT_BITS
        for w in range(LIVE_WORDS):
            bits = w0 if w == 0 else w1 if w == 1 else w2 if w == 2 else w3
            while bits != U0:
                entries[count] = base_entry + 64 * w + np.int64(lowest_bit(bits))
                events[count] = event
                count += 1
                bits &= bits - U1
    return end, count


@kernel()
def verify(block, column, values, entries, events, count, found, owners, pending, counters):
    """Hold every candidate against its exact bounds; append the subscribers of those that pass.

    Subscribers with a residual check go to `pending`. Past the end of a buffer matches are only
    counted, so that the caller learns the size to come back with.
    """
    block32 = block.view(np.uint32)
    blockf = block.view(np.float64)
    dead = block.view(np.uint8)
    width = np.uint64(values.shape[1])
    flat = values.reshape(-1)
    first_at, subs_at = U2 * block[FIRST], U2 * block[SUBS]
    residual_at, lane_at = U2 * block[RESIDUAL], U2 * block[LANE]
    bound_at, id_at, dead_at = block[BOUND], block[ID], U8 * block[DEAD]
    matched, postponed = counters[MATCHES], counters[PENDING]
    false = 0
    for k in range(count):
        entry, event = np.uint64(entries[k]), np.uint64(events[k])
        i, end = np.uint64(block32[first_at + entry]), np.uint64(block32[first_at + entry + U1])
        passes = True
        while i < end:
            lane = np.uint64(block32[lane_at + i])
            value = flat[event * width + np.uint64(column[lane & LANE_BITS])]
            low, high = blockf[bound_at + U2 * i], blockf[bound_at + U2 * i + U1]
            # NaN, which stands for no value, fails a bound and passes an exclusion.
            if (low <= value <= high) == (lane > LANE_BITS):
                passes = False
                break
            i += U1
        if not passes:
            false += 1
            continue
        residual = block32[residual_at + entry]
        begin, end = np.uint64(block32[subs_at + entry]), np.uint64(block32[subs_at + entry + U1])
        for p in range(begin, end):
            if dead[dead_at + p]:
                continue
            if residual == NO_RESIDUAL:
                if matched < found.size:
                    found[matched] = block[id_at + p]
                    owners[matched] = event
                matched += 1
            else:
                if postponed < pending.shape[0]:
                    pending[postponed, 0] = event
                    pending[postponed, 1] = residual
                    pending[postponed, 2] = block[id_at + p]
                postponed += 1
    counters[CANDIDATES] += count
    counters[FALSE_CANDIDATES] += false
    counters[MATCHES], counters[PENDING] = matched, postponed


@kernel()
def sort_events(codes, c, order, start):
    """The batch by ascending code in column c: order[start[k]:start[k + 1]] have code k."""
    start[:] = 0
    for event in range(codes.shape[0]):
        code = np.int64(codes[event, c])
        if code != ABSENT:
            start[code + 2] += 1
    for k in range(2, start.size):
        start[k] += start[k - 1]
    for event in range(codes.shape[0]):
        code = np.int64(codes[event, c])
        if code != ABSENT:
            order[start[code + 1]] = event
            start[code + 1] += 1


@kernel()
def finish(
    block,
    column,
    codes,
    rows,
    values,
    pages,
    hits,
    n,
    entries,
    events,
    found,
    owners,
    pending,
    counters,
):
    """Candidates and matches of these n (page, publication) pairs."""
    counters[PAGES_VISITED] += n
    k = 0
    while k < n:
        k, count = probe(block, column, codes, rows, pages, hits, k, n, entries, events)
        verify(block, column, values, entries, events, count, found, owners, pending, counters)


@kernel()
def match_one(
    block,
    column,
    codes,
    rows,
    values,
    pages,
    hits,
    entries,
    events,
    found,
    owners,
    pending,
    counters,
):
    """A single publication against one paged block: the pages whose box holds its codes."""
    block16 = block.view(np.uint16)
    box_at = 4 * np.int64(block[BOX])
    strip = np.int64(block[STRIP])
    n = 0
    for _ in range(np.int64(block[STRIPS])):
        a = np.int64(codes[0, column[np.int64(block[strip])]])
        if np.int64(block[strip + 1]) <= a <= np.int64(block[strip + 2]):
            b = np.int64(codes[0, column[np.int64(block[strip + 3])]])
            for page in range(np.int64(block[strip + 4]), np.int64(block[strip + STRIP_WORDS + 4])):
                if n == pages.size:
                    finish(
                        block,
                        column,
                        codes,
                        rows,
                        values,
                        pages,
                        hits,
                        n,
                        entries,
                        events,
                        found,
                        owners,
                        pending,
                        counters,
                    )
                    n = 0
                box = box_at + 4 * page
                inside = (block16[box] <= a) & (a <= block16[box + 1])
                inside &= (block16[box + 2] <= b) & (b <= block16[box + 3])
                pages[n] = page
                hits[n] = 0
                n += inside
        strip += STRIP_WORDS
    finish(
        block,
        column,
        codes,
        rows,
        values,
        pages,
        hits,
        n,
        entries,
        events,
        found,
        owners,
        pending,
        counters,
    )


@kernel()
def match_many(
    block,
    column,
    codes,
    rows,
    values,
    pages,
    hits,
    entries,
    events,
    found,
    owners,
    pending,
    counters,
):
    """A batch against one paged block: each page is fetched once, for all it concerns."""
    if codes.shape[0] == 1:
        match_one(
            block,
            column,
            codes,
            rows,
            values,
            pages,
            hits,
            entries,
            events,
            found,
            owners,
            pending,
            counters,
        )
        return
    block16 = block.view(np.uint16)
    box_at = 4 * np.int64(block[BOX])
    strip = np.int64(block[STRIP])
    order = np.empty(codes.shape[0], np.int32)
    start = np.empty(MAX_CUTS + 3, np.int64)
    sorted_by = np.int64(-1)
    n = 0
    for _ in range(np.int64(block[STRIPS])):
        a = np.int64(block[strip])
        if a != sorted_by:
            sort_events(codes, column[a], order, start)
            sorted_by = a
        b = column[np.int64(block[strip + 3])]
        for page in range(np.int64(block[strip + 4]), np.int64(block[strip + STRIP_WORDS + 4])):
            if n + codes.shape[0] > pages.size:
                finish(
                    block,
                    column,
                    codes,
                    rows,
                    values,
                    pages,
                    hits,
                    n,
                    entries,
                    events,
                    found,
                    owners,
                    pending,
                    counters,
                )
                n = 0
            box = box_at + 4 * page
            low, high = block16[box + 2], block16[box + 3]
            for i in range(start[np.int64(block16[box])], start[np.int64(block16[box + 1]) + 1]):
                event = order[i]
                code = codes[event, b]
                pages[n] = page
                hits[n] = event
                n += (low <= code) & (code <= high)
        strip += STRIP_WORDS
    finish(
        block,
        column,
        codes,
        rows,
        values,
        pages,
        hits,
        n,
        entries,
        events,
        found,
        owners,
        pending,
        counters,
    )


@kernel()
def scan(block, column, values, entries, events, found, owners, pending, counters):
    """A block without pages: every entry is a candidate for every publication."""
    total = np.int64(block[ENTRIES])
    for event in range(values.shape[0]):
        begin = 0
        while begin < total:
            count = min(total - begin, entries.size)
            for i in range(count):
                entries[i] = begin + i
                events[i] = event
            verify(block, column, values, entries, events, count, found, owners, pending, counters)
            begin += count


@kernel(
    "void(u8[::1],i4[::1],f8[:,::1],u2[:,:,::1],i4[::1],i4[:,::1],u8[::1],i4[::1],u8[:,::1],i8[::1])"
)
def match_blocks(table, lanes, values, coded, column, work, found, owners, pending, counters):
    """Every match of every publication in `values` with every block of the table."""
    counters[:] = 0
    codes, rows = coded[0], coded[1]
    pages, hits, entries, events = work[0], work[1], work[2], work[3]
    for i in range(lanes.size):
        column[lanes[i]] = i + NONE + 1
    for i in range(table.size // 2):
        block = block_at(table, i)
        if block[PAGES] == U0:
            scan(block, column, values, entries, events, found, owners, pending, counters)
            continue
        encode(block, lanes, values, codes, rows)
        match_many(
            block,
            column,
            codes,
            rows,
            values,
            pages,
            hits,
            entries,
            events,
            found,
            owners,
            pending,
            counters,
        )
    for i in range(lanes.size):
        column[lanes[i]] = NONE


@kernel("void(u8[::1],i4[::1],i8,i8[::1],u8[::1])")
def by_publication(found, owners, count, offsets, ids):
    """Matches in the order they were found, sorted by publication: ids[offsets[e]:offsets[e + 1]]."""
    offsets[:] = 0
    for k in range(count):
        offsets[owners[k] + 1] += 1
    for e in range(1, offsets.size):
        offsets[e] += offsets[e - 1]
    for k in range(count):
        e = owners[k]
        ids[offsets[e]] = found[k]
        offsets[e] += 1
    for e in range(offsets.size - 1, 0, -1):
        offsets[e] = offsets[e - 1]
    offsets[0] = 0
