"""From boxes to a block: duplicates joined, entries arranged in strips and pages, bits set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index.blocks import Words, aligned, section32
from homing.push.index.kernels import layout as at
from homing.push.index.kernels import load
from homing.push.index.planner import Breathe, Cuts, Seen, plan_weights

# Whoever imports this module builds, and building needs the kernels.
kernel: Any = load().build
filling: Any = load().pages

# A group of entries with the same access lanes needs this many to be worth pages of its own.
MIN_GROUP = at.SLOTS // 4
# Entries looked at when a plan is judged.
DRIFT_ENTRIES = 4096
# Pages filled between two breaths, some tens of milliseconds.
PAGES_A_BREATH = 64


class Boxes(NamedTuple):
    """Entries outside of any block: the arrays of layout.py, without pages."""

    first: npt.NDArray[np.uint32]
    subs: npt.NDArray[np.uint32]
    residual: npt.NDArray[np.uint32]
    lane: npt.NDArray[np.uint32]
    bound: npt.NDArray[np.float64]
    ids: npt.NDArray[np.uint64]


def collect(blocks: list[Words]) -> Boxes:
    """What lives in these blocks."""
    total = sum((kernel.living(block) for block in blocks), np.zeros(3, np.int64))
    entries, bounds, subscribers = (int(n) for n in total)
    boxes = Boxes(
        np.zeros(entries + 1, np.uint32),
        np.zeros(entries + 1, np.uint32),
        np.empty(entries, np.uint32),
        np.empty(bounds, np.uint32),
        np.empty(2 * bounds, np.float64),
        np.empty(subscribers, np.uint64),
    )
    used = np.zeros(3, np.int64)
    for block in blocks:
        kernel.gather(block, used, *boxes)
    # Fewer than were counted when the writer removed some in between.
    entries, bounds, subscribers = (int(n) for n in used)
    return Boxes(
        boxes.first[: entries + 1],
        boxes.subs[: entries + 1],
        boxes.residual[:entries],
        boxes.lane[:bounds],
        boxes.bound[: 2 * bounds],
        boxes.ids[:subscribers],
    )


def joined(boxes: Boxes) -> Boxes:
    """The same boxes with every distinct one kept once, with the subscribers of all."""
    entries = (boxes.first, boxes.residual, boxes.lane, boxes.bound)
    hashes = np.empty(boxes.residual.size, np.uint64)
    kernel.fingerprints(*entries, hashes)
    order = np.argsort(hashes)
    leader = np.empty(order.size, np.int64)
    kernel.leaders(hashes, order, *entries, leader)
    kept = np.flatnonzero(leader == np.arange(leader.size))
    if kept.size == leader.size:
        return boxes
    by_leader = np.argsort(leader, kind="stable")
    counts = _sizes(boxes.subs)
    ids = boxes.ids[_elements(boxes.subs, by_leader)]
    per_leader = np.bincount(leader, weights=counts, minlength=leader.size)[kept]
    picked = _elements(boxes.first, kept)
    return Boxes(
        _starts(_sizes(boxes.first)[kept]),
        _starts(per_leader.astype(np.int64)),
        boxes.residual[kept],
        boxes.lane[picked],
        boxes.bound.reshape(-1, 2)[picked].reshape(-1),
        ids,
    )


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    starts = np.zeros(counts.size + 1, np.uint32)
    np.cumsum(counts, out=starts[1:])
    return starts


def _sizes(starts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    signed = starts.astype(np.int64)
    return signed[1:] - signed[:-1]


def _elements(starts: npt.NDArray[np.uint32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The element numbers of these rows of a ragged array, row after row."""
    numbers = np.empty(kernel.elements_in(starts, rows), np.int64)
    kernel.fill_elements(starts, rows, numbers)
    return numbers


class Arrangement(NamedTuple):
    """Which entry sits in which slot (-1: none), and the strips and boxes that lead there."""

    entries: npt.NDArray[np.int64]
    strips: npt.NDArray[np.uint64]
    boxes: npt.NDArray[np.uint16]


def arrange(
    access: npt.NDArray[np.int32],
    spans: npt.NDArray[np.uint16],
    shares: npt.NDArray[np.float64],
    breathe: Breathe,
) -> Arrangement:
    """Entries with the same access lanes and neighbouring codes into the same page.

    Each group of lanes (a, b) is cut along a into strips of about √pages pages, each strip along
    b into pages: two-dimensional tiles, so that a publication meets few of them. A group on one
    lane is cut along that lane only.
    """
    groups, lanes = _grouped(access, spans, shares, breathe)
    order = np.lexsort((spans[:, 0].astype(np.int32) + spans[:, 1], groups))
    sizes = np.bincount(groups, minlength=len(lanes)).astype(np.int64)
    pages = -(-sizes // at.SLOTS)
    per_strip = np.maximum(np.where(lanes[:, 1] > 0, np.sqrt(pages).round(), 1), 1).astype(np.int64)
    rank = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    strip_size = at.SLOTS * per_strip
    strips = -(-pages // per_strip)
    strip = (np.cumsum(strips) - strips)[groups[order]] + rank // strip_size[groups[order]]
    breathe()
    order = order[np.lexsort((spans[order, 2].astype(np.int32) + spans[order, 3], strip))]
    return _tiled(order, np.sort(strip), np.repeat(lanes, strips, axis=0), spans)


def _grouped(
    access: npt.NDArray[np.int32],
    spans: npt.NDArray[np.uint16],
    shares: npt.NDArray[np.float64],
    breathe: Breathe,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """A group for each entry, and its lanes.

    A publication meets (1 + w√p)² of p pages tiled on two lanes that let a share w through each,
    and wp of p pages in strips on one lane: pairs pay from 1 / (√w - w)² pages on. Smaller groups
    fall back to their best lane, and what is left of those to no lane at all.
    """
    swap = (access[:, 0] > access[:, 1]) & (access[:, 1] > 0)
    _swapped(access, spans, swap)
    inverse, counts = _counted(access)
    w = np.clip(np.bincount(inverse, shares) / counts, 1e-4, 0.5)
    single = (counts < at.SLOTS / (np.sqrt(w) - w) ** 2)[inverse]
    _swapped(access, spans, single & swap)
    access[single, 1] = 0
    spans[single, 2:] = 0
    breathe()
    inverse, counts = _counted(access)
    small = (counts < MIN_GROUP)[inverse]
    access[small] = 0
    spans[small] = 0
    breathe()
    inverse, counts = _counted(access)
    lanes = np.zeros((counts.size, 2), np.int32)
    lanes[inverse] = access
    return inverse, lanes


def _counted(access: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The number of each entry's pair of lanes among all pairs, ascending, and their counts."""
    key = access[:, 0].astype(np.int64) << 32 | access[:, 1]
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    return inverse.astype(np.int64), counts.astype(np.int64)


def _swapped(
    access: npt.NDArray[np.int32], spans: npt.NDArray[np.uint16], which: npt.NDArray[np.bool_]
) -> None:
    access[which] = access[which][:, ::-1]
    spans[which] = spans[which][:, [2, 3, 0, 1]]


def _tiled(
    order: npt.NDArray[np.int64],
    strip: npt.NDArray[np.int64],
    lanes: npt.NDArray[np.int32],
    spans: npt.NDArray[np.uint16],
) -> Arrangement:
    sizes = np.bincount(strip, minlength=len(lanes)).astype(np.int64)
    pages = -(-sizes // at.SLOTS)
    first_page = np.cumsum(pages) - pages
    rank = np.arange(order.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = first_page[strip] * at.SLOTS + rank
    total = int(pages.sum())
    entries = np.full(total * at.SLOTS, -1, np.int64)
    entries[place] = order
    begins = np.flatnonzero(np.diff(place >> at.SLOT_BITS, prepend=-1))
    boxes = np.empty((total, 4), np.uint16)
    for side in range(4):
        fold = np.maximum if side & 1 else np.minimum
        boxes[:, side] = fold.reduceat(spans[order, side], begins)
    strips = np.zeros((len(lanes) + 1, at.STRIP_WORDS), np.uint64)
    strips[:-1, 0] = lanes[:, 0]
    strips[:-1, 1] = np.minimum.reduceat(boxes[:, 0], first_page)
    strips[:-1, 2] = np.maximum.reduceat(boxes[:, 1], first_page)
    strips[:-1, 3] = lanes[:, 1]
    strips[:-1, 4] = first_page
    strips[-1, 4] = total
    return Arrangement(entries, strips.reshape(-1), boxes.reshape(-1))


def paged_block(boxes: Boxes, cuts: Cuts, breathe: Breathe) -> Words:
    """A finished, paged block of these boxes; `breathe` is called between the steps."""
    boxes = joined(boxes)
    breathe()
    count = boxes.residual.size
    access = np.empty((count, 2), np.int32)
    spans = np.empty((count, 4), np.uint16)
    shares = np.empty(count, np.float64)
    kernel.choose_access(boxes.first, boxes.lane, boxes.bound, *cuts, spans, access, shares)
    plan = arrange(access, spans, shares, breathe)
    breathe()
    pages = plan.entries.size // at.SLOTS
    dimensions = np.zeros((pages, at.MAX_DIMENSIONS), np.int32)
    counts = np.zeros(pages, np.int32)
    strips = plan.strips.reshape(-1, at.STRIP_WORDS)
    per_strip = _sizes(strips[:, 4])
    lanes = np.repeat(strips[:-1, [0, 3]].astype(np.int32), per_strip, axis=0)
    kernel.choose_dimensions(
        plan.entries, boxes.first, boxes.lane, cuts.start.size - 1, lanes, dimensions, counts
    )
    sizes = (plan.entries >= 0).reshape(-1, at.SLOTS).sum(axis=1)
    body = np.zeros(pages + 1, np.uint64)
    sketches = at.SKETCH * sizes
    lines = at.LINE * (1 + sizes) + at.HEAD + sketches + -sketches % at.LINE
    np.cumsum(lines + counts.astype(np.int64) * at.ROW_WORDS, out=body[1:])
    block = _laid_out(boxes, cuts, plan, body, breathe)
    offset = int(block[at.PAGE])
    for first in range(0, pages, PAGES_A_BREATH):
        some = slice(first, first + PAGES_A_BREATH)
        filling.fill_pages(
            block[offset + int(body[first]) :],
            plan.entries[at.SLOTS * some.start : at.SLOTS * some.stop],
            *boxes,
            cuts.start,
            cuts.cut,
            plan.boxes.reshape(-1, 4)[some],
            lanes[some],
            dimensions[some],
            counts[some],
            sizes[some],
        )
        breathe()
    return block


def drift(block: Words, seen: Seen, breathe: Breathe) -> float:
    """How many times more publications pass the block's access lanes than the best lanes."""
    lanes = int(block[at.LANES])
    start = section32(block, at.CUTSTART, lanes + 1)
    cut = block.view(np.float64)[int(block[at.CUT]) :][: int(start[-1])]
    step = max(1, int(block[at.ENTRIES]) // DRIFT_ENTRIES)
    now, best = kernel.drift(block, plan_weights(start, cut, seen, breathe), step)
    return float(now / best) if best else 1.0


def _laid_out(boxes: Boxes, cuts: Cuts, plan: Arrangement, body: Words, breathe: Breathe) -> Words:
    """The block with every section in place but the pages' bodies still empty."""
    breathe()
    real = plan.entries >= 0
    chosen = plan.entries[real]
    ids = boxes.ids[_elements(boxes.subs, chosen)]
    bounds = _elements(boxes.first, chosen)
    cells = 1 << max(int(ids.size * 1.5) - 1, 1).bit_length()
    slots = np.zeros(cells, np.uint32)
    kernel.fill_slots(ids, slots)
    entry = np.zeros((real.size + 1, 4), np.uint32)
    entry[:, 0] = _starts(_spread(boxes.first, chosen, real))
    entry[:, 1] = _starts(_spread(boxes.subs, chosen, real))
    entry[:-1, 2] = at.NO_RESIDUAL
    entry[:-1, 2][real] = boxes.residual[chosen]
    bound = np.empty((bounds.size, 3), np.uint64)
    kernel.lay_bounds(bounds, boxes.lane, boxes.bound, bound)
    breathe()
    sections: dict[int, npt.NDArray[Any]] = {
        at.ENTRY: entry,
        at.BOUND: bound,
        at.ID: ids,
        at.DEAD: np.zeros(ids.size, np.uint8),
        at.SLOT: slots,
        at.CUTSTART: cuts.start,
        at.CUT: cuts.cut,
        at.STRIP: plan.strips,
        at.BOX: plan.boxes,
        at.PAGEAT: body,
    }
    block = assembled(sections, int(body[-1]))
    breathe()
    block[at.ENTRIES] = real.size
    block[at.BOUNDS] = bounds.size
    block[at.SUBSCRIBERS] = ids.size
    block[at.PAGES] = real.size // at.SLOTS
    block[at.STRIPS] = plan.strips.size // at.STRIP_WORDS - 1
    block[at.LANES] = cuts.start.size - 1
    block[at.HASHMASK] = cells - 1
    return block


def _spread(
    starts: npt.NDArray[np.uint32], chosen: npt.NDArray[np.int64], real: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Element counts slot by slot, 0 where a slot is empty."""
    counts = np.zeros(real.size, np.int64)
    counts[real] = _sizes(starts)[chosen]
    return counts


def assembled(sections: dict[int, npt.NDArray[Any]], page_words: int) -> Words:
    """One array of words with a header that tells where each section starts."""
    offset = at.HEADER
    places: dict[int, int] = {}
    for section, data in sections.items():
        places[section] = offset
        offset += -(-data.nbytes // 8)
    offset += -offset % at.LINE
    block = aligned(offset + page_words)
    octets = block.view(np.uint8)
    for section, data in sections.items():
        block[section] = places[section]
        flat = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        kernel.copy(flat, octets[8 * places[section] :])
    block[at.MAGIC] = at.VERSION
    block[at.WORDS] = block.size
    block[at.PAGE] = offset
    return block
