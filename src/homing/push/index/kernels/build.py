"""The build kernels: pick out what lives, join duplicates, choose access lanes."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.codes import span_of
from homing.push.index.kernels.jit import direct, kernel
from homing.push.index.kernels.layout import (
    ALWAYS,
    BOUND,
    CUT,
    CUTSTART,
    DEAD,
    DEADCOUNT,
    ENTRIES,
    ENTRY,
    EXCLUDE,
    FLAG,
    GONE,
    HASHMASK,
    HEAD,
    ID,
    LINE,
    MAX_DIMENSIONS,
    NO_RESIDUAL,
    PAGE,
    PAGEAT,
    PLAIN,
    ROW_WORDS,
    SLOT,
    SLOT_BITS,
    SLOTS,
    STRIP,
    STRIP_WORDS,
)
from homing.push.index.kernels.machine import block_at, fetch

HASH_SEED = np.uint64(0x9E3779B97F4A7C15)
HASH_STEP = np.uint64(0xBF58476D1CE4E5B9)
LOW_HALF, HIGH_HALF = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
# A lane that only a handful of a page's 256 entries look at gets no rows: verifying is cheaper.
MIN_DIMENSION_USE = 3


@kernel()
def mix(x):
    """A 64-bit number scattered over all 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * HASH_STEP
    x = (x ^ (x >> np.uint64(27))) * HASH_SEED
    return x ^ (x >> np.uint64(31))


@kernel()
def tells_nothing(lane):
    """Whether codes on a bound's lane say nothing of who passes: all but one value do, or all do."""
    return lane == ALWAYS or lane & EXCLUDE != 0


# numpy does these too, but keeps the interpreter to itself for as long as they take. What they fill
# comes from numpy, which asks for huge pages: others take five times as long to fill and twenty to free.
@kernel("i8(u4[::1],i8[::1])")
def elements_in(starts, rows):
    """How many elements these rows of a ragged array have."""
    total = 0
    for row in rows:
        total += np.int64(starts[row + 1]) - np.int64(starts[row])
    return total


@kernel("void(u4[::1],i8[::1],i8[::1])")
def fill_elements(starts, rows, numbers):
    """The element numbers of these rows, row after row."""
    n = 0
    for row in rows:
        for i in range(np.int64(starts[row]), np.int64(starts[row + 1])):
            numbers[n] = i
            n += 1


@kernel()
def count_living(block, total):
    """Count the entries, bounds and subscribers that a block still has."""
    entry = block[np.int64(block[ENTRY]) :].view(np.uint32)
    dead = block[np.int64(block[DEAD]) :].view(np.uint8)
    for e in range(np.int64(block[ENTRIES])):
        alive = 0
        for p in range(np.int64(entry[4 * e + 1]), np.int64(entry[4 * e + 5])):
            alive += 1 - np.int64(dead[p])
        if alive:
            total[0] += 1
            total[1] += np.int64(entry[4 * e + 4]) - np.int64(entry[4 * e])
            total[2] += alive


@kernel("void(u8[::1],i8[::1])")
def living(table, total):
    """How many entries, bounds and subscribers these blocks still have.

    All in one call: a thread that comes back to the interpreter beside a busy writer waits for its turn.
    """
    for i in range(table.size // 2):
        count_living(block_at(table, i), total)


@kernel()
def gather(block, used, first, subs, residual, lane, bound, ids):
    """Append the living part of a block; `used` counts entries, bounds and subscribers so far."""
    entry = block[np.int64(block[ENTRY]) :].view(np.uint32)
    blockf = block.view(np.float64)
    dead = block[np.int64(block[DEAD]) :].view(np.uint8)
    n, b, s = used[0], used[1], used[2]
    for e in range(np.int64(block[ENTRIES])):
        before = s
        for p in range(np.int64(entry[4 * e + 1]), np.int64(entry[4 * e + 5])):
            if not dead[p]:
                ids[s] = block[np.int64(block[ID]) + p]
                s += 1
        if s == before:
            continue
        begin = b
        for i in range(np.int64(entry[4 * e]), np.int64(entry[4 * e + 4])):
            # Insertion by lane: duplicates are recognised however they were spelled.
            at = b
            source = np.int64(block[BOUND]) + 3 * i
            new, low = block[source], blockf[source + 1]
            while at > begin and (
                lane[at - 1] > new or (lane[at - 1] == new and bound[2 * at - 2] > low)
            ):
                lane[at] = lane[at - 1]
                bound[2 * at] = bound[2 * at - 2]
                bound[2 * at + 1] = bound[2 * at - 1]
                at -= 1
            lane[at] = new
            bound[2 * at] = low
            bound[2 * at + 1] = blockf[source + 2]
            b += 1
        residual[n] = entry[4 * e + 2]
        n += 1
        first[n] = b
        subs[n] = s
    used[0], used[1], used[2] = n, b, s


@kernel("void(u8[::1],i8[::1],u4[::1],u4[::1],u4[::1],u4[::1],f8[::1],u8[::1])")
def gather_all(table, used, first, subs, residual, lane, bound, ids):
    """The living part of all these blocks, one after the other."""
    for i in range(table.size // 2):
        gather(block_at(table, i), used, first, subs, residual, lane, bound, ids)


@kernel()
def fingerprint(e, first, residual, lane, bits):
    """A hash of an entry's bounds and residual."""
    h = np.uint64(residual[e]) + HASH_SEED
    for i in range(np.int64(first[e]), np.int64(first[e + 1])):
        h = mix(h + np.uint64(lane[i]))
        h = mix(h + bits[2 * i])
        h = mix(h + bits[2 * i + 1])
    return h


@kernel()
def same(e, f, first, residual, lane, bits):
    """Whether two entries have exactly the same bounds and residual."""
    n = np.int64(first[e + 1]) - np.int64(first[e])
    if residual[e] != residual[f] or n != np.int64(first[f + 1]) - np.int64(first[f]):
        return False
    i, j = np.int64(first[e]), np.int64(first[f])
    for k in range(n):
        if lane[i + k] != lane[j + k]:
            return False
        if bits[2 * (i + k)] != bits[2 * (j + k)] or bits[2 * (i + k) + 1] != bits[2 * (j + k) + 1]:
            return False
    return True


@kernel("i8(u4[::1],u4[::1],u4[::1],f8[::1],i8[::1],u8[::1])")
def leaders(first, residual, lane, bound, leader, cells):
    """For each entry the one that it duplicates (itself, mostly); returns how many duplicate none.

    `cells` is an open-addressing table, empty, with more room than there are entries: half of a
    fingerprint and the number of the first entry that has it, + 1.
    """
    bits = bound.view(np.uint64)
    mask = np.uint64(cells.size - 1)
    kept = 0
    for e in range(leader.size):
        h = fingerprint(e, first, residual, lane, bits)
        half, cell = h & HIGH_HALF, h & mask
        leader[e] = e
        while cells[cell]:
            f = np.int64(cells[cell] & LOW_HALF) - 1
            if cells[cell] & HIGH_HALF == half and same(e, f, first, residual, lane, bits):
                leader[e] = f
                break
            cell = (cell + np.uint64(1)) & mask
        if leader[e] == e:
            cells[cell] = half | np.uint64(e + 1)
            kept += 1
    return kept


@kernel("void(u4[::1],u4[::1],f8[::1],u4[::1],f8[::1],f8[::1],u2[:,::1],i4[:,::1],f8[::1])")
def choose_access(first, lane, bound, cutstart, cuts, weight, spans, access, shares):
    """Each entry's two most selective lanes, its codes on them, and the share that passes the best.

    `weight[cutstart[l] + 2 l + k]` is the share of publications whose code on lane l is below k.
    Lane 0, which every publication has with code 0, stands in where there is no second one.
    """
    for e in range(access.shape[0]):
        best, second = 2.0, 2.0
        access[e, 0] = access[e, 1] = 0
        spans[e, :] = 0
        for i in range(np.int64(first[e]), np.int64(first[e + 1])):
            if tells_nothing(lane[i]):
                continue
            at = np.int64(lane[i])
            start, end = np.int64(cutstart[at]), np.int64(cutstart[at + 1])
            low, high = span_of(cuts, start, end, bound[2 * i], bound[2 * i + 1])
            share = weight[start + 2 * at + high + 1] - weight[start + 2 * at + low]
            if share < best:
                best, second = share, best
                access[e, 1] = access[e, 0]
                spans[e, 2], spans[e, 3] = spans[e, 0], spans[e, 1]
                access[e, 0], spans[e, 0], spans[e, 1] = at, low, high
            elif share < second:
                second = share
                access[e, 1], spans[e, 2], spans[e, 3] = at, low, high
        shares[e] = best


@kernel("void(i8[::1],u4[::1],u4[::1],i8,i4[:,::1],i4[:,::1],i4[::1])")
def choose_dimensions(entries, first, lane, lanes, access, dimensions, counts):
    """For each page the lanes that get rows: its access lanes, then those most entries look at."""
    uses = np.zeros(lanes, np.int32)
    touched = np.empty(lanes, np.int32)
    for page in range(counts.size):
        n = 0
        for slot in range(SLOTS):
            e = entries[page * SLOTS + slot]
            if e < 0:
                continue
            for i in range(np.int64(first[e]), np.int64(first[e + 1])):
                if tells_nothing(lane[i]):
                    continue
                at = np.int64(lane[i])
                if uses[at] == 0:
                    touched[n] = at
                    n += 1
                uses[at] += 1
        kept = 0
        for side in range(2):
            if access[page, side]:
                dimensions[page, kept] = access[page, side]
                uses[access[page, side]] = 0
                kept += 1
        while kept < MAX_DIMENSIONS:
            best = -1
            for k in range(n):
                if best < 0 or uses[touched[k]] > uses[best]:
                    best = touched[k]
            if best < 0 or uses[best] < MIN_DIMENSION_USE:
                break
            dimensions[page, kept] = best
            uses[best] = 0
            kept += 1
        counts[page] = kept
        # In one order everywhere: what is laid out for one page then mostly fits the next.
        dimensions[page, :kept].sort()
        for k in range(n):
            uses[touched[k]] = 0


@kernel()
def fill_slots(ids, slots):
    """The open-addressing table from subscription id to subscriber position + 1."""
    mask = np.uint64(slots.size - 1)
    for p in range(ids.size):
        cell = mix(ids[p]) & mask
        while slots[cell]:
            cell = (cell + np.uint64(1)) & mask
        slots[cell] = p + 1


@kernel("void(u8[::1],i8[::1],u4[::1],u4[::1],u4[::1],u4[::1],f8[::1],u8[::1])")
def lay_out(block, entries, first, subs, residual, lane, bound, ids):
    """The sections ENTRY, BOUND, ID and SLOT of a block with these entries in its slots."""
    entry = block[np.int64(block[ENTRY]) :].view(np.uint32)
    bits = bound.view(np.uint64)
    bounds, mine = np.int64(block[BOUND]), block[np.int64(block[ID]) :]
    b = s = 0
    for at in range(entries.size):
        e = entries[at]
        entry[4 * at], entry[4 * at + 1], entry[4 * at + 2] = b, s, NO_RESIDUAL
        if e < 0:
            continue
        entry[4 * at + 2] = residual[e]
        for i in range(np.int64(first[e]), np.int64(first[e + 1])):
            to = bounds + 3 * b
            block[to], block[to + 1], block[to + 2] = lane[i], bits[2 * i], bits[2 * i + 1]
            b += 1
        for p in range(np.int64(subs[e]), np.int64(subs[e + 1])):
            mine[s] = ids[p]
            s += 1
    entry[4 * entries.size], entry[4 * entries.size + 1] = b, s
    slots = block[np.int64(block[SLOT]) :].view(np.uint32)
    fill_slots(mine[:s], slots[: np.int64(block[HASHMASK]) + 1])


@kernel()
def bury(block, p):
    """Subscriber p is gone: flag it, and the record if it was the only one of its entry."""
    block.view(np.uint8)[8 * np.int64(block[DEAD]) + p] = 1
    block[DEADCOUNT] += np.uint64(1)
    entry = block[np.int64(block[ENTRY]) :].view(np.uint32)
    e, count = 0, np.int64(block[ENTRIES])
    # The last entry whose first subscriber is not behind p.
    while count > 1:
        half = count >> 1
        e = e + half if entry[4 * (e + half) + 1] <= p else e
        count -= half
    page = np.int64(block[PAGE]) + np.int64(block[np.int64(block[PAGEAT]) + (e >> SLOT_BITS)])
    dimensions = np.int64(block[page + LINE] & np.uint64(0xFFFFFFFF))
    record = page + LINE + HEAD + ROW_WORDS * dimensions + LINE * (e & (SLOTS - 1))
    record16 = block[record : record + LINE].view(np.uint16)
    if record16[FLAG] == PLAIN:
        record16[FLAG] = GONE


@kernel()
def found(table, subscription, kill):
    """How many living boxes a subscription has in these paged blocks; with `kill` they die."""
    for i in range(table.size // 2):
        block = block_at(table, i)
        fetch(block, block[SLOT] + ((mix(subscription) & block[HASHMASK]) >> np.uint64(1)))
    count = 0
    for i in range(table.size // 2):
        block = block_at(table, i)
        slots = block[np.int64(block[SLOT]) :].view(np.uint32)
        dead = block[np.int64(block[DEAD]) :].view(np.uint8)
        mask = block[HASHMASK]
        cell = mix(subscription) & mask
        while slots[cell]:
            p = np.int64(slots[cell]) - 1
            if block[np.int64(block[ID]) + p] == subscription and not dead[p]:
                count += 1
                if kill:
                    bury(block, p)
            cell = (cell + np.uint64(1)) & mask
    return count


@direct
@kernel("i8(u8[::1],u8,b1)", nogil=False)
def find(table, subscription, kill):
    """The same, called for one subscription: a microsecond."""
    return found(table, subscription, kill)


@kernel("void(u8[::1],u8[::1])")
def kill_all(table, subscriptions):
    """All living boxes of these subscriptions die."""
    for subscription in subscriptions:
        found(table, subscription, True)


@kernel("f8[::1](u8[::1],f8[::1],i8)")
def drift(block, weight, step):
    """What a block's access lanes let through now, and what the best choice would, summed.

    Looks at every `step`-th entry; `weight` as in choose_access, for the block's own cuts.
    """
    blockf = block.view(np.float64)
    cuts = blockf[np.int64(block[CUT]) :]
    cutstart = block[np.int64(block[CUTSTART]) :].view(np.uint32)
    entry = block[np.int64(block[ENTRY]) :].view(np.uint32)
    sums = np.zeros(2)
    strip = np.int64(block[STRIP])
    for e in range(0, np.int64(block[ENTRIES]), step):
        while np.int64(block[strip + STRIP_WORDS + 4]) <= e >> SLOT_BITS:
            strip += STRIP_WORDS
        current, best, second = 1.0, 1.0, 1.0
        begin, end = np.int64(entry[4 * e]), np.int64(entry[4 * e + 4])
        if begin == end:
            continue
        for i in range(begin, end):
            at = np.int64(block[BOUND]) + 3 * i
            lane = np.int64(block[at])
            if tells_nothing(lane):
                continue
            start, stop = np.int64(cutstart[lane]), np.int64(cutstart[lane + 1])
            low, high = span_of(cuts, start, stop, blockf[at + 1], blockf[at + 2])
            share = weight[start + 2 * lane + high + 1] - weight[start + 2 * lane + low]
            if lane == np.int64(block[strip]) or lane == np.int64(block[strip + 3]):
                current *= share
            if share < best:
                best, second = share, best
            elif share < second:
                second = share
        sums[0] += current
        sums[1] += best * second
    return sums
