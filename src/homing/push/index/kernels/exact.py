"""What every match kernel is given and gives, and the exact bounds, which decide in the end."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import (
    BOUND,
    DEAD,
    ENTRY,
    FALSE_CANDIDATES,
    ID,
    LANE_MASK,
    LINE,
    MATCHES,
    NO_RESIDUAL,
    PENDING,
)
from homing.push.index.kernels.machine import fetch

U1, U2, U3, U4, U5, U8 = (np.uint64(n) for n in (1, 2, 3, 4, 5, 8))
U_LINE, LANE_BITS = np.uint64(LINE), np.uint64(LANE_MASK)
# Candidates whose bounds are asked for together.
AHEAD = 16


class Batch(NamedTuple):
    """Publications: their lanes, which column each is in, and codes and values column by column."""

    lanes: Any
    column: Any
    codes: Any
    values: Any


class Work(NamedTuple):
    """Room for (page, publication) pairs, candidates, and what only exact bounds can decide."""

    pages: Any
    hits: Any
    candidates: Any
    entries: Any
    events: Any


class Answer(NamedTuple):
    """What was found: ids, whose they are, those with a residual check, how much work it was."""

    found: Any
    owners: Any
    pending: Any
    counters: Any


@kernel()
def verify(block, batch, work, count, answer):
    """Hold entries against their exact bounds; append the subscribers of those that pass.

    Subscribers with a residual check go to `pending`. Past the end of a buffer matches are only
    counted, so that the caller learns the size to come back with.
    """
    entries, events, column = work.entries, work.events, batch.column
    found, owners, pending, counters = answer
    block32 = block.view(np.uint32)
    blockf = block.view(np.float64)
    dead = block.view(np.uint8)
    width = np.uint64(batch.values.shape[1])
    flat = batch.values.reshape(-1)
    entry_at, bound_at = U2 * block[ENTRY], block[BOUND]
    id_at, dead_at = block[ID], U8 * block[DEAD]
    matched, postponed = counters[MATCHES], counters[PENDING]
    false = 0
    for k in range(-2 * AHEAD, count):
        if k + 2 * AHEAD < count:
            fetch(block, block[ENTRY] + U2 * np.uint64(entries[k + 2 * AHEAD]))
        if 0 <= k + AHEAD < count:
            soon = entry_at + U4 * np.uint64(entries[k + AHEAD])
            bounds = bound_at + U3 * np.uint64(block32[soon])
            fetch(block, bounds)
            fetch(block, bounds + U_LINE)
            fetch(block, id_at + np.uint64(block32[soon + U1]))
        if k < 0:
            continue
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
    counters[FALSE_CANDIDATES] += false
    counters[MATCHES], counters[PENDING] = matched, postponed
