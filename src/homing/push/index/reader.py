"""Reader: one thread's buffers, and a publication's or a batch's way through the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from homing.push.index import blocks
from homing.push.index import kernels as compiled
from homing.push.index.blocks import Words, table_of
from homing.push.index.columns import columns_of
from homing.push.index.kernels import Kernels
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Residual, Vocabulary
from homing.push.index.oracle import matches
from homing.push.index.shapes import Rows, Shapes
from homing.push.values import Value

Ids = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
# A row for each match that a residual check must decide: publication, check, subscription.
Pending = npt.NDArray[np.uint64]

# Publications that go through the pages together: enough to share every page's trip into the
# cache, few enough that their codes stay in it.
CHUNK = 1024
# (publication, subscription) pairs of one chunk held at once, 12 bytes each; past it a chunk is
# halved, down to a single publication, whose answer is as long as it is.
MAX_PAIRS = 1 << 23
_FIRST_PAIRS = 1 << 14
_WORK = 1 << 14
_MATCHES, _PENDING = at.MATCHES, at.PENDING


class View(NamedTuple):
    """The blocks at one moment; the table holds their addresses, the tuple keeps them alive.

    The paged ones are in front, with a table of their own: whoever looks for an id has nothing to do
    with the tails, of which there may be hundreds while a large merge is under way.
    """

    blocks: tuple[Words, ...]
    table: npt.NDArray[np.uint64]
    paged: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, paged: Sequence[Words], tails: Sequence[Words] = ()) -> View:
        blocks = (*paged, *tails)
        table = table_of(blocks)
        return cls(blocks, table, table[: 2 * len(paged)])

    def with_tail(self, block: Words) -> View:
        """One more block."""
        pair = np.array([block.ctypes.data, block.size], np.uint64)
        return View((*self.blocks, block), np.concatenate([self.table, pair]), self.paged)


class Found(NamedTuple):
    """Matches in no particular order: ids, whose they are, and those that need a residual check."""

    ids: Ids
    owners: npt.NDArray[np.int32]
    pending: Pending


class Reader:
    """The buffers of one thread; they grow to what its largest answer needed."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        # What the last call counted, and behind it the sums since `settle`.
        self.counters = np.zeros(2 * at.COUNTERS, np.int64)
        self._counts = memoryview(self.counters.data)
        self._work = np.empty((5, _WORK), np.int32)
        self._found = np.empty(_FIRST_PAIRS, np.uint64)
        self._owners = np.empty(_FIRST_PAIRS, np.int32)
        self._pending = np.empty((64, 3), np.uint64)
        self._column = np.empty(0, np.int32)
        self._lanes = 0
        self._coded = np.empty((1, 64), np.uint16)
        self._desk = self._places()

    def match_row(
        self, kernels: Kernels | None, view: View, row: Rows, known_lanes: int
    ) -> tuple[Ids, Pending | None]:
        """The ids that match one publication, as a copy, and what needs a residual check."""
        if kernels is None:
            found = scan_all(view, row.lanes, row.values, known_lanes)
            return found.ids, found.pending
        counts = self._counts
        self._call(kernels, view, row, known_lanes)
        postponed = counts[_PENDING]
        ids = self._found[: counts[_MATCHES]].copy()
        return ids, self._pending[:postponed] if postponed else None

    def match(
        self,
        kernels: Kernels,
        view: View,
        lanes: npt.NDArray[np.int32],
        values: npt.NDArray[np.float64],
        known_lanes: int,
    ) -> Found | None:
        """All matches of the publications in `values`; None when they are too many at once."""
        if self._coded.shape != values.shape:
            self._coded = np.empty(values.shape, np.uint16)
        if not self._call(kernels, view, Rows.of(lanes, values, self._coded), known_lanes):
            return None
        matches, pending = self._counts[_MATCHES], self._counts[_PENDING]
        return Found(self._found[:matches], self._owners[:matches], self._pending[:pending])

    def discard(self) -> None:
        """The last call's answer is not used, and not counted."""
        self.counters[at.COUNTERS :] -= self.counters[: at.COUNTERS]
        self.counters[: at.COUNTERS] = 0

    def settle(self, totals: npt.NDArray[np.int64]) -> None:
        """Add what was counted since the last time."""
        totals += self.counters[at.COUNTERS :]
        self.counters[at.COUNTERS :] = 0

    def _call(self, kernels: Kernels, view: View, rows: Rows, known_lanes: int) -> bool:
        """Run the kernel, with larger buffers if it must be; False: too many at once."""
        if self._lanes < known_lanes:
            self._lanes = known_lanes + 64
            self._column = np.full(self._lanes, at.NONE, np.int32)
            self._column[at.ALWAYS] = at.ALWAYS
            self._desk = self._places()
        counts = self._counts
        while True:
            kernels.match.match_blocks(view.table, rows.places, self._desk)
            matches, pending = counts[_MATCHES], counts[_PENDING]
            # The kernels write one more before they know whether it counts.
            if matches < len(self._found) and pending <= len(self._pending):
                return True
            self.counters[at.COUNTERS :] -= self.counters[: at.COUNTERS]
            if matches + pending > MAX_PAIRS and len(rows.values) > 1:
                return False
            self._grow(matches, pending)

    def _grow(self, matches: int, pending: int) -> None:
        if matches >= self._found.size:
            self._found = np.empty(matches + matches // 2 + 1, np.uint64)
            self._owners = np.empty(matches + matches // 2 + 1, np.int32)
        if pending > len(self._pending):
            self._pending = np.empty((pending + pending // 2, 3), np.uint64)
        self._desk = self._places()

    def _places(self) -> npt.NDArray[np.uint64]:
        """Where all the buffers are, for the kernel."""
        desk = np.empty(at.DESK, np.uint64)
        desk[at.COLUMN_AT], desk[at.COLUMN_SIZE] = self._column.ctypes.data, self._column.size
        desk[at.WORK_AT], desk[at.WORK_SIZE] = self._work.ctypes.data, self._work.shape[1]
        desk[at.FOUND_AT], desk[at.FOUND_SIZE] = self._found.ctypes.data, self._found.size
        desk[at.OWNERS_AT] = self._owners.ctypes.data
        desk[at.PENDING_AT], desk[at.PENDING_SIZE] = self._pending.ctypes.data, len(self._pending)
        desk[at.COUNTERS_AT] = self.counters.ctypes.data
        return desk


def in_order(
    found: Found, rows: Sequence[Mapping[str, Value]], residuals: Mapping[int, Residual]
) -> tuple[Offsets, Ids]:
    """Everything found, publication by publication, without what a residual check turns down."""
    ids, owners = found.ids, found.owners
    if len(found.pending):
        passed = checked(found.pending, rows, residuals)
        ids = np.concatenate([ids, passed[:, 2]])
        owners = np.concatenate([owners, passed[:, 0].astype(np.int32)])
    offsets = np.empty(len(rows) + 1, np.int64)
    kernels = compiled.ready()
    if kernels is None:
        order = np.argsort(owners, kind="stable")
        offsets[:] = np.searchsorted(owners[order], np.arange(len(rows) + 1))
        return offsets, ids[order]
    sorted_ids = np.empty(ids.size, np.uint64)
    kernels.match.by_publication(ids, owners, ids.size, offsets, sorted_ids)
    return offsets, sorted_ids


def end_to_end(parts: Sequence[tuple[Offsets, Ids]], count: int) -> tuple[Offsets, Ids]:
    """The answers to one part of `count` publications after the other as one answer."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.zeros(count + 1, np.int64)
    if parts:
        np.cumsum(np.concatenate([np.diff(some) for some, _ in parts]), out=offsets[1:])
    return offsets, np.concatenate([np.empty(0, np.uint64), *(ids for _, ids in parts)])


def checked(
    pending: Pending, rows: Sequence[Mapping[str, Value]], residuals: Mapping[int, Residual]
) -> Pending:
    """Those that their residual check lets through; each check is asked once a publication."""
    passed: list[bool] = []
    asked: dict[tuple[int, int], bool] = {}
    for event, residual in pending[:, :2].tolist():
        answer = asked.get((event, residual))
        if answer is None:
            # A check that is gone had its last subscription removed while this was under way.
            check = residuals.get(residual)
            answer = check is not None and matches(dict(check), rows[event])
            asked[event, residual] = answer
        passed.append(answer)
    kept: Pending = pending[np.array(passed, np.bool_)]
    return kept


def scan_all(
    view: View, lanes: npt.NDArray[np.int32], values: npt.NDArray[np.float64], known_lanes: int
) -> Found:
    """The same answer by numpy, publication by publication, while there are no kernels."""
    ids: list[Ids] = []
    owners: list[npt.NDArray[np.int32]] = []
    pending: list[npt.NDArray[np.uint64]] = []
    dense = np.full(known_lanes, nan)
    dense[at.ALWAYS] = 0.0
    for event, row in enumerate(values):
        dense[lanes] = row[at.NONE + 1 :]
        for block in view.blocks:
            found, residual = blocks.scan(block, dense)
            plain = residual == at.NO_RESIDUAL
            ids.append(found[plain])
            owners.append(np.full(int(plain.sum()), event, np.int32))
            asked = found[~plain]
            rows = np.empty((asked.size, 3), np.uint64)
            rows[:, 0], rows[:, 1], rows[:, 2] = event, residual[~plain], asked
            pending.append(rows)
    nothing = np.empty(0, np.uint64)
    return Found(
        np.concatenate([nothing, *ids]),
        np.concatenate([np.empty(0, np.int32), *owners]),
        np.concatenate([nothing.reshape(0, 3), *pending]),
    )


def cut_up(rows: Any, size: int) -> list[Any]:
    """Publications in parts of this size at most, the last part first."""
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)][::-1]


def rows_matrix(
    rows: Sequence[Mapping[str, Value]], shapes: Shapes, vocabulary: Vocabulary
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Publications as lanes and their values, the fastest way that they allow."""
    shaped = shapes.matrix(rows, vocabulary)
    if shaped is not None:
        return shaped
    columns = columns_of(rows, vocabulary)
    return as_matrix(rows, vocabulary) if columns is None else columns.matrix(vocabulary)


def as_matrix(
    rows: Iterable[Mapping[str, Value]], vocabulary: Vocabulary
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
    """Publications that have little in common, row by row, as the columns of lanes that any of them has."""
    lanes: list[int] = []
    values: list[float] = []
    ends: list[int] = []
    for row in rows:
        some_lanes, some_values = vocabulary.row(row)
        lanes += some_lanes
        values += some_values
        ends.append(len(lanes))
    all_lanes = np.array(lanes, np.int32)
    distinct, column = np.unique(all_lanes, return_inverse=True)
    matrix = np.full((len(ends), at.NONE + 1 + distinct.size), nan)
    matrix[:, at.ALWAYS] = 0.0
    if lanes:
        whose = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        matrix[whose, column + at.NONE + 1] = values
    return distinct.astype(np.int32), matrix
