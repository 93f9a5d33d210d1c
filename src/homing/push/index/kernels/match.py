"""The match kernels: one publication against all blocks, and a batch page by page.

Both see publications as rows of `values`: column ALWAYS holds 0, column NONE holds NaN (no value),
and `column[lane]` says where a lane's value is, NONE for lanes that nobody in the batch has. The
same columns of `codes` hold the values' codes for the block at hand.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.codes import encode
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ABSENT,
    BOUND,
    BOX,
    CANDIDATES,
    DEAD,
    ENTRIES,
    ENTRY,
    FALSE_CANDIDATES,
    HEAD,
    ID,
    LANE_MASK,
    LINE,
    MATCHES,
    MAX_CUTS,
    MAX_DIMENSIONS,
    NO_RESIDUAL,
    NONE,
    PAGE,
    PAGEAT,
    PAGES,
    PAGES_VISITED,
    PENDING,
    ROW_WORDS,
    SLOT_BITS,
    SLOTS,
    STRIP,
    STRIP_WORDS,
    STRIPS,
)
from homing.push.index.kernels.machine import and_lines, block_at, fetch, lowest_bit

U0, U1, U2, U3, U4, U5, U8, U32, U48 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 5, 8, 32, 48))
U_LINE, U_HEAD, U_ROWS = np.uint64(LINE), np.uint64(HEAD), np.uint64(ROW_WORDS)
LOW_HALF, CODE_BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)
LANE_BITS = np.uint64(LANE_MASK)
# (page, publication) pairs whose rows are asked for together, and candidates whose bounds are.
AHEAD = 16
STRIDE = 2 + MAX_DIMENSIONS
U_STRIDE = np.uint64(STRIDE)


@kernel()
def aim(block, column, codes, rows, pages, hits, begin, end, lines):
    """The cache lines that each (page, publication) will AND, all of them asked for already.

    lines[STRIDE * j] is the number of lines of pair j, which follow. Unsigned indices: signed ones
    cost a test for negative numbers at every access.
    """
    width = np.uint64(codes.shape[1])
    flat_codes, flat_rows = codes.reshape(-1), rows.reshape(-1)
    mine = U0
    for k in range(begin, end):
        me = np.uint64(hits[k]) * width
        at = block[PAGE] + block[block[PAGEAT] + np.uint64(pages[k])]
        sizes = block[at + U_LINE]
        local, last = mine + U2 + (sizes >> U32), mine + U2 + (sizes & LOW_HALF)
        lines[mine] = last
        lines[mine + U1] = at
        row = at + U_LINE + U_HEAD
        about = at + U_LINE + U1
        d = mine + U2
        while d < local:
            lane = block[about]
            code = np.uint64(flat_codes[me + np.uint64(column[lane & LOW_HALF])])
            line = row + U_LINE * ((code - ((lane >> U32) & CODE_BITS)) >> (lane >> U48))
            fetch(block, line)
            lines[d] = line
            row, about, d = row + U_ROWS, about + U1, d + U1
        while d < last:
            line = row + np.uint64(flat_rows[me + np.uint64(column[block[about]])])
            fetch(block, line)
            lines[d] = line
            row, about, d = row + U_ROWS, about + U1, d + U1
        mine += U_STRIDE


@kernel()
def probe(block, column, codes, rows, pages, hits, begin, end, entries, events):
    """AND one row per dimension for each (page, publication); the bits that stay are candidates.

    Works on AHEAD pairs at a time, so that their lines are on the way together. Stops before
    `entries` could overflow; returns the pair to go on with and the number of candidates.
    """
    lines = np.empty(AHEAD * STRIDE, np.uint64)
    left = np.empty(LINE, np.uint64)
    room = entries.size - AHEAD * SLOTS
    count = 0
    for first in range(begin, end, AHEAD):
        if count > room:
            return first, count
        group = min(AHEAD, end - first)
        aim(block, column, codes, rows, pages, hits, first, first + group, lines)
        for j in range(group):
            and_lines(block, lines, STRIDE * j + 1, np.int64(lines[STRIDE * j]), left)
            base = np.int64(pages[first + j]) << SLOT_BITS
            for w in range(LINE):
                bits = left[w]
                while bits != U0:
                    entries[count] = base + 64 * w + np.int64(lowest_bit(bits))
                    events[count] = hits[first + j]
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
    entry_at, bound_at = U2 * block[ENTRY], block[BOUND]
    id_at, dead_at = block[ID], U8 * block[DEAD]
    matched, postponed = counters[MATCHES], counters[PENDING]
    false = 0
    for k in range(count):
        if k + 2 * AHEAD < count:
            fetch(block, block[ENTRY] + U2 * np.uint64(entries[k + 2 * AHEAD]))
        if k + AHEAD < count:
            soon = entry_at + U4 * np.uint64(entries[k + AHEAD])
            bounds = bound_at + U3 * np.uint64(block32[soon])
            fetch(block, bounds)
            fetch(block, bounds + U_LINE)
            fetch(block, id_at + np.uint64(block32[soon + U1]))
        event = np.uint64(events[k])
        entry = entry_at + U4 * np.uint64(entries[k])
        i = bound_at + U3 * np.uint64(block32[entry])
        end = bound_at + U3 * np.uint64(block32[entry + U4])
        passes = True
        while i < end:
            lane = block[i]
            value = flat[event * width + np.uint64(column[lane & LANE_BITS])]
            # NaN, which stands for no value, fails a bound and passes an exclusion.
            if (blockf[i + U1] <= value <= blockf[i + U2]) == (lane > LANE_BITS):
                passes = False
                break
            i += U3
        if not passes:
            false += 1
            continue
        residual = block32[entry + U2]
        for p in range(np.uint64(block32[entry + U1]), np.uint64(block32[entry + U5])):
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
