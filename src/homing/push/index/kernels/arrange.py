"""Arranging: which entry goes to which page, without the interpreter.

As numpy would do it, in a few dozen calls, but in two: beside a thread that runs Python, each return
to the interpreter waits for its turn, and those turns took longer than the work.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.build import mix
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import MAX_CUTS, SLOT_BITS, SLOTS, STRIP_WORDS

# A group of entries with the same access lanes needs this many to be worth pages of its own.
MIN_GROUP = SLOTS // 4


@kernel()
def swapped(access, spans, e):
    """The entry's two lanes, and its codes on them, the other way round."""
    access[e, 0], access[e, 1] = access[e, 1], access[e, 0]
    spans[e, 0], spans[e, 2] = spans[e, 2], spans[e, 0]
    spans[e, 1], spans[e, 3] = spans[e, 3], spans[e, 1]


@kernel()
def grouped(access, groups, cells):
    """A number for each distinct pair of lanes, in ascending order, and that of each entry.

    Returns the pairs. `cells` is an open-addressing table with more room than there are entries.
    """
    cells[:] = 0
    mask = np.uint64(cells.size - 1)
    pairs = np.empty(64, np.int64)
    count = 0
    for e in range(groups.size):
        pair = np.int64(access[e, 0]) << 32 | np.int64(access[e, 1])
        cell = mix(np.uint64(pair)) & mask
        while cells[cell] and pairs[cells[cell] - 1] != pair:
            cell = (cell + np.uint64(1)) & mask
        if cells[cell] == 0:
            if count == pairs.size:
                larger = np.empty(2 * count, np.int64)
                larger[:count] = pairs
                pairs = larger
            pairs[count] = pair
            count += 1
            cells[cell] = count
        groups[e] = cells[cell] - 1
    order = np.argsort(pairs[:count])
    rank = np.empty(count, np.int64)
    for k in range(count):
        rank[order[k]] = k
    for e in range(groups.size):
        groups[e] = rank[groups[e]]
    return pairs[:count][order]


@kernel()
def choose_groups(access, spans, shares, groups, cells):
    """Each entry's group, as arrange says; returns the lanes of each group."""
    swap = np.empty(groups.size, np.bool_)
    for e in range(groups.size):
        swap[e] = access[e, 0] > access[e, 1] > 0
        if swap[e]:
            swapped(access, spans, e)
    pairs = grouped(access, groups, cells)
    counts, passing = np.zeros(pairs.size, np.int64), np.zeros(pairs.size)
    for e in range(groups.size):
        counts[groups[e]] += 1
        passing[groups[e]] += shares[e]
    single = np.empty(pairs.size, np.bool_)
    for g in range(pairs.size):
        w = min(max(passing[g] / counts[g], 1e-4), 0.5)
        single[g] = counts[g] < SLOTS / (np.sqrt(w) - w) ** 2
    for e in range(groups.size):
        if single[groups[e]]:
            if swap[e]:
                swapped(access, spans, e)
            access[e, 1] = 0
            spans[e, 2] = spans[e, 3] = 0
    pairs = grouped(access, groups, cells)
    counts = np.zeros(pairs.size, np.int64)
    for e in range(groups.size):
        counts[groups[e]] += 1
    for e in range(groups.size):
        if counts[groups[e]] < MIN_GROUP:
            access[e, 0] = access[e, 1] = 0
            spans[e, :] = 0
    pairs = grouped(access, groups, cells)
    lanes = np.empty((pairs.size, 2), np.int64)
    for g in range(pairs.size):
        lanes[g, 0], lanes[g, 1] = pairs[g] >> 32, pairs[g] & 0xFFFFFFFF
    return lanes


@kernel()
def add_up(start):
    """From how many there are of each key, counted one further on, to where each begins."""
    for k in range(1, start.size):
        start[k] += start[k - 1]
    return start


@kernel()
def begins(keys, most):
    """Where each key up to `most` begins when all are sorted, and the end of all."""
    start = np.zeros(most + 2, np.int64)
    for key in keys:
        start[key + 1] += 1
    return add_up(start)


@kernel()
def middle(spans, e, side):
    """Twice the middle of an entry's codes on one lane."""
    return np.int64(spans[e, side]) + np.int64(spans[e, side + 1])


@kernel()
def sorted_within(keys, most, spans, side, order, room):
    """`order`, which keeps its order among equals, by key and then by the middle of a span."""
    at = np.zeros(2 * (MAX_CUTS + 1) + 1, np.int64)
    for e in range(keys.size):
        at[middle(spans, e, side) + 1] += 1
    add_up(at)
    for e in order:
        where = middle(spans, e, side)
        room[at[where]] = e
        at[where] += 1
    at = begins(keys, most)
    for e in room:
        order[at[keys[e]]] = e
        at[keys[e]] += 1


@kernel("i8[:,::1](i4[:,::1],u2[:,::1],f8[::1],i8[::1],i8[::1],i8[::1],u4[::1])")
def rank(access, spans, shares, strip, order, room, cells):
    """The entries in the order of their strips and pages, and the strip of each.

    Returns for each strip its lanes a and b and its number of entries.
    """
    lanes = choose_groups(access, spans, shares, strip, cells)
    for e in range(order.size):
        order[e] = e
    sorted_within(strip, len(lanes) - 1, spans, 0, order, room)
    start = begins(strip, len(lanes) - 1)
    per_strip = np.empty(len(lanes), np.int64)
    first = np.zeros(len(lanes) + 1, np.int64)
    for g in range(len(lanes)):
        pages = -(-(start[g + 1] - start[g]) // SLOTS)
        per_strip[g] = max(np.int64(np.rint(np.sqrt(pages))), 1) if lanes[g, 1] else 1
        first[g + 1] = first[g] + -(-pages // per_strip[g])
        per_strip[g] *= SLOTS
    strips = np.zeros((first[-1], 3), np.int64)
    for k in range(order.size):
        g = strip[order[k]]
        s = first[g] + (k - start[g]) // per_strip[g]
        strip[order[k]] = s
        strips[s, 0], strips[s, 1] = lanes[g, 0], lanes[g, 1]
        strips[s, 2] += 1
    sorted_within(strip, len(strips) - 1, spans, 2, order, room)
    return strips


@kernel("void(i8[::1],i8[:,::1],u2[:,::1],i8[::1],u8[:,::1],u2[:,::1])")
def tile(order, strips, spans, entries, table, boxes):
    """Which entry sits in which slot (-1: none), the STRIP section and the boxes of pages."""
    entries[:] = -1
    boxes[:, 0] = boxes[:, 2] = 0xFFFF
    boxes[:, 1] = boxes[:, 3] = 0
    k = page = 0
    for s in range(len(strips)):
        table[s, 0], table[s, 3], table[s, 4] = strips[s, 0], strips[s, 1], page
        table[s, 1], table[s, 2] = 0xFFFF, 0
        for at in range(page << SLOT_BITS, (page << SLOT_BITS) + strips[s, 2]):
            e = order[k]
            entries[at] = e
            box = boxes[at >> SLOT_BITS]
            box[0], box[1] = min(box[0], spans[e, 0]), max(box[1], spans[e, 1])
            box[2], box[3] = min(box[2], spans[e, 2]), max(box[3], spans[e, 3])
            table[s, 1] = min(table[s, 1], np.uint64(spans[e, 0]))
            table[s, 2] = max(table[s, 2], np.uint64(spans[e, 1]))
            k += 1
        page += -(-strips[s, 2] // SLOTS)
    table[len(strips), :STRIP_WORDS] = 0
    table[len(strips), 4] = page
