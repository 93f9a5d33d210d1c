"""How soon an event that a node wrote can be asked for in the tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Report
from homing.journal.events import Event, PublicationAccepted
from homing.journal.writer import open_journal
from homing.pipeline import ingest
from homing.pipeline.tables import Tables

DEADLINE = 60.0


def run(report: Report, spark: SparkSession, directory: Path) -> None:
    rounds = 2 if report.quick else 12
    journal = open_journal(
        directory / "journal" / "matcher",
        b"node0001",
        post=lambda call: call(),
        on_durable=lambda number: None,
    )
    tables = Tables(spark, str(directory / "tables"))
    query = ingest.start(tables, str(directory / "journal"), follow=True)
    try:
        waits = [_one(journal.append, tables, i) for i in range(rounds + 1)][1:]
    finally:
        query.stop()
        journal.close()
    median = statistics.median(waits)
    rows: list[list[str | float]] = [["publish → queryable in tables", median, max(waits)]]
    report.table("Latency, seconds", ["what", "median", "worst"], rows)
    report.goal("publish → tables, s", median, 5.0)


def _one(append: Callable[[Event], int], tables: Tables, i: int) -> float:
    """Seconds from appending a publication to its row; the first round starts everything."""
    identity = i.to_bytes(12, "big")
    before = time.perf_counter()
    append(PublicationAccepted(time.monotonic(), identity, b"p", b'{"price": 1}', b"x"))
    while time.perf_counter() - before < DEADLINE:
        if tables.read("publications").where(f"id = '{identity.hex()}'").count():
            return time.perf_counter() - before
    raise TimeoutError(f"publication {i} is not in the tables after {DEADLINE} s")
