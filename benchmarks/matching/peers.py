"""Peers on the same workloads: numpy brute force, counting over segment trees, a DuckDB range join.

They know the numeric workloads only (ten ranges and one string), which spares them the general
attributes that the index pays for.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from benchmarks.matching.workloads import (
    BLOCK,
    NUMERIC,
    TEXTS,
    Workload,
    numeric_publications,
    ranges,
    zipf,
)

NO_TEXT = -1


class Table:
    """A workload's subscriptions as a dense table of bounds, open ones infinite."""

    def __init__(self, workload: Workload) -> None:
        count = workload.subscriptions
        self.low = np.full((count, NUMERIC), -np.inf)
        self.high = np.full((count, NUMERIC), np.inf)
        self.text = np.empty(count, np.int64)
        for seed, begin in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - begin)
            drawn = ranges(workload, seed, size)
            row, j = np.nonzero(drawn.used)
            self.low[begin + row, drawn.attributes[row, j]] = drawn.low[row, j]
            self.high[begin + row, drawn.attributes[row, j]] = drawn.high[row, j]
            self.text[begin : begin + size] = drawn.text


def publications(
    workload: Workload, count: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The same publications as workloads.publications gives, as numbers."""
    chance = np.random.default_rng((3, workload.skewed))
    texts = chance.choice(TEXTS, count, p=zipf()).astype(np.int64)
    return numeric_publications(workload, count), texts


class Brute:
    """numpy: every bound of every subscription."""

    name = "numpy brute force"

    def __init__(self, table: Table) -> None:
        self.low = np.ascontiguousarray(table.low.T)
        self.high = np.ascontiguousarray(table.high.T)
        self.text = table.text

    def match(self, numbers: npt.NDArray[np.float64], text: int) -> npt.NDArray[np.int64]:
        """The ids that one publication satisfies."""
        passes = (self.text == NO_TEXT) | (self.text == text)
        for attribute in range(NUMERIC):
            passes &= self.low[attribute] <= numbers[attribute]
            passes &= numbers[attribute] <= self.high[attribute]
        return np.flatnonzero(passes)


class SegmentTrees:
    """A segment tree per attribute; whoever is found as often as it has bounds matches."""

    name = "segment trees, counting (numba)"

    def __init__(self, table: Table) -> None:
        closed = np.isfinite(table.low)
        self.needed = (closed.sum(axis=1) + (table.text != NO_TEXT)).astype(np.int32)
        self.counts = np.zeros(len(table.text), np.int32)
        self.trees = [
            _tree(np.flatnonzero(closed[:, a]), table.low[:, a], table.high[:, a])
            for a in range(NUMERIC)
        ]
        by_text = np.argsort(table.text, kind="stable")
        self.text_ids = by_text.astype(np.int32)
        self.text_start = np.searchsorted(table.text[by_text], np.arange(TEXTS + 1))
        self.found = np.empty(len(table.text), np.int32)

    def match(self, numbers: npt.NDArray[np.float64], text: int) -> npt.NDArray[np.int32]:
        """The ids that one publication satisfies."""
        self.counts[:] = 0
        total = 0
        for (points, start, ids), value in zip(self.trees, numbers, strict=True):
            leaf = 2 * int(np.searchsorted(points, value))
            leaf -= not (leaf < 2 * len(points) and points[leaf // 2] == value)
            if leaf >= 0:
                total = _count(leaf, start, ids, self.counts, self.needed, self.found, total)
        mine = self.text_ids[self.text_start[text] : self.text_start[text + 1]]
        total = _tally(mine, self.counts, self.needed, self.found, total)
        return self.found[:total]


def _tree(
    which: npt.NDArray[np.int64], low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> tuple[Any, Any, Any]:
    """Leaves are the end points and the gaps between them; a node lists who covers all of it."""
    points = np.unique(np.concatenate([low[which], high[which]]))
    left = 2 * np.searchsorted(points, low[which])
    right = 2 * np.searchsorted(points, high[which]) + 1
    size = 1 << max(2 * len(points) - 1, 1).bit_length()
    start = np.zeros(2 * size + 1, np.int64)
    _cover(left, right, size, start, which, np.empty(0, np.int32), True)
    np.cumsum(start, out=start)
    ids = np.empty(start[-1], np.int32)
    _cover(left, right, size, start.copy(), which, ids, False)
    return points, start, ids


@numba.njit(cache=True)
def _cover(left, right, size, start, which, ids, counting):
    for k in range(which.size):
        a, b = left[k] + size, right[k] + size
        while a < b:
            for node, odd in ((a, a & 1), (b - 1, b & 1)):
                if odd:
                    if counting:
                        start[node + 1] += 1
                    else:
                        ids[start[node]] = which[k]
                        start[node] += 1
            a = (a + (a & 1)) >> 1
            b = (b - (b & 1)) >> 1


@numba.njit(cache=True)
def _tally(mine, counts, needed, found, total):
    for identity in mine:
        counts[identity] += 1
        if counts[identity] == needed[identity]:
            found[total] = identity
            total += 1
    return total


@numba.njit(cache=True)
def _count(leaf, start, ids, counts, needed, found, total):
    node = leaf + (start.size - 1) // 2
    while node:
        total = _tally(ids[start[node] : start[node + 1]], counts, needed, found, total)
        node >>= 1
    return total


class DuckDB:
    """One range join for a whole batch, on one thread."""

    name = "DuckDB range join"

    def __init__(self, table: Table) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        columns = {f"l{a}": table.low[:, a] for a in range(NUMERIC)}
        columns |= {f"h{a}": table.high[:, a] for a in range(NUMERIC)}
        self._store("subs", {"id": np.arange(len(table.text)), "text": table.text, **columns})
        tests = [f"x{a} BETWEEN l{a} AND h{a}" for a in range(NUMERIC)]
        self._query = (
            "SELECT e, id FROM pubs JOIN subs ON "
            + " AND ".join(tests)
            + f" AND (subs.text = {NO_TEXT} OR subs.text = pubs.text)"
        )

    def _store(self, name: str, columns: dict[str, Any]) -> None:
        import pyarrow as pa

        self._connection.register("incoming", pa.table(columns))
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def match_batch(
        self, numbers: npt.NDArray[np.float64], texts: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """(publication, id) of every match."""
        columns = {f"x{a}": numbers[:, a] for a in range(NUMERIC)}
        self._store("pubs", {"e": np.arange(len(texts)), "text": texts, **columns})
        found = self._connection.execute(self._query).fetchnumpy()
        return np.stack([found["e"], found["id"]], axis=1).astype(np.int64)
