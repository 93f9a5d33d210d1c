"""From boxes to a block: duplicates joined, entries arranged in strips and pages, bits set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index.blocks import Words, aligned, section32, table_of
from homing.push.index.kernels import layout as at
from homing.push.index.kernels import load
from homing.push.index.planner import TOLERABLE, Breathe, Cuts, Seen, plan_weights

# Whoever imports this module builds, and building needs the kernels.
kernel: Any = load().build
arranging: Any = load().arrange
filling: Any = load().pages

# Entries looked at when a plan is judged.
DRIFT_ENTRIES = 4096
# Pages filled, and entries whose lanes are chosen, between two breaths: some tens of milliseconds.
PAGES_A_BREATH = 64
ENTRIES_A_BREATH = 1 << 17


class Boxes(NamedTuple):
    """Entries outside of any block: the arrays of layout.py, without pages."""

    first: npt.NDArray[np.uint32]
    subs: npt.NDArray[np.uint32]
    residual: npt.NDArray[np.uint32]
    lane: npt.NDArray[np.uint32]
    bound: npt.NDArray[np.float64]
    ids: npt.NDArray[np.uint64]


def collect(blocks: Sequence[Words]) -> Boxes:
    """What lives in these blocks."""
    table, total = table_of(blocks), np.zeros(3, np.int64)
    kernel.living(table, total)
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
    kernel.gather_all(table, used, *boxes)
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
    leader = np.empty(boxes.residual.size, np.int64)
    cells = np.zeros(_cells_for(leader.size), np.uint64)
    count = kernel.leaders(boxes.first, boxes.residual, boxes.lane, boxes.bound, leader, cells)
    if count == leader.size:
        return boxes
    kept = np.flatnonzero(leader == np.arange(leader.size))
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


def _cells_for(count: int) -> int:
    """The size of an open-addressing table for so many: two thirds full at most, a power of two."""
    return 1 << max(int(count * 1.5) - 1, 1).bit_length()


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
) -> Arrangement:
    """Entries with the same access lanes and neighbouring codes into the same page.

    Each group of lanes (a, b) is cut along a into strips of about √pages pages, each strip along
    b into pages: two-dimensional tiles, so that a publication meets few of them. A group on one
    lane is cut along that lane only.

    A publication meets (1 + w√p)² of p pages tiled on two lanes that let a share w through each,
    and wp of p pages in strips on one lane: pairs pay from 1 / (√w - w)² pages on. Smaller groups
    fall back to their best lane, and what is left of those to no lane at all.
    """
    count = len(access)
    order, strip, room = (np.empty(count, np.int64) for _ in range(3))
    strips = arranging.rank(
        access, spans, shares, strip, order, room, np.empty(_cells_for(count), np.uint32)
    )
    pages = int((-(-strips[:, 2] // at.SLOTS)).sum())
    plan = Arrangement(
        np.empty(pages * at.SLOTS, np.int64),
        np.empty((len(strips) + 1, at.STRIP_WORDS), np.uint64),
        np.empty((pages, 4), np.uint16),
    )
    arranging.tile(order, strips, spans, *plan)
    return plan


def paged_block(boxes: Boxes, cuts: Cuts, breathe: Breathe) -> Words:
    """A finished, paged block of these boxes; `breathe` is called between the steps."""
    boxes = joined(boxes)
    breathe()
    plan = arrange(*_access(boxes, cuts, breathe))
    breathe()
    pages = len(plan.boxes)
    dimensions = np.zeros((pages, at.MAX_DIMENSIONS), np.int32)
    counts = np.zeros(pages, np.int32)
    per_strip = _sizes(plan.strips[:, 4])
    lanes = np.repeat(plan.strips[:-1, [0, 3]].astype(np.int32), per_strip, axis=0)
    kernel.choose_dimensions(
        plan.entries, boxes.first, boxes.lane, cuts.start.size - 1, lanes, dimensions, counts
    )
    sizes = (plan.entries >= 0).reshape(-1, at.SLOTS).sum(axis=1)
    body = np.zeros(pages + 1, np.uint64)
    sketches = at.SKETCH * sizes
    lines = at.LINE * (1 + sizes) + at.HEAD + sketches + -sketches % at.LINE
    np.cumsum(lines + counts.astype(np.int64) * at.ROW_WORDS, out=body[1:])
    block = _laid_out(boxes, cuts, plan, body)
    breathe()
    offset = int(block[at.PAGE])
    for first in range(0, pages, PAGES_A_BREATH):
        some = slice(first, first + PAGES_A_BREATH)
        filling.fill_pages(
            block[offset + int(body[first]) :],
            plan.entries[at.SLOTS * some.start : at.SLOTS * some.stop],
            *boxes,
            cuts.start,
            cuts.cut,
            plan.boxes[some],
            lanes[some],
            dimensions[some],
            counts[some],
            sizes[some],
        )
        breathe()
    return block


def _access(
    boxes: Boxes, cuts: Cuts, breathe: Breathe
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint16], npt.NDArray[np.float64]]:
    """Each entry's lanes, its codes on them, and the share of publications that passes the first."""
    count = boxes.residual.size
    access = np.empty((count, 2), np.int32)
    spans = np.empty((count, 4), np.uint16)
    shares = np.empty(count, np.float64)
    for begin in range(0, count, ENTRIES_A_BREATH):
        some = slice(begin, begin + ENTRIES_A_BREATH)
        kernel.choose_access(
            boxes.first[begin:],
            boxes.lane,
            boxes.bound,
            *cuts,
            spans[some],
            access[some],
            shares[some],
        )
        if some.stop < count:
            breathe()
    return access, spans, shares


def drift(block: Words, seen: Seen) -> float:
    """How many times more publications pass the block's access lanes than the best lanes."""
    lanes = int(block[at.LANES])
    start = section32(block, at.CUTSTART, lanes + 1)
    cut = block.view(np.float64)[int(block[at.CUT]) :][: int(start[-1])]
    step = max(1, int(block[at.ENTRIES]) // DRIFT_ENTRIES)
    now, best = kernel.drift(block, plan_weights(start, cut, seen), step)
    return float(now / best) if best else 1.0


def stale(blocks: Sequence[Words], seen: Seen) -> list[int]:
    """Which of these blocks have a plan that has become much worse."""
    return [
        i
        for i, block in enumerate(blocks)
        if drift(block, seen) > TOLERABLE * float(block.view(np.float64)[at.PLANNED])
    ]


def _laid_out(boxes: Boxes, cuts: Cuts, plan: Arrangement, body: Words) -> Words:
    """The block with every section in place but the pages' bodies still empty."""
    slots, bounds, subscribers = plan.entries.size, boxes.lane.size, boxes.ids.size
    cells = _cells_for(subscribers)
    given: dict[int, npt.NDArray[Any]] = {
        at.CUTSTART: cuts.start,
        at.CUT: cuts.cut,
        at.STRIP: plan.strips,
        at.BOX: plan.boxes,
        at.PAGEAT: body,
    }
    octets = {
        at.ENTRY: 16 * (slots + 1),
        at.BOUND: 24 * bounds,
        at.ID: 8 * subscribers,
        at.DEAD: subscribers,
        at.SLOT: 4 * cells,
        **{section: data.nbytes for section, data in given.items()},
    }
    block = _with_sections(octets, int(body[-1]))
    for section, data in given.items():
        begin = 8 * int(block[section])
        block.view(np.uint8)[begin : begin + data.nbytes] = data.reshape(-1).view(np.uint8)
    block[at.ENTRIES] = slots
    block[at.BOUNDS] = bounds
    block[at.SUBSCRIBERS] = subscribers
    block[at.PAGES] = len(plan.boxes)
    block[at.STRIPS] = len(plan.strips) - 1
    block[at.LANES] = cuts.start.size - 1
    block[at.HASHMASK] = cells - 1
    kernel.lay_out(block, plan.entries, *boxes)
    return block


def _with_sections(octets: dict[int, int], page_words: int) -> Words:
    """Zeroed words with a header that tells where each section starts."""
    offset = at.HEADER
    places: dict[int, int] = {}
    for section, size in octets.items():
        places[section] = offset
        offset += -(-size // 8)
    offset += -offset % at.LINE
    block = aligned(offset + page_words)
    for section, place in places.items():
        block[section] = place
    block[at.MAGIC] = at.VERSION
    block[at.WORDS] = block.size
    block[at.PAGE] = offset
    return block
