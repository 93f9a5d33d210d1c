"""Events per second: native Parquet, the data source, and ingest into tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.harness import Report
from homing.clock import SystemClock
from homing.journal.disk import Directory
from homing.journal.events import Event, RequestAccepted, RequestAnswered
from homing.journal.log import Limits, Log
from homing.journal.sealing import seal_all
from homing.pipeline import ingest
from homing.pipeline.reading import BATCH_EVENTS
from homing.pipeline.schema import EVENTS
from homing.pipeline.source import TASK_EVENTS
from homing.pipeline.tables import Tables

GROUP = 2_000  # events in a block, as a broker at 100 000 requests/s writes them
TWO_COLUMNS = "kind string, size bigint"


def write(path: Path, size: int, segment_bytes: int = 8 << 20) -> None:
    """A broker's journal of requests and their answers."""
    disk = Directory(path)
    log = Log(
        disk,
        b"node0001",
        limits=Limits(segment_bytes=segment_bytes),
        durable=False,
        wall=SystemClock.wall,
        salt=lambda: 7,
    )
    skew = int((time.time() - time.monotonic()) * 1e6)
    for start in range(1, size, GROUP):
        now = time.monotonic()
        group: list[Event] = []
        for number in range(start, start + GROUP, 2):
            client, worker = b"client-%d" % (number % 500), b"worker-%d" % (number % 16)
            group.append(RequestAccepted(now, b"echo", client, number % 4096))
            group.append(RequestAnswered(now + 0.001, number, worker, 64, 0.0002))
        log.append(group, skew)
    log.rotate()
    log.append([RequestAccepted(0.0, b"echo", b"last", 1)], skew)  # so that the others are finished
    disk.close()


def run(report: Report, spark: SparkSession, directory: Path) -> None:
    size = 100_000 if report.quick else 8_000_000
    journal = directory / "journal"
    report.say(f"a journal of {size:,} events")
    write(journal / "broker", size)

    def rate(told: str, read: Callable[[], DataFrame]) -> float:
        """Events a second of wall time, every column that was asked for made."""

        def once() -> float:
            before = time.perf_counter()
            read().write.format("noop").mode("overwrite").save()
            return size / (time.perf_counter() - before)

        found = report.median(once)
        report.say(f"{told}: {found:,.0f} events/s")
        return found

    def source(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("homing")
        return (reader.schema(schema) if schema else reader).load(str(journal))

    def both(told: str, read: Callable[[str | None], DataFrame]) -> list[str | float]:
        wide = rate(f"{told}, all columns", lambda: read(None))
        return [told, wide, rate(f"{told}, two columns", lambda: read(TWO_COLUMNS))]

    source(TWO_COLUMNS).count()  # Python workers start once
    blocks = both("source homing, segments as written", source)
    report.say("sealing")
    parts = list(seal_all(journal / "broker"))
    sealed = both("source homing, sealed segments", source)
    files = str(journal / "broker" / "*.parquet")
    native = both(
        "native Parquet (sealed segments)",
        lambda schema: spark.read.schema(schema or EVENTS).parquet(files),
    )
    floor = rate("rows that are ready in Python", lambda: _ready(spark, parts[0], size))
    ready: list[str | float | None] = ["rows that are ready in Python", None, floor]
    rows: list[Sequence[str | float | None]] = [native, sealed, blocks, ready]
    report.table("Reading, events/s", ["how", "all columns", "two columns"], rows)
    report.note(
        "Spark copies what Python hands it row by row out of Arrow batches, which its own reader of "
        "Parquet need not: from a source whose rows are in a worker's memory already, and read from "
        "nowhere, it has the speed in the last line. More than that no source in Python has: its rows "
        "are copied twice, and Spark adds up its metrics every hundred rows."
    )
    _goals(report, sealed, native)
    _ingest(report, spark, journal, directory / "tables", size)


def _goals(report: Report, sealed: Sequence[Any], native: Sequence[Any]) -> None:
    report.goal("source, all columns / native", sealed[1] / native[1], 0.3, at_least=True)
    report.goal("source, two columns / native", sealed[2] / native[2], 0.7, at_least=True)


def _ready(spark: SparkSession, part: Path, size: int) -> DataFrame:
    """About so many rows of two columns from a source that has them at hand, in as many tasks as ours."""
    with pq.ParquetFile(part) as file:
        batch = next(file.iter_batches(BATCH_EVENTS, columns=["kind", "size"]))
    tasks = max(1, size // TASK_EVENTS)
    times = size // batch.num_rows // tasks

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(task) for task in range(tasks)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return repeat(batch, times)

    class Ready(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Ready)
    return spark.read.format("ready").schema(TWO_COLUMNS).load()


def _ingest(report: Report, spark: SparkSession, journal: Path, root: Path, size: int) -> None:
    report.say("ingest")
    before = time.perf_counter()
    tables = Tables(spark, str(root))
    query = ingest.start(tables, str(journal))
    query.awaitTermination()
    took = time.perf_counter() - before
    if tables.read("requests").where("outcome = 'answered'").count() != size // 2:
        raise RuntimeError("ingest lost or doubled requests")
    row: list[str | float | int] = ["events and requests, exactly once", size, took, size / took]
    report.table("Ingest", ["what", "events", "seconds with the stream's start", "events/s"], [row])
    report.note(
        "From the start of a stream in a session that has run a query to its end, in batches of "
        f"{ingest.MAX_EVENTS:,} events. The stream's own Python process takes about two seconds to come."
    )
    report.goal("ingest, events/s", size / took, 400_000, at_least=True)
