"""What an index holds and what matching costs, for people and for the metrics page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from homing.push.index.blocks import Words, bounds_of, dead_of, entries_of
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import NO_LANE, Vocabulary
from homing.push.index.planner import Sample

# Bounds per attribute whose selectivity is averaged, and bounds of a block that are looked at:
# whoever asks every second must not notice how large the index is.
_LOOKED_AT = 1000
_MAX_BOUNDS = 1 << 16


class AttributeStats(msgspec.Struct, frozen=True):
    """One attribute: about how many boxes bound it, and what share of publications a bound passes."""

    name: str
    bounds: int
    selectivity: float


class Stats(msgspec.Struct, frozen=True):
    """Counts of what is held; per-event figures are means over all publications so far."""

    subscriptions: int
    entries: int
    boxes: int
    removed: int
    blocks: int
    pages: int
    bytes: int
    vocabulary: int
    publications: int
    matches: int
    pages_per_event: float
    candidates_per_event: float
    false_candidates_per_event: float
    attributes: tuple[AttributeStats, ...]


def gathered(
    count: int,
    blocks: Sequence[Words],
    vocabulary: Vocabulary,
    sample: Sample,
    publications: int,
    totals: npt.NDArray[np.int64],
) -> Stats:
    """The statistics of an index with these blocks."""
    per_event = totals / max(publications, 1)
    return Stats(
        subscriptions=count,
        entries=sum(_real_entries(block) for block in blocks),
        boxes=sum(int(block[at.SUBSCRIBERS]) for block in blocks),
        removed=sum(_removed(block) for block in blocks),
        blocks=len(blocks),
        pages=sum(int(block[at.PAGES]) for block in blocks),
        bytes=sum(block.nbytes for block in blocks),
        vocabulary=vocabulary.size,
        publications=publications,
        matches=int(totals[at.MATCHES]),
        pages_per_event=float(per_event[at.PAGES_VISITED]),
        candidates_per_event=float(per_event[at.CANDIDATES]),
        false_candidates_per_event=float(per_event[at.FALSE_CANDIDATES]),
        attributes=_attributes(blocks, vocabulary, sample),
    )


def _real_entries(block: Words) -> int:
    return int(np.count_nonzero(np.diff(entries_of(block)[:, 1])))


def _removed(block: Words) -> int:
    return int(block[at.DEADCOUNT]) if block[at.PAGES] else int(dead_of(block).sum())


def _attributes(
    blocks: Sequence[Words], vocabulary: Vocabulary, sample: Sample
) -> tuple[AttributeStats, ...]:
    names = {
        lane: name
        for name, known in list(vocabulary.attributes.items())
        for lane in (
            known.number,
            known.token,
            known.present,
            known.absent,
            *known.prefixes.values(),
        )
        if lane != NO_LANE
    }
    lanes, bounds, factor = _some_bounds(blocks)
    if not lanes.size:
        return ()
    order = np.argsort(lanes, kind="stable")
    distinct, begins = np.unique(lanes[order], return_index=True)
    seen = sample.by_lane()
    counts: dict[str, int] = {}
    shares: dict[str, list[float]] = {}
    for lane, rows in zip(distinct.tolist(), np.split(order, begins[1:]), strict=True):
        name = names.get(lane & at.LANE_MASK)
        if name is None:
            continue
        counts[name] = counts.get(name, 0) + int(factor[rows].sum())
        values = np.sort(seen.values(lane))
        if seen.publications and lane < at.EXCLUDE:
            some = bounds[rows[:_LOOKED_AT]]
            inside = np.searchsorted(values, some[:, 1], "right") - np.searchsorted(
                values, some[:, 0], "left"
            )
            shares.setdefault(name, []).append(float(inside.mean()) / seen.publications)
    return tuple(
        AttributeStats(name, counts[name], float(np.mean(shares.get(name, [1.0]))))
        for name in sorted(counts)
    )


def _some_bounds(
    blocks: Sequence[Words],
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """At most _MAX_BOUNDS of each block's bounds, and how many each of them stands for."""
    lanes, bounds, factors = [], [], []
    for block in blocks:
        lane, bound = bounds_of(block)
        step = len(lane) // _MAX_BOUNDS + 1
        lanes.append(lane[::step])
        bounds.append(bound[::step])
        factors.append(np.full(len(lanes[-1]), step, np.int64))
    return np.concatenate(lanes), np.concatenate(bounds), np.concatenate(factors)
