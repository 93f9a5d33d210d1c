"""The match kernels: one publication against all blocks, and a batch page by page.

Both see publications as rows of `values`: column ALWAYS holds 0, column NONE holds NaN (no value),
and `column[lane]` says where a lane's value is, NONE for lanes that nobody in the batch has. The
same columns of `codes` hold the values' codes for the block at hand.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]

from homing.push.index.kernels.codes import encode, encode_one
from homing.push.index.kernels.exact import LANE_BITS, Answer, Batch, Work, verify
from homing.push.index.kernels.jit import direct, kernel
from homing.push.index.kernels.layout import (
    ALWAYS,
    BOUND,
    BOX,
    BUCKETS,
    CANDIDATES,
    CODED_AT,
    COLUMN_AT,
    COLUMN_SIZE,
    COUNTERS,
    COUNTERS_AT,
    ENTRIES,
    ENTRY,
    FALSE_CANDIDATES,
    FOUND_AT,
    FOUND_SIZE,
    HEAD,
    LANES_AT,
    LANES_SIZE,
    LINE,
    MATCHES,
    MAX_DIMENSIONS,
    NONE,
    OWNERS_AT,
    PAGE,
    PAGEAT,
    PAGES,
    PAGES_VISITED,
    PENDING_AT,
    PENDING_SIZE,
    ROW_WORDS,
    SLOT_BITS,
    SLOTS,
    STRIP,
    STRIP_WORDS,
    STRIPS,
    SWEPT,
    UNASKED,
    VALUES_AT,
    VALUES_SIZE,
    WORK_AT,
    WORK_SIZE,
)
from homing.push.index.kernels.machine import (
    and_lines,
    block_at,
    compared,
    fetch,
    lowest_bit,
    pointer,
)
from homing.push.index.kernels.sweep import (
    NEVER,
    PAIR,
    RECODED,
    room_to_turn,
    sort_events,
    sweep,
    turn,
    turning_price,
    unlike,
)

U0, U1, U2, U3, U4, U8, U32, U48 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 8, 32, 48))
U7, U_SLOTS, U_SLOT_BITS = np.uint64(7), np.uint64(SLOTS - 1), np.uint64(SLOT_BITS)
U_LINE, U_HEAD, U_ROWS = np.uint64(LINE), np.uint64(HEAD), np.uint64(ROW_WORDS)
U_BUCKETS, U_UNASKED = np.uint64(BUCKETS), np.uint64(UNASKED)
LOW_HALF, CODE_BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFFFF)
HIGH_HALF = np.uint64(0xFFFFFFFF00000000)
# (page, publication) pairs whose rows are asked for together.
AHEAD = 16
# Lines of one pair: their end, live bits, a row for each dimension.
STRIDE = 2 + MAX_DIMENSIONS
U_STRIDE = np.uint64(STRIDE)


class Aim(NamedTuple):
    """For AHEAD pairs: the lines to AND, the publication's codes as in records, the records."""

    lines: Any
    codes: Any
    records: Any
    left: Any


@kernel()
def call_heads(block, work, begin, end):
    """Ask for the heads of these pairs' pages: what `aim` reads first."""
    for k in range(begin, end):
        at = block[PAGE] + block[block[PAGEAT] + np.uint64(work.pages[k])]
        fetch(block, at)
        fetch(block, at + U_LINE)
        fetch(block, at + U_LINE + U_LINE)


@kernel()
def aim(block, batch, work, begin, end, target):
    """Where each (page, publication) looks, with all the cache lines asked for already.

    lines[STRIDE * j] is the end of pair j's lines, which follow. Unsigned indices: signed ones
    cost a test for negative numbers at every access.
    """
    column, lines = batch.column, target.lines
    width = np.uint64(batch.codes.shape[1])
    flat_codes = batch.codes.reshape(-1)
    codes16 = target.codes.view(np.uint16)
    mine = U0
    for k in range(begin, end):
        j = np.uint64(k - begin)
        me = np.uint64(work.hits[k]) * width
        at = block[PAGE] + block[block[PAGEAT] + np.uint64(work.pages[k])]
        sizes = block[at + U_LINE]
        last = mine + U2 + (sizes & LOW_HALF)
        lines[mine] = last
        lines[mine + U1] = at
        row = at + U_LINE + U_HEAD
        about = at + U_LINE + U1
        d = mine + U2
        code_at = U8 * U2 * j
        for word in range(U4 * j, U4 * j + U4):
            target.codes[word] = U_UNASKED
        while d < last:
            lane = block[about]
            here = me + np.uint64(column[lane & LOW_HALF])
            code = np.uint64(flat_codes[here])
            bucket = (code - ((lane >> U32) & CODE_BITS)) >> (lane >> U48)
            line = row + U_LINE * min(bucket, U_BUCKETS)
            fetch(block, line)
            lines[d] = line
            codes16[code_at] = code + U1
            row, about, d, code_at = row + U_ROWS, about + U1, d + U1, code_at + U1
        target.records[j] = row
        mine += U_STRIDE


@kernel()
def survivors(block, work, group, target):
    """AND the rows of each pair; the bits that stay are candidates, their records asked for."""
    left, candidates = target.left, work.candidates
    count = U0
    for j in range(group):
        end = np.int64(target.lines[STRIDE * j])
        and_lines(block, target.lines, STRIDE * j + 1, end, left)
        first = target.records[j]
        for w in range(LINE):
            bits = left[w]
            while bits != U0:
                slot = np.uint64(64 * w) + lowest_bit(bits)
                fetch(block, first + U_LINE * slot)
                candidates[count] = np.uint64(j) << U_SLOT_BITS | slot
                count += U1
                bits &= bits - U1
    return count


@kernel()
def sift(block, work, begin, count, target, answer, asked):
    """Hold candidates against their records: append the certain matches, and those to be asked.

    Writes first and then counts, or not: half of the candidates match, which no processor guesses.
    Returns how many are to be asked now.
    """
    found, owners, counters = answer.found, answer.owners, answer.counters
    pages, hits, candidates = work.pages, work.hits, work.candidates
    entries, events = work.entries, work.events
    matched = np.uint64(counters[MATCHES])
    room = np.uint64(found.size) - U1
    passed = U0
    ask = np.uint64(asked)
    for k in range(count):
        candidate = np.uint64(candidates[k])
        j, slot = candidate >> U_SLOT_BITS, candidate & U_SLOTS
        record = target.records[j] + U_LINE * slot
        verdict = compared(block, record, target.codes, U4 * j)
        pair = np.uint64(begin) + j
        event = hits[pair]
        place = min(matched, room)
        found[place] = block[record + U3] >> U32 | block[record + U7] & HIGH_HALF
        owners[place] = event
        matched += verdict >> U1
        entries[ask] = np.uint64(pages[pair]) << U_SLOT_BITS | slot
        events[ask] = event
        ask += verdict & U1
        passed += np.uint64(verdict != U0)
    counters[MATCHES] = matched
    counters[CANDIDATES] += count
    counters[FALSE_CANDIDATES] += count - passed
    return np.int64(ask)


@kernel()
def probe(block, batch, work, answer, begin, end):
    """Matches of these (page, publication) pairs, and the entries that exact bounds must decide.

    Works on AHEAD pairs at a time, so that their lines are on the way together. Stops before
    `entries` could overflow; returns the pair to go on with and the number of such entries.
    """
    scratch = np.empty(AHEAD * (STRIDE + 5) + LINE, np.uint64)
    codes_at, records_at = AHEAD * STRIDE, AHEAD * (STRIDE + 4)
    target = Aim(
        scratch[:codes_at],
        scratch[codes_at:records_at],
        scratch[records_at : records_at + AHEAD],
        scratch[records_at + AHEAD :],
    )
    room = work.entries.size - AHEAD * SLOTS - 1
    asked = 0
    call_heads(block, work, begin, min(begin + AHEAD, end))
    for first in range(begin, end, AHEAD):
        if asked > room:
            return first, asked
        group = min(AHEAD, end - first)
        call_heads(block, work, first + group, min(first + 2 * AHEAD, end))
        aim(block, batch, work, first, first + group, target)
        count = survivors(block, work, group, target)
        asked = sift(block, work, first, count, target, answer, asked)
    return end, asked


@kernel()
def finish(block, batch, work, n, answer):
    """Candidates and matches of these n (page, publication) pairs."""
    answer.counters[PAGES_VISITED] += n
    k = 0
    while k < n:
        k, asked = probe(block, batch, work, answer, k, n)
        verify(block, batch, work, asked, answer)


@kernel()
def match_one(block, batch, work, answer):
    """A single publication against one paged block: the pages whose box holds its codes."""
    codes, column, pages, hits = batch.codes, batch.column, work.pages, work.hits
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
                    finish(block, batch, work, n, answer)
                    n = 0
                box = box_at + 4 * page
                inside = (block16[box] <= a) & (a <= block16[box + 1])
                inside &= (block16[box + 2] <= b) & (b <= block16[box + 3])
                pages[n] = page
                hits[n] = 0
                n += inside
        strip += STRIP_WORDS
    finish(block, batch, work, n, answer)


@kernel()
def concerned(block, batch, order, start, page, b):
    """How many publications a page concerns: those inside of its box."""
    block16 = block.view(np.uint16)
    box = 4 * np.int64(block[BOX]) + 4 * page
    first, last = start[np.int64(block16[box])], start[np.int64(block16[box + 1]) + 1]
    if b == ALWAYS:
        return np.int64(last - first)
    low, high = block16[box + 2], block16[box + 3]
    n = 0
    for i in range(first, last):
        code = batch.codes[order[i], b]
        n += (low <= code) & (code <= high)
    return n


@kernel()
def gains(block, batch, order, start, strip, end, pairs):
    """What sweeping the pages of these strips would gain, in entries swept; counts each page's pairs."""
    gained = 0
    while strip < end:
        b = batch.column[np.int64(block[strip + 3])]
        for page in range(np.int64(block[strip + 4]), np.int64(block[strip + STRIP_WORDS + 4])):
            pairs[page] = concerned(block, batch, order, start, page, b)
            gained += max(PAIR * pairs[page] - SLOTS, 0)
        strip += STRIP_WORDS
    return gained


@kernel()
def listed(block, batch, order, start, page, b, work, n):
    """Append the (page, publication) pairs of one page; returns how many there are then."""
    pages, hits = work.pages, work.hits
    block16 = block.view(np.uint16)
    box = 4 * np.int64(block[BOX]) + 4 * page
    low, high = block16[box + 2], block16[box + 3]
    for i in range(start[np.int64(block16[box])], start[np.int64(block16[box + 1]) + 1]):
        code = batch.codes[order[i], b]
        pages[n] = page
        hits[n] = order[i]
        n += (low <= code) & (code <= high)
    return n


@kernel()
def match_many(block, batch, work, answer):
    """A batch against one paged block: each page is fetched once, for all it concerns.

    Pages that concern many are swept, if their strips' lane has so many of them that turning the
    batch round pays.
    """
    events = batch.codes.shape[0]
    strip = np.int64(block[STRIP])
    last = strip + STRIP_WORDS * np.int64(block[STRIPS])
    price = turning_price(batch.codes)
    turned = room_to_turn(block, batch, price)
    order, start = turned.order, turned.start
    pairs = np.zeros(np.int64(block[PAGES]), np.int32)
    n = asked = 0
    while strip < last:
        end = strip
        while end < last and block[end] == block[strip]:
            end += STRIP_WORDS
        sort_events(batch.codes, batch.column[np.int64(block[strip])], order, start)
        swept = price < NEVER and gains(block, batch, order, start, strip, end, pairs) > price
        if swept:
            turn(turned)
        while strip < end:
            b = batch.column[np.int64(block[strip + 3])]
            for page in range(np.int64(block[strip + 4]), np.int64(block[strip + STRIP_WORDS + 4])):
                if n + events > work.pages.size:
                    verify(block, batch, work, asked, answer)
                    finish(block, batch, work, n, answer)
                    n = asked = 0
                gain = PAIR * pairs[page] - SLOTS if swept else 0
                if gain > 0 and gain > events * unlike(block, batch, page, turned) // RECODED:
                    answer.counters[PAGES_VISITED] += pairs[page]
                    answer.counters[SWEPT] += 1
                    asked = sweep(block, batch, turned, page, work, asked, answer)
                else:
                    n = listed(block, batch, order, start, page, b, work, n)
            strip += STRIP_WORDS
    verify(block, batch, work, asked, answer)
    finish(block, batch, work, n, answer)


@kernel()
def pass_first(block, batch, event, begin, end, work):
    """Entries from `begin` to `end` whose first bound a publication passes; returns how many.

    Nine of ten fail it: they are out without a look at anything else, and nothing branches on it.
    """
    entries, events, column = work.entries, work.events, batch.column
    block32 = block.view(np.uint32)
    blockf = block.view(np.float64)
    bound_at, entry = block[BOUND], U2 * block[ENTRY] + U4 * np.uint64(begin)
    mine = np.uint64(event) * np.uint64(batch.values.shape[1])
    flat = batch.values.reshape(-1)
    n = U0
    for e in range(begin, end):
        i = bound_at + U3 * np.uint64(block32[entry])
        lane = block[i]
        value = flat[mine + np.uint64(column[lane & LANE_BITS])]
        inside = (blockf[i + U1] <= value) & (value <= blockf[i + U2])
        entries[n] = e
        events[n] = event
        n += np.uint64(inside != (lane > LANE_BITS))
        entry += U4
    return np.int64(n)


@kernel()
def scan(block, batch, work, answer):
    """A block without pages: every entry is a candidate for every publication."""
    total = np.int64(block[ENTRIES])
    for event in range(batch.values.shape[0]):
        for begin in range(0, total, work.entries.size):
            end = min(begin + work.entries.size, total)
            count = pass_first(block, batch, event, begin, end, work)
            answer.counters[FALSE_CANDIDATES] += end - begin - count
            verify(block, batch, work, count, answer)
    answer.counters[CANDIDATES] += total * batch.values.shape[0]


@kernel()
def opened(desk):
    """Where each lane's column is noted, the room to work in, and where the answer goes."""
    column = carray(pointer(desk[COLUMN_AT]), (np.int64(desk[COLUMN_SIZE]),), np.int32)
    work = carray(pointer(desk[WORK_AT]), (5, np.int64(desk[WORK_SIZE])), np.int32)
    found = carray(pointer(desk[FOUND_AT]), (np.int64(desk[FOUND_SIZE]),), np.uint64)
    owners = carray(pointer(desk[OWNERS_AT]), (found.size,), np.int32)
    pending = carray(pointer(desk[PENDING_AT]), (np.int64(desk[PENDING_SIZE]), 3), np.uint64)
    counters = carray(pointer(desk[COUNTERS_AT]), (2 * COUNTERS,), np.int64)
    room = Work(work[0], work[1], work[2], work[3], work[4])
    return column, room, Answer(found, owners, pending, counters)


@direct
@kernel("void(u8[::1],u8[::1],u8[::1])")
def match_blocks(table, given, desk):
    """Every match of every publication that is given with every block of the table.

    `given` and `desk` hold addresses and sizes, as `table` does: unpacking each array by itself would
    take a tenth of a publication's time. The counters hold what this call counted, and behind that
    the sums of all calls.
    """
    column, room, answer = opened(desk)
    counters = answer.counters
    counters[:COUNTERS] = 0
    lanes = carray(pointer(given[LANES_AT]), (np.int64(given[LANES_SIZE]),), np.int32)
    shape = np.int64(given[VALUES_SIZE]), lanes.size + NONE + 1
    values = carray(pointer(given[VALUES_AT]), shape, np.float64)
    codes = carray(pointer(given[CODED_AT]), shape, np.uint16)
    batch = Batch(lanes, column, codes, values)
    for i in range(lanes.size):
        column[lanes[i]] = i + NONE + 1
    for i in range(table.size // 2):
        block = block_at(table, i)
        if block[PAGES] == U0:
            scan(block, batch, room, answer)
            continue
        if values.shape[0] == 1:
            encode_one(block, lanes, values, codes)
            match_one(block, batch, room, answer)
        else:
            encode(block, lanes, values, codes)
            match_many(block, batch, room, answer)
    for i in range(lanes.size):
        column[lanes[i]] = NONE
    for i in range(COUNTERS):
        counters[COUNTERS + i] += counters[i]


@direct
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
