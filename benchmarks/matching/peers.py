"""Peers on the same workloads: numpy brute force, two matchers in C, a DuckDB range join.

They know the numeric workloads only (ten ranges and one string), which spares them the general
attributes that the index pays for. The matchers in C are in benchmarks/peers/matchers: counting over
segment trees, as the system that the push plane comes from does, and a BE-tree.
"""

from __future__ import annotations

import ctypes
from typing import Any

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
from benchmarks.peers import matcher_library

Floats = npt.NDArray[np.float64]
Matches = npt.NDArray[np.int32]

NO_TEXT = -1
# The numbers, and the string as one more.
ATTRIBUTES = NUMERIC + 1


class Table:
    """A workload's subscriptions as a dense table of closed ranges, open ones infinite."""

    def __init__(self, workload: Workload) -> None:
        count = workload.subscriptions
        self.low = np.full((count, ATTRIBUTES), -np.inf)
        self.high = np.full((count, ATTRIBUTES), np.inf)
        for seed, begin in enumerate(range(0, count, BLOCK)):
            size = min(BLOCK, count - begin)
            drawn = ranges(workload, seed, size)
            row, j = np.nonzero(drawn.used)
            self.low[begin + row, drawn.attributes[row, j]] = drawn.low[row, j]
            self.high[begin + row, drawn.attributes[row, j]] = drawn.high[row, j]
            asks = np.flatnonzero(drawn.text != NO_TEXT)
            self.low[begin + asks, NUMERIC] = self.high[begin + asks, NUMERIC] = drawn.text[asks]


def publications(workload: Workload, count: int) -> Floats:
    """The same publications as workloads.publications gives, as numbers."""
    chance = np.random.default_rng((3, workload.skewed))
    texts = chance.choice(TEXTS, count, p=zipf()).astype(np.float64)
    return np.column_stack([numeric_publications(workload, count), texts])


class Brute:
    """numpy: every bound of every subscription."""

    name = "numpy brute force"

    def __init__(self, table: Table) -> None:
        self.low = np.ascontiguousarray(table.low.T)
        self.high = np.ascontiguousarray(table.high.T)

    def match(self, values: Floats) -> npt.NDArray[np.int64]:
        """The ids that one publication satisfies."""
        passes = np.ones(self.low.shape[1], np.bool_)
        for attribute, value in enumerate(values):
            passes &= self.low[attribute] <= value
            passes &= value <= self.high[attribute]
        return np.flatnonzero(passes)

    def match_all(self, values: Floats) -> int:
        """How many matches these publications have."""
        return sum(len(self.match(row)) for row in values)


class InC:
    """One of the matchers in C."""

    def __init__(self, table: Table, prefix: str, name: str) -> None:
        self.name = name
        library = ctypes.CDLL(str(matcher_library()))
        pointer, number = ctypes.c_void_p, ctypes.c_long
        build = getattr(library, f"{prefix}_build")
        build.restype, build.argtypes = pointer, [number, pointer, pointer]
        self._run = getattr(library, f"{prefix}_match")
        self._run.restype, self._run.argtypes = number, [pointer, number, pointer, pointer]
        self._free = getattr(library, f"{prefix}_free")
        self._free.argtypes = [pointer]
        self._found = np.empty(len(table.low), np.int32)
        self._handle = build(len(table.low), table.low.ctypes.data, table.high.ctypes.data)

    def match(self, values: Floats) -> Matches:
        """The ids that one publication satisfies."""
        return self._found[: self.match_all(values.reshape(1, -1))]

    def match_all(self, values: Floats) -> int:
        """How many matches these publications have, without a step through Python."""
        values = np.ascontiguousarray(values)
        found = self._found.ctypes.data
        return int(self._run(self._handle, len(values), values.ctypes.data, found))

    def close(self) -> None:
        """Give the memory back."""
        self._free(self._handle)


def segment_trees(table: Table) -> InC:
    """Whoever is found as often as it has ranges."""
    return InC(table, "trees", "segment trees, counting (C)")


def betree(table: Table) -> InC:
    """Attributes and halved ranges by turns."""
    return InC(table, "betree", "BE-tree (C)")


class DuckDB:
    """One range join for a whole batch, on one thread."""

    name = "DuckDB range join"

    def __init__(self, table: Table) -> None:
        import duckdb

        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        columns = {f"l{a}": table.low[:, a] for a in range(ATTRIBUTES)}
        columns |= {f"h{a}": table.high[:, a] for a in range(ATTRIBUTES)}
        self._store("subs", {"id": np.arange(len(table.low)), **columns})
        tests = [f"x{a} BETWEEN l{a} AND h{a}" for a in range(ATTRIBUTES)]
        self._query = "SELECT e, id FROM pubs JOIN subs ON " + " AND ".join(tests)

    def _store(self, name: str, columns: dict[str, Any]) -> None:
        import pyarrow as pa

        self._connection.register("incoming", pa.table(columns))
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM incoming")
        self._connection.unregister("incoming")

    def match_batch(self, values: Floats) -> npt.NDArray[np.int64]:
        """(publication, id) of every match."""
        columns = {f"x{a}": values[:, a] for a in range(ATTRIBUTES)}
        self._store("pubs", {"e": np.arange(len(values)), **columns})
        found = self._connection.execute(self._query).fetchnumpy()
        return np.stack([found["e"], found["id"]], axis=1).astype(np.int64)

    def match_all(self, values: Floats) -> int:
        """How many matches these publications have."""
        return len(self.match_batch(values))
