"""How soon a publication can be asked for in the tables, and reaches a subscriber through Spark."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Report
from homing import sync
from homing.config import load
from homing.journal.events import Event, PublicationAccepted
from homing.journal.writer import open_journal
from homing.pipeline import ingest, live
from homing.pipeline.handing import Handing
from homing.pipeline.tables import Tables
from homing.testing import fabric

DEADLINE = 60.0
TOKEN_KEY = "homing.testing"


def run(report: Report, spark: SparkSession, directory: Path) -> None:
    report.say("how soon a publication is in the tables")
    tables = _to_tables(report, spark, directory / "tables")
    report.say("how soon a publication reaches its subscriber through Spark")
    matched = _to_subscriber(report, spark, directory / "live")
    rows: list[list[str | float]] = [
        ["publish → queryable in tables", statistics.median(tables), max(tables)],
        ["publish → matched by Spark → subscriber", statistics.median(matched), max(matched)],
    ]
    report.table("Latency, seconds", ["what", "median", "worst"], rows)
    report.goal("publish → tables, s", statistics.median(tables), 5.0)
    report.goal("publish → live match, s", statistics.median(matched), 0.5)


def _to_tables(report: Report, spark: SparkSession, directory: Path) -> list[float]:
    journal = open_journal(
        directory / "journal" / "matcher",
        b"node0001",
        post=lambda call: call(),
        on_durable=lambda number: None,
    )
    tables = Tables(spark, str(directory / "tables"))
    query = ingest.start(tables, str(directory / "journal"), follow=True)
    try:
        rounds = 2 if report.quick else 12
        return [_one(journal.append, tables, i) for i in range(rounds + 1)][1:]
    finally:
        query.stop()
        journal.close()


def _one(append: Callable[[Event], int], tables: Tables, i: int) -> float:
    """Seconds from appending a publication to its row; the first round starts everything."""
    identity = i.to_bytes(12, "big")
    before = time.perf_counter()
    append(PublicationAccepted(time.monotonic(), identity, b"p", b'{"price": 1}', b"x"))
    while time.perf_counter() - before < DEADLINE:
        if tables.read("publications").where(f"id = '{identity.hex()}'").count():
            return time.perf_counter() - before
    raise TimeoutError(f"publication {i} is not in the tables after {DEADLINE} s")


def _to_subscriber(report: Report, spark: SparkSession, directory: Path) -> list[float]:
    """A whole fabric whose matching Spark does: seconds from publish to the subscriber's push."""
    directory.mkdir(parents=True)
    dispatcher = f"ipc://{directory}/dispatcher"
    flags = {"node.data": str(directory / "driver"), "security.token_key": TOKEN_KEY}
    config = load(Path("/dev/null"), flags=flags, environment={})
    settings = ("push.matching=spark", f"node.data={directory}", f"push.dispatcher={dispatcher}")
    client = secrets.token_hex(12)
    with (
        fabric(*settings, push=True, journal=True) as here,
        Handing(config, "live", b"spark001", [dispatcher]) as handing,
        sync.Publisher(here.publishers) as publisher,
    ):
        stamp, token = here.credentials(client)
        with sync.Subscriber(client, here.subscribers, token=token, timestamp=stamp) as subscriber:
            handing.wait_ready(DEADLINE)
            source = {"path": str(directory / "journal")}
            query = live.start(spark, handing, source, str(directory / "checkpoint"))
            try:
                subscriber.subscribe("n >= 0")
                rounds = 5 if report.quick else 40
                return [_trip(publisher, subscriber, n) for n in range(rounds + 2)][2:]
            finally:
                query.stop()


def _trip(publisher: sync.Publisher, subscriber: sync.Subscriber, number: int) -> float:
    before = time.perf_counter()
    publisher.publish({"n": number}, b"x")
    subscriber.get(timeout=DEADLINE)
    return time.perf_counter() - before
