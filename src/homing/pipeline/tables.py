"""Tables on disk: which there are, where, and which of their batches count.

    <root>/events/batch=7/…          every table is a directory of batches
    <root>/_state/requests/batch=7/  events that a later batch will finish
    <root>/_left/batch=7/            events that tasks left to Spark (homing.pipeline.pieces)
    <root>/_batches/batch=7/         written last: batch 7 of every table is complete
    <root>/_checkpoint/              how far the stream has come (Spark's own)
    <root>/_compacted/, _generations/  the same in few files (homing.pipeline.compact)

`subscriptions` has no files of its own: it is made of `changes` whenever it is read (homing.pipeline.intervals).

A batch that has its marker is never written again, one without is overwritten whole: so a
driver killed anywhere leaves neither loss nor duplicate, and readers, who take only batches
that have their marker, see all tables move together.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.utils import is_remote

from homing.errors import PipelineError
from homing.pipeline import files, intervals, publications, requests
from homing.pipeline.pieces import STATE
from homing.pipeline.schema import EVENTS

Transformation = Callable[[DataFrame], DataFrame]
Keep = Callable[[DataFrame, DataFrame], DataFrame]

_PATTERN = re.compile(r"[][{}*?\\]")
COMPACTED, GENERATIONS, MARKERS = "_compacted", "_generations", "_batches"
_RUN = pa.struct(
    [
        ("table", pa.string()),
        ("number", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
_NOTES = {
    MARKERS: pa.schema([("events", pa.int64()), ("states", pa.list_(pa.string()))]),
    GENERATIONS: pa.schema([("upto", pa.int64()), ("runs", pa.list_(_RUN))]),
}


class Table(NamedTuple):
    """A table made from events; with `keep`, what is open is carried to the next batch."""

    name: str
    kinds: Sequence[str]
    make: Transformation
    keep: Keep | None = None


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("requests", requests.KINDS, requests.requests, requests.still_open),
        Table("publications", ("PublicationAccepted",), publications.publications),
        Table("matched", publications.MATCH_KINDS, publications.matched),
        Table("matches", publications.MATCH_KINDS, publications.matches),
        Table("deliveries", publications.DELIVERY_KINDS, publications.deliveries),
        Table("changes", intervals.SUBSCRIPTION_KINDS, intervals.changes),
        Table("sessions", intervals.SESSION_KINDS, intervals.sessions, intervals.still_open),
    )
}


# Tables that are made of another one when they are read.
VIEWS: dict[str, tuple[str, Transformation]] = {
    "subscriptions": ("changes", intervals.subscriptions)
}


class Marker(NamedTuple):
    """A complete batch, and the tables whose state it wrote."""

    batch: int
    events: int
    states: tuple[str, ...]


class Run(NamedTuple):
    """Rows of a table that one compaction wrote, and the span of their times, in µs."""

    table: str
    number: int  # of that compaction
    rows: int
    first: int | None
    last: int | None


class Generation(NamedTuple):
    """A compaction: its runs hold every batch up to `upto`."""

    number: int
    upto: int
    runs: tuple[Run, ...]

    def of(self, table: str) -> list[Run]:
        """The runs of one table."""
        return [run for run in self.runs if run.table == table]


class Tables:
    """The tables below one root, in any file format this Spark writes."""

    def __init__(self, spark: SparkSession, root: str, file_format: str = "parquet") -> None:
        self.spark = spark
        self.root = root.rstrip("/")
        self.format = file_format

    @property
    def checkpoint(self) -> str:
        """Spark's own notes; they belong to these tables and go where they go."""
        return f"{self.root}/_checkpoint"

    @property
    def begun(self) -> bool:
        """Whether anybody has ingested here, if only journals without events."""
        local = self.local
        return bool(self.markers()) or (local is not None and (local / "_checkpoint").is_dir())

    def read(self, name: str) -> DataFrame:
        """A table as of its last complete batch, what is still open included."""
        if name in VIEWS:
            of, make = VIEWS[name]
            return make(self.read(of))
        if name != "events" and name not in TABLES:
            known = ", ".join(["events", *TABLES, *VIEWS])
            raise PipelineError(f"no table {name!r}", hint=f"there are {known}")
        # In this order: a compaction meanwhile holds no batch that the markers lack.
        generation, markers = self.generation(), self.markers()
        found = self._batches(name, generation, markers)
        table = TABLES.get(name)
        if table is None or table.keep is None:
            return found
        return found.unionByName(table.make(self.state(name, markers)))

    def closed(self, name: str) -> DataFrame:
        """The same without what is still open."""
        generation = self.generation()
        return self._batches(name, generation, self.markers())

    def _batches(
        self, name: str, generation: Generation | None, markers: list[Marker]
    ) -> DataFrame:
        upto = generation.upto if generation else -1
        runs = generation.of(name) if generation else []
        return self.rows_of(name, runs, upto, markers[-1].batch if markers else -1)

    def rows_of(self, name: str, runs: Sequence[Run], after: int, upto: int) -> DataFrame:
        """What compactions wrote in these runs, and the batches behind `after` up to `upto`."""
        # Files of events from earlier versions have fewer columns than there are now.
        schema = EVENTS if name == "events" else None
        found = self._load(f"{self.root}/{name}", schema and _in_batches(schema))
        parts = []
        if found is not None:
            batch = F.col("batch")
            parts.append(found.where((batch > after) & (batch <= upto)).drop("batch"))
        if runs:
            places = [literal(self.place_of(run)) for run in runs]
            reader = self.spark.read.format(self.format)
            parts.append((reader.schema(schema) if schema else reader).load(places))
        if not parts:
            empty = self.spark.createDataFrame([], EVENTS)
            return empty if name == "events" else TABLES[name].make(empty)
        return reduce(DataFrame.unionByName, parts)

    def place_of(self, run: Run) -> str:
        """The directory of a run."""
        return f"{self.root}/{_below(run)}"

    def generation(self) -> Generation | None:
        """The latest compaction."""
        rows = self._notes(GENERATIONS, "generation")
        latest = max(rows, key=lambda row: int(row["generation"]), default=None)
        if latest is None:
            return None
        if latest.get("runs") is None:
            raise _outdated(self.root)
        runs = [Run(*(run[name] for name in Run._fields)) for run in latest["runs"]]
        return Generation(latest["generation"], latest["upto"], tuple(runs))

    def complete_generation(self, generation: Generation) -> None:
        """Say that a compaction counts."""
        runs = [run._asdict() for run in generation.runs]
        row = {"upto": generation.upto, "runs": runs}
        self._note(
            GENERATIONS, "generation", generation.number, row, list(map(_below, generation.runs))
        )

    def state(self, name: str, markers: list[Marker]) -> DataFrame:
        """The events that wait for a later batch."""
        batch = _state_batch(name, markers)
        if batch is None:
            return self.spark.createDataFrame([], EVENTS)
        return self.events_of(f"{STATE}/{name}", batch)

    def state_batch(self, name: str, markers: list[Marker] | None = None) -> int | None:
        """The batch that last wrote a table's state."""
        return _state_batch(name, self.markers() if markers is None else markers)

    def markers(self) -> list[Marker]:
        """Every complete batch, oldest first."""
        rows = self._notes(MARKERS, "batch")
        found = sorted(Marker(row["batch"], row["events"], tuple(row["states"])) for row in rows)
        if any(name in VIEWS for marker in found for name in marker.states):
            raise _outdated(self.root)
        return found

    def write(self, frame: DataFrame, place: str, batch: int, mode: str = "overwrite") -> None:
        """One table's part of a batch, whole, instead of whatever is there."""
        path = f"{self.root}/{place}/batch={batch}"
        frame.write.format(self.format).mode(mode).save(path)

    def events_of(self, place: str, batch: int) -> DataFrame:
        """The events of one batch as they were written, complete or not."""
        path = f"{self.root}/{place}/batch={batch}"
        return self.spark.read.format(self.format).schema(EVENTS).load(literal(path))

    @cached_property
    def local(self) -> Path | None:
        """The root as a directory that every task sees, if tables are Parquet files there."""
        if self.format != "parquet" or is_remote():
            return None  # over Spark Connect it would be a directory of the server
        jvm: Any = self.spark._jvm
        place = jvm.org.apache.hadoop.fs.Path(self.root)
        system = place.getFileSystem(self.spark._jsc.hadoopConfiguration())
        return Path(place.toUri().getPath()).absolute() if system.getScheme() == "file" else None

    def replace(self, frame: DataFrame, name: str) -> None:
        """A table that a job derives from others, anew; PermissionError, before the work, where none can be written."""
        if self.local is not None and not os.access(self.local, os.W_OK):
            raise PermissionError(errno.EACCES, "tables cannot be written here", self.root)
        frame.write.format(self.format).mode("overwrite").save(f"{self.root}/{name}")

    def derived(self, name: str) -> DataFrame:
        """What a job left with `replace`; PipelineError if it has not run."""
        found = self._load(f"{self.root}/{name}")
        if found is None:
            raise PipelineError(f"there is no table {name} yet")
        return found

    def complete(self, marker: Marker) -> None:
        """Say that a batch counts."""
        row = {"events": marker.events, "states": list(marker.states)}
        tables = ["events", *TABLES, *(f"{STATE}/{name}" for name in TABLES)]
        places = [f"{table}/batch={marker.batch}" for table in tables]
        self._note(MARKERS, "batch", marker.batch, row, places)

    def _notes(self, place: str, key: str) -> list[Mapping[str, Any]]:
        """The rows that `_note` left, each with its number."""
        if self.local is not None:
            return [*files.notes(self.local / place, key)]
        columns = StructType([StructField(key, LongType()), *from_arrow_schema(_NOTES[place])])
        found = self._load(f"{self.root}/{place}", columns)
        return [] if found is None else [row.asDict() for row in found.collect()]

    def _note(
        self, place: str, key: str, number: int, row: Mapping[str, Any], means: Sequence[str]
    ) -> None:
        """One row under a number of its own, with what is in the directories it means; where Spark must do it that is a job."""
        schema = _NOTES[place]
        root = self.local
        if root is not None:
            found = [
                f"{each}/{path.name}" for each in means for path in files.parquet_files(root / each)
            ]
            files.note(root / place, key, number, row, schema, found)
            return
        frame = self.spark.createDataFrame([tuple(row.values())], from_arrow_schema(schema))
        path = f"{self.root}/{place}/{key}={number}"
        frame.coalesce(1).write.format(self.format).mode("overwrite").save(path)

    def _load(self, path: str, schema: StructType | None = None) -> DataFrame | None:
        reader = self.spark.read.format(self.format)
        if schema is not None:
            reader = reader.schema(schema)
        try:
            found = reader.load(literal(path))
            _ = found.schema  # over Spark Connect nobody looks for the files before this
        except AnalysisException as error:
            if error.getCondition() in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
                return None  # nothing there, or a directory that compaction emptied
            raise
        return found


class Moment(Tables):
    """Tables as of the moment at which this is made: what comes meanwhile counts in none of them."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables.spark, tables.root, tables.format)
        # In this order: a compaction meanwhile holds no batch that the markers lack.
        self._generation = tables.generation()
        self._markers = tables.markers()

    def generation(self) -> Generation | None:
        return self._generation

    def markers(self) -> list[Marker]:
        return list(self._markers)


def _below(run: Run) -> str:
    return f"{COMPACTED}/{run.table}/generation={run.number}"


def literal(path: str) -> str:
    """A path as Spark reads it: it takes `[`, `{`, `*` and `?` for patterns, where it writes it does not."""
    return _PATTERN.sub(r"\\\g<0>", path)


def _in_batches(schema: StructType) -> StructType:
    """With the number of the batch, which directories tell; where none is left nobody would know of it."""
    return StructType([*schema, StructField("batch", LongType())])


def _outdated(root: str) -> PipelineError:
    """Of tables from before `changes` and runs."""
    told = f"the tables at {root} were written by an earlier version"
    return PipelineError(told, hint="ingest the journals into another directory")


def _state_batch(name: str, markers: list[Marker]) -> int | None:
    return next((each.batch for each in reversed(markers) if name in each.states), None)
