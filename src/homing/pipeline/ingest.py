"""Job `ingest`: journals into tables, incrementally and exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from homing.pipeline.tables import TABLES, Marker, Table, Tables

# About what two cores take in ten seconds: a batch that is lost with its driver costs no more.
MAX_EVENTS = 2_000_000
# Small Spark jobs spend most of their time waiting for the driver: write tables side by side.
WRITERS = 4


def start(
    tables: Tables,
    journal: str | Mapping[str, str],
    *,
    follow: bool = False,
    max_events: int = MAX_EVENTS,
) -> StreamingQuery:
    """Begin where the last run stopped; with `follow`, go on until the query is stopped.

    `journal`: a directory of journals, or the source's options.
    """
    source = {"path": journal} if isinstance(journal, str) else journal
    reader = tables.spark.readStream.format("homing").option("maxEvents", max_events)
    events = reader.options(**source).load()
    # Over Spark Connect it travels to the server: no session may be in it.
    writer = events.writeStream.foreachBatch(partial(_batch, tables.root, tables.format))
    writer = writer.option("checkpointLocation", tables.checkpoint)
    writer = (
        writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    )
    return writer.queryName("homing-ingest").start()


def _batch(root: str, file_format: str, events: DataFrame, batch: int) -> None:
    """The frames of a micro-batch live in a session of the stream's own."""
    write_batch(Tables(events.sparkSession, root, file_format), events, batch)


def write_batch(tables: Tables, events: DataFrame, batch: int) -> None:
    """Write one batch into every table, then its marker; nothing if it has one already."""
    markers = tables.markers()
    if any(marker.batch == batch for marker in markers):
        return
    events = events.persist()
    try:
        counts = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
        concerned = [table for table in TABLES.values() if counts.keys() & set(table.kinds)]
        jobs = [partial(tables.write, events, "events", batch)]
        jobs += [partial(_write, tables, table, events, batch, markers) for table in concerned]
        with ThreadPoolExecutor(WRITERS) as pool:
            for job in [pool.submit(job) for job in jobs]:
                job.result()
    finally:
        events.unpersist()
    states = tuple(table.name for table in concerned if table.keep is not None)
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
    known = known.persist()
    found = table.make(known).persist()
    try:
        tables.write(found.where("not open"), table.name, batch)
        tables.write(table.keep(known, found), f"_state/{table.name}", batch)
    finally:
        found.unpersist()
        known.unpersist()
