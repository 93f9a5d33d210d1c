"""Job `ingest`: journals into tables, incrementally and exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from homing.pipeline import agreeing, files, pieces
from homing.pipeline.projecting import PROJECTIONS
from homing.pipeline.schema import EVENTS
from homing.pipeline.tables import TABLES, Marker, Table, Tables

# About what two cores take in ten seconds: a batch that is lost with its driver costs no more.
MAX_EVENTS = 2_000_000
# Under what the stream's progress tells how many events a batch has.
PROGRESS = "homing-ingest"
# Small Spark jobs spend most of their time waiting for the driver: write tables side by side.
WRITERS = 4
# Events of requests that are not plain, which the driver folds itself; more are a job for Spark.
MOST_LEFT = 1_000_000


def start(
    tables: Tables,
    journal: str | Mapping[str, str],
    *,
    follow: bool = False,
    max_events: int = MAX_EVENTS,
) -> StreamingQuery:
    """Begin where the last run stopped; with `follow`, go on until the query is stopped.

    `journal`: a directory of journals, or the source's options. Two at once would spoil each other's batches:
    `with agreeing.alone(tables)` keeps others off.
    """
    agreeing.check(tables)
    source = _options(journal)
    reader = tables.spark.readStream.format("homing").option("maxEvents", max_events)
    ranges = reader.options(**source).option("ranges", "true").load()
    events = F.sum(F.col("last") - F.col("first") + 1)
    ranges = ranges.observe(PROGRESS, events.alias("events"))
    # Over Spark Connect it travels to the server: no session may be in it.
    writer = ranges.writeStream.foreachBatch(partial(_batch, tables.root, tables.format, source))
    writer = writer.option("checkpointLocation", tables.checkpoint)
    writer = (
        writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    )
    return writer.queryName("homing-ingest").start()


def reading(tables: Tables, journal: str | Mapping[str, str]) -> DataFrame:
    """What a batch begins with, of all that there is: for its plan."""
    source = _options(journal)
    ranges = tables.spark.read.format("homing").options(**source).option("ranges", "true").load()
    return ranges.mapInArrow(pieces.reading(source), EVENTS)


def _options(journal: str | Mapping[str, str]) -> dict[str, str]:
    return {"path": journal} if isinstance(journal, str) else dict(journal)


def _batch(
    root: str, file_format: str, source: Mapping[str, str], ranges: DataFrame, batch: int
) -> None:
    """The frames of a micro-batch live in a session of the stream's own."""
    tables = Tables(ranges.sparkSession, root, file_format)
    place = tables.local
    if place is None:
        write_batch(tables, ranges.mapInArrow(pieces.reading(source), EVENTS), batch)
    else:
        write_pieces(tables, place, ranges, source, batch)


def write_batch(tables: Tables, events: DataFrame, batch: int) -> None:
    """Write one batch into every table, then its marker; nothing if it has one already."""
    markers = tables.markers()
    if any(marker.batch == batch for marker in markers):
        return
    tables.write(events, "events", batch)
    events = tables.events_of("events", batch)
    counts = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
    _write_tables(tables, dict.fromkeys(TABLES, events), batch, markers, counts)


def write_pieces(
    tables: Tables,
    place: Path,
    ranges: DataFrame,
    source: Mapping[str, str],
    batch: int,
) -> None:
    """The same where tasks can write files of tables themselves: Spark does only the rest."""
    markers = tables.markers()
    if any(marker.batch == batch for marker in markers):
        return
    pieces.clear(place, batch)
    written = ranges.mapInArrow(pieces.writing(source, place, batch), pieces.WRITTEN)
    counts: Counter[str] = Counter()
    left = 0
    for row in written.collect():
        counts[row.kind] += row.events
        left += row.left
    states: tuple[str, ...] = ()
    frames = {}
    if counts:
        others = [name for name in TABLES if name not in ("requests", *PROJECTIONS)]
        frames = dict.fromkeys(others, tables.events_of("events", batch))
    state = tables.state_batch("requests", markers)
    open_before = place / pieces.STATE / "requests" / f"batch={state}"
    if left and left + files.rows_in(open_before) > MOST_LEFT:
        frames["requests"] = tables.events_of(pieces.LEFT, batch)
    elif left:
        pieces.finish(place, batch, None if state is None else open_before)
        states = ("requests",)
    _write_tables(tables, frames, batch, markers, counts, states)


def _write_tables(
    tables: Tables,
    frames: Mapping[str, DataFrame],
    batch: int,
    markers: list[Marker],
    counts: Mapping[str, int],
    states: tuple[str, ...] = (),
) -> None:
    """Each table from its events, side by side, then the marker."""
    concerned = [TABLES[name] for name in frames if counts.keys() & set(TABLES[name].kinds)]
    with ThreadPoolExecutor(WRITERS) as pool:
        jobs = [
            pool.submit(_write, tables, table, frames[table.name], batch, markers)
            for table in concerned
        ]
        for job in jobs:
            job.result()
    states += tuple(table.name for table in concerned if table.keep is not None)
    tables.complete(Marker(batch, sum(counts.values()), states))


def _write(
    tables: Tables, table: Table, events: DataFrame, batch: int, markers: list[Marker]
) -> None:
    if table.keep is None:
        tables.write(table.make(events), table.name, batch)
        return
    known = tables.state(table.name, markers).unionByName(
        events.where(F.col("kind").isin(*table.kinds))
    )
    found = table.make(known).persist()
    try:
        # Tasks may have written rows of this batch already, after it was cleared.
        mode = "append" if table.name == "requests" else "overwrite"
        tables.write(found.where("not open"), table.name, batch, mode)
        tables.write(table.keep(known, found), f"{pieces.STATE}/{table.name}", batch)
    finally:
        found.unpersist()
