"""Sweeping: a page's entries one after the other, each against a whole batch of publications.

Where a page concerns many publications of a batch, it is turned round: a lane's values become bitmaps
over publications, an entry ANDs its bounds' bitmaps, and the bits that stay are its candidates. The
publications are numbered in the order of their codes on the strip's lane a, so that an entry's bound
there is a run of them, and only that window of the other lanes' bitmaps is read.

Row r of a lane holds those whose terrace is below r (see layout.py), so that a bound is one row XOR
another, however wide it is.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from homing.push.index.kernels.codes import shift_for
from homing.push.index.kernels.exact import verify
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    ABSENT,
    ALWAYS,
    CANDIDATES,
    CUTSTART,
    EVERY,
    FALSE_CANDIDATES,
    HEAD,
    LANES,
    LINE,
    MATCHES,
    MAX_CUTS,
    NONE,
    PAGE,
    PAGEAT,
    RECORD_LANES,
    ROW_WORDS,
    SKETCH,
    SLOT_BITS,
    SLOTS,
    TERRACES,
    UNASKED,
)
from homing.push.index.kernels.machine import WINDOW, compared, fetch, lowest_bit, window_and

# Publications that are swept together, and the words of a row, with room for the last window.
MOST = 1024
WIDE = MOST // 64 + WINDOW
# The rows of a lane, and behind them one for publications without a value there.
LANE_WORDS = (TERRACES + 2) * WIDE
# In front of them a mask for each number of bits in a window.
MASKS = (64 * WINDOW + 1) * WINDOW
# Lanes that a batch may have: more bitmaps than these would not stay in a core's cache.
MOST_LANES = 64
# Entries whose windows are looked at together, and how many windows each may have.
AHEAD = 64
WINDOWS = MOST // 64 // WINDOW + 1
SIDE = AHEAD * WINDOWS
# What one (page, publication) pair costs, in entries swept.
PAIR = 6
# Publications that get their code in another dimension in the time of one entry swept.
RECODED = 11
NEVER = 1 << 62
U0, U1, U2, U3, U4, U5, U6, U7, U32 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 5, 6, 7, 32))
U_WINDOW, U_WIDE, U_LINE, U_SLOT_BITS = (np.uint64(n) for n in (WINDOW, WIDE, LINE, SLOT_BITS))
LOW_HALF, HIGH_HALF = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
U_LAST, U_SIDE = np.uint64(63), np.uint64(SIDE)
U_UNASKED = np.uint64(UNASKED)
U_BITS, U_SLOTS = np.uint64(64 * WINDOW), np.uint64((1 << SLOT_BITS) - 1)


class Turned(NamedTuple):
    """A batch in the order of one lane: which publication is where, and bitmaps over them."""

    order: Any
    start: Any
    terraces: Any
    bits: Any
    # The codes of each publication as in records, and the column that each dimension of them shows.
    codes: Any
    shown: Any
    row_at: Any
    # What stays of entries' windows, and the slot and first word of each; twice, by turns.
    left: Any
    whose: Any
    # The words of these that are not empty, and the slot and number of each.
    words: Any
    places: Any


@kernel()
def turning_price(codes):
    """What turning a batch round costs, in entries swept; NEVER if that cannot pay."""
    events, columns = codes.shape
    if PAIR * events <= SLOTS or events > MOST or columns > MOST_LANES:
        return NEVER
    return columns * (events + TERRACES * WIDE // 4) // 8


@kernel()
def room_to_turn(block, batch, price):
    """Room for one batch, in no order yet, with its terraces; none that will NEVER be used."""
    events, columns = batch.codes.shape
    if price == NEVER:
        events = columns = 0
    turned = Turned(
        np.empty(batch.codes.shape[0], np.int32),
        np.empty(MAX_CUTS + 3, np.int32),
        np.empty((columns, events), np.uint8),
        np.empty(MASKS + columns * LANE_WORDS, np.uint64),
        np.full((LINE // 2) * events, U_UNASKED),
        np.full(RECORD_LANES, -1, np.int64),
        np.empty(RECORD_LANES * (TERRACES + 1), np.uint64),
        np.empty(2 * WINDOW * SIDE, np.uint64),
        np.empty(2 * SIDE, np.uint64),
        np.empty(WINDOW * SIDE + 1, np.uint64),
        np.empty(WINDOW * SIDE + 1, np.uint64),
    )
    if columns:
        terrace(block, batch, turned)
        mask(turned.bits)
        place_rows(turned.row_at, EVERY, ALWAYS)
    return turned


@kernel()
def mask(bits):
    """For each number of bits in a window, so many of the lowest."""
    bits[:WINDOW] = U0
    for k in range(64 * WINDOW):
        for at in range(WINDOW * k, WINDOW * (k + 1)):
            bits[at + WINDOW] = bits[at]
        bits[WINDOW * (k + 1) + (k >> 6)] |= U1 << np.uint64(k & 63)


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
def terrace(block, batch, turned):
    """Every value's terrace, lane by lane; TERRACES: it has none."""
    codes = batch.codes
    block32 = block.view(np.uint32)
    cutstart = 2 * np.int64(block[CUTSTART])
    for c in range(codes.shape[1]):
        top = 0
        if c > NONE and batch.lanes[c - NONE - 1] < np.int64(block[LANES]):
            lane = cutstart + batch.lanes[c - NONE - 1]
            top = np.int64(block32[lane + 1]) - np.int64(block32[lane])
        shift = shift_for(top, TERRACES)
        for event in range(codes.shape[0]):
            turned.terraces[c, event] = min(codes[event, c] >> shift, TERRACES)


@kernel()
def turn(turned):
    """Every lane's bitmaps, in the order at hand."""
    bits, order, terraces = turned.bits, turned.order, turned.terraces
    bits[MASKS:] = U0
    count = np.uint64(turned.start[-1])
    for c in range(terraces.shape[0]):
        mine = terraces[c]
        first = np.uint64(MASKS + c * LANE_WORDS + WIDE)
        for i in range(count):
            row = first + U_WIDE * np.uint64(mine[np.uint64(order[i])])
            bits[row + (i >> U6)] |= U1 << (i & U_LAST)
        for at in range(first, first + np.uint64(WIDE * (TERRACES - 1))):
            bits[at + U_WIDE] |= bits[at]


@kernel()
def recode(batch, turned, d, c):
    """What all publications have in dimension d, as in records: column c of their codes."""
    codes16 = turned.codes.view(np.uint16)
    width = np.uint64(batch.codes.shape[1])
    flat = batch.codes.reshape(-1)
    at, of = np.uint64(d), np.uint64(c)
    for _ in range(batch.codes.shape[0]):
        codes16[at] = flat[of] + 1
        at, of = at + np.uint64(RECORD_LANES), of + width


@kernel()
def place_rows(row_at, dimension, column):
    """Where the rows of a page's dimension are."""
    for row in range(TERRACES + 1):
        row_at[dimension * (TERRACES + 1) + row] = MASKS + column * LANE_WORDS + row * WIDE


@kernel()
def unlike(block, batch, page, turned):
    """How many of the page's dimensions show another column than it has there."""
    head = block[PAGE] + block[block[PAGEAT] + np.uint64(page)] + U_LINE
    count = 0
    for d in range(np.int64(block[head] & LOW_HALF)):
        lane = block[head + U1 + np.uint64(d)] & LOW_HALF
        count += turned.shown[d] != np.int64(batch.column[lane])
    return count


@kernel()
def show(block, batch, page, turned):
    """Note where the page's dimensions are; returns where its records start."""
    at = block[PAGE] + block[block[PAGEAT] + np.uint64(page)]
    shown = turned.shown
    dimensions = np.int64(block[at + U_LINE] & LOW_HALF)
    about = at + U_LINE + U1
    for d in range(dimensions):
        c = np.int64(batch.column[block[about + np.uint64(d)] & LOW_HALF])
        if shown[d] != c:
            shown[d] = c
            recode(batch, turned, d, c)
            place_rows(turned.row_at, d, c)
    return at + np.uint64(LINE + HEAD) + np.uint64(ROW_WORDS * dimensions)


@kernel()
def windows(block, turned, sketches, begin, end, side):
    """AND the bounds of these entries; what stays goes to one side of `left` and `whose`."""
    start, bits, row_at = turned.start, turned.bits, turned.row_at
    left, whose = turned.left, turned.whose
    block16 = block.view(np.uint16)
    n = side
    for slot in range(begin, end):
        at = U4 * (sketches + np.uint64(SKETCH) * slot)
        first = np.uint64(start[np.uint64(block16[at])])
        last = np.uint64(start[np.uint64(block16[at + U1]) + U1])
        a, b = row_at[np.uint64(block16[at + U2])], row_at[np.uint64(block16[at + U3])]
        c, d = row_at[np.uint64(block16[at + U4])], row_at[np.uint64(block16[at + U5])]
        e, f = row_at[np.uint64(block16[at + U6])], row_at[np.uint64(block16[at + U7])]
        word = first >> U6
        begins, ends = first & U_LAST, last - (word << U6)
        while True:
            whose[n] = word << U_SLOT_BITS | slot
            low, high = begins * U_WINDOW, min(ends, U_BITS) * U_WINDOW
            n += window_and(bits, low, high, word, a, b, c, d, e, f, left, n)
            if ends <= U_BITS:
                break
            begins, ends, word = U0, ends - U_BITS, word + U_WINDOW
    return np.int64(n - side)


@kernel()
def unfold(turned, side, count):
    """The words that hold something, in front, and whose they are; returns how many.

    Writes first and then counts, or not: which word of a window it is no processor guesses.
    """
    left, whose, words, places = turned.left, turned.whose, turned.words, turned.places
    n = U0
    for k in range(side, side + np.uint64(count)):
        for w in range(WINDOW):
            word = left[U_WINDOW * k + np.uint64(w)]
            words[n] = word
            places[n] = whose[k] + np.uint64(w << SLOT_BITS)
            n += np.uint64(word != U0)
    return np.int64(n)


@kernel()
def candidates_of(turned, k, count, candidates):
    """Each bit of the words from k on as a publication and a slot, while there is room.

    Returns the word to go on with and the number of candidates.
    """
    order, words, places = turned.order, turned.words, turned.places
    n = U0
    full = np.uint64(candidates.size - 65)
    while k < count and n < full:
        slot = places[k] & U_SLOTS
        first = (places[k] >> U_SLOT_BITS) << U6
        rest = words[k]
        while rest != U0:
            event = np.uint64(order[first + lowest_bit(rest)])
            rest &= rest - U1
            candidates[n] = event << U_SLOT_BITS | slot
            n += U1
        k += 1
    return k, np.int64(n)


@kernel()
def hold(block, turned, page, records, count, work, asked, answer):
    """Hold candidates against their records: append the certain matches; returns how many are to be asked."""
    found, owners, counters = answer.found, answer.owners, answer.counters
    entries, events, candidates, codes = work.entries, work.events, work.candidates, turned.codes
    matched = np.uint64(counters[MATCHES])
    room = np.uint64(found.size) - U1
    entry = np.uint64(page) << U_SLOT_BITS
    ask = np.uint64(asked)
    passed = U0
    for k in range(count):
        candidate = np.uint64(candidates[k])
        event, slot = candidate >> U_SLOT_BITS, candidate & U_SLOTS
        record = records + U_LINE * slot
        verdict = compared(block, record, codes, event * np.uint64(LINE // 2))
        place = min(matched, room)
        found[place] = block[record + U3] >> U32 | block[record + U7] & HIGH_HALF
        owners[place] = event
        matched += verdict >> U1
        entries[ask] = entry | slot
        events[ask] = event
        ask += verdict & U1
        passed += np.uint64(verdict != U0)
    counters[MATCHES] = matched
    counters[CANDIDATES] += count
    counters[FALSE_CANDIDATES] += count - np.int64(passed)
    return np.int64(ask)


@kernel()
def sweep(block, batch, turned, page, work, asked, answer):
    """All certain matches of the batch in one page.

    Appends what exact bounds must decide to the `asked` entries that wait for that already, as long
    as there is room; returns how many wait then. While the records of some entries are on their way,
    the windows of the next ones are looked at.
    """
    records = show(block, batch, page, turned)
    head = block[PAGE] + block[block[PAGEAT] + np.uint64(page)] + U_LINE
    size = np.int64(block[head] >> U32)
    sketches = records + U_LINE * np.uint64(size)
    waiting = 0
    side = U0
    for begin in range(0, size + AHEAD, AHEAD):
        before, other = waiting, side
        side = U_SIDE - side
        waiting = 0
        if begin < size:
            end = np.uint64(min(begin + AHEAD, size))
            waiting = windows(block, turned, sketches, np.uint64(begin), end, side)
            for k in range(side, side + np.uint64(waiting)):
                fetch(block, records + U_LINE * (turned.whose[k] & U_SLOTS))
        count = unfold(turned, other, before)
        k = 0
        while k < count:
            k, n = candidates_of(turned, k, count, work.candidates)
            if asked + n >= work.entries.size:
                verify(block, batch, work, asked, answer)
                asked = 0
            asked = hold(block, turned, page, records, n, work, asked, answer)
    return asked
