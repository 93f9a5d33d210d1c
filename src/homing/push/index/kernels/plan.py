"""The planner's kernels: cuts that code each lane, and the share of publications below each code."""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.codes import code_of
from homing.push.index.kernels.jit import kernel
from homing.push.index.kernels.layout import EXCLUDE, MAX_CUTS

# What the subscriptions' own bounds count for beside the sample, in publications: a beginning.
PRIOR = 32.0
# Bounds looked at per lane when its quantiles are taken: a quarter of them, but not fewer than
# give every quantile four values, nor more than tell the rarest of a thousand strings.
FEW_BOUNDS, MANY_BOUNDS = 2048, 1 << 14


@kernel()
def picked(lane, bound, lanes):
    """Some bounds of every lane, evenly spread over them, and where each lane's begin."""
    counts = np.zeros(lanes, np.int64)
    for i in range(lane.size):
        if lane[i] < EXCLUDE:
            counts[lane[i]] += 1
    start = np.zeros(lanes + 1, np.int64)
    step = np.empty(lanes, np.int64)
    for each in range(lanes):
        step[each] = max(counts[each] // min(max(counts[each] // 4, FEW_BOUNDS), MANY_BOUNDS), 1)
        start[each + 1] = start[each] + -(-counts[each] // step[each])
    chosen = np.empty((start[lanes], 2))
    at = start[:lanes].copy()
    counts[:] = 0
    for i in range(lane.size):
        each = lane[i]
        if each < EXCLUDE:
            if counts[each] == 0:
                chosen[at[each], 0], chosen[at[each], 1] = bound[2 * i], bound[2 * i + 1]
                at[each] += 1
                counts[each] = step[each]
            counts[each] -= 1
    return start, chosen


@kernel()
def quantiles(values, cuts):
    """At most MAX_CUTS of the values, evenly spread over the distinct ones, ascending; returns how many."""
    values.sort()
    n = 0
    for value in values:
        # NaN is none of them, nor is an infinity.
        if abs(value) < np.inf and (n == 0 or values[n - 1] != value):
            values[n] = value
            n += 1
    kept = min(n, MAX_CUTS)
    for k in range(kept):
        cuts[k] = values[k * n // kept]
    return kept


@kernel()
def share_below(cuts, start, end, expected, seen, publications, weight):
    """For k = 0 … codes: the share of publications whose code on this lane is below k.

    `expected` are the lane's bounds: where somebody looks, publications will be.
    """
    codes = end - start + 1
    # Nothing is certain to be rare: a tenth of the prior is spread evenly over all codes.
    weight[0] = 0.0
    weight[1:] = PRIOR / 10 / codes
    closed = 0
    for k in range(expected.shape[0]):
        closed += abs(expected[k, 0]) < np.inf and abs(expected[k, 1]) < np.inf
    for k in range(expected.shape[0]):
        low, high = expected[k, 0], expected[k, 1]
        if abs(low) < np.inf and abs(high) < np.inf:
            weight[1 + code_of(cuts, start, end, low / 2 + high / 2)] += PRIOR / closed
    for value in seen:
        weight[1 + code_of(cuts, start, end, value)] += 1.0
    for k in range(1, codes + 1):
        weight[k] = weight[k - 1] + weight[k] / (publications + PRIOR)


@kernel("i8[::1](i8[::1],i8)")
def lane_starts(seen_lane, lanes):
    """Where each lane's values begin among those seen, which are in the order of lanes."""
    start = np.zeros(lanes + 1, np.int64)
    for lane in seen_lane:
        if lane < lanes:
            start[lane + 1] += 1
    for each in range(lanes):
        start[each + 1] += start[each]
    return start


@kernel("Tuple((u4[::1],f8[::1],f8[::1]))(u4[::1],f8[::1],i8,i8[::1],f8[::1],i8)")
def cut_lanes(lane, bound, lanes, seen_lane, seen_value, publications):
    """Cuts and weights of every lane: where they start, the cuts, `weight` as in choose_access."""
    begin, chosen = picked(lane, bound, lanes)
    seen_at = lane_starts(seen_lane, lanes)
    start = np.zeros(lanes + 1, np.uint32)
    room = 0
    for each in range(lanes):
        values = 2 * (begin[each + 1] - begin[each]) + seen_at[each + 1] - seen_at[each]
        room += min(values, MAX_CUTS)
    cuts, weight = np.empty(room), np.empty(room + 2 * lanes)
    end = 0
    for each in range(lanes):
        mine, seen = (
            chosen[begin[each] : begin[each + 1]],
            seen_value[seen_at[each] : seen_at[each + 1]],
        )
        values = np.empty(2 * mine.shape[0] + seen.size)
        values[: 2 * mine.shape[0]] = mine.reshape(-1)
        values[2 * mine.shape[0] :] = seen
        first = end
        end += quantiles(values, cuts[first:])
        start[each + 1] = end
        here = weight[first + 2 * each : end + 2 * each + 2]
        share_below(cuts, first, end, mine, seen, publications, here)
    return start, cuts[:end].copy(), weight[: end + 2 * lanes].copy()


@kernel("f8[::1](u4[::1],f8[::1],i8[::1],f8[::1],i8)")
def weigh(start, cuts, seen_lane, seen_value, publications):
    """Fresh weights for cuts that are in use."""
    lanes = start.size - 1
    seen_at = lane_starts(seen_lane, lanes)
    weight = np.empty(cuts.size + 2 * lanes)
    nothing = np.empty((0, 2))
    for each in range(lanes):
        first, end = np.int64(start[each]), np.int64(start[each + 1])
        seen = seen_value[seen_at[each] : seen_at[each + 1]]
        here = weight[first + 2 * each : end + 2 * each + 2]
        share_below(cuts, first, end, nothing, seen, publications, here)
    return weight
