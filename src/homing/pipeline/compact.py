"""Job `compact`: few large files instead of many small ones, old rows gone, statistics.

Every batch of `ingest` leaves a file or more in each table. This job writes what there is so far
as one generation, in order of time, so that a query for an hour skips the rest by the files' own
minimum and maximum:

    <root>/_compacted/events/generation=3/   all batches up to `upto`, what is kept of them
    <root>/_generations/generation=3/        written last: from now on read this one

What a generation replaced stays until the next one, for queries that are under way. A driver
killed anywhere leaves the tables as they were or as they are to be.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from homing.errors import PipelineError
from homing.pipeline.pieces import STATE
from homing.pipeline.tables import COMPACTED, GENERATIONS, TABLES, Generation, Tables

# Rows in one file: some 100 MB of events.
ROWS_IN_FILE = 2_000_000

# When a row was over; what has no such time is open and always kept.
TIMES = {
    "events": "at",
    "requests": "coalesce(ended_at, accepted_at)",
    "publications": "accepted_at",
    "matched": "matched_at",
    "matches": "matched_at",
    "deliveries": "at",
    "subscriptions": "valid_to",
    "sessions": "closed_at",
}


class Statistics(NamedTuple):
    """What is in one table after compaction."""

    table: str
    rows: int
    files: int
    bytes: int
    first: datetime | None
    last: datetime | None


def kept(frame: DataFrame, table: str, cutoff: datetime | None) -> DataFrame:
    """The rows that retention keeps, in the order in which they are looked for."""
    over = F.expr(TIMES[table])
    if cutoff is not None:
        frame = frame.where(over.isNull() | (over >= F.lit(cutoff)))
    return frame


def in_order(frame: DataFrame, table: str, files: int) -> DataFrame:
    """Spread over so many files by time, sorted in each."""
    over: Column = F.expr(TIMES[table])
    return frame.repartitionByRange(files, over).sortWithinPartitions(over)


def run(tables: Tables, cutoff: datetime | None = None) -> list[Statistics]:
    """Make the next generation, remove what the last but one left; what the tables hold now."""
    markers = tables.markers()
    if not markers:
        raise PipelineError(
            "there is nothing to compact", hint="run `homing pipeline ingest` first"
        )
    before = tables.generation()
    number = before.number + 1 if before else 1
    for name in TIMES:
        frame = kept(tables.closed(name, markers), name, cutoff)
        files = max(1, -(-frame.count() // ROWS_IN_FILE))
        place = f"{tables.root}/{COMPACTED}/{name}/generation={number}"
        in_order(frame, name, files).write.format(tables.format).mode("overwrite").save(place)
    tables.complete_generation(Generation(number, markers[-1].batch))
    _remove_replaced(tables, before)
    return [statistics(tables, name) for name in TIMES]


def statistics(tables: Tables, name: str) -> Statistics:
    """Rows, files, bytes and the span of a table."""
    frame = tables.read(name)
    over = F.expr(TIMES[name])
    row = frame.agg(F.count("*"), F.min(over), F.max(over)).first()
    files = tables.closed(name).inputFiles()
    sizes = [Files(tables.spark).size(path) for path in files]
    assert row is not None
    return Statistics(name, row[0], len(files), sum(sizes), row[1], row[2])


def _remove_replaced(tables: Tables, before: Generation | None) -> None:
    """Batches that the generation before replaced, generations before it, and old state."""
    files = Files(tables.spark)
    upto = before.upto if before else -1
    for name in TIMES:
        files.remove_numbered(f"{tables.root}/{name}", "batch", upto)
        if before:
            files.remove_numbered(
                f"{tables.root}/{COMPACTED}/{name}", "generation", before.number - 1
            )
    if before:
        files.remove_numbered(f"{tables.root}/{GENERATIONS}", "generation", before.number - 1)
    for name, table in TABLES.items():
        latest = tables.state_batch(name) if table.keep else None
        if latest is not None:
            files.remove_numbered(f"{tables.root}/{STATE}/{name}", "batch", latest - 1)


class Files:
    """Removing and measuring files wherever Spark keeps them, through its own file systems."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._conf = spark._jsc.hadoopConfiguration()

    def size(self, path: str) -> int:
        place = self._path(path)
        return int(place.getFileSystem(self._conf).getFileStatus(place).getLen())

    def remove_numbered(self, directory: str, key: str, upto: int) -> None:
        """Every `key=N` below a directory with N up to this number."""
        place = self._path(directory)
        system = place.getFileSystem(self._conf)
        if not system.exists(place):
            return
        for status in system.listStatus(place):
            name = status.getPath().getName()
            number = name.removeprefix(f"{key}=")
            if name != number and number.isdigit() and int(number) <= upto:
                system.delete(status.getPath(), True)
