"""kill -9 of the driver in the middle of an ingest, again and again: no loss, no duplicate."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing.journal.events import (
    Delivered,
    Event,
    PublicationMatched,
    RequestAccepted,
    RequestAnswered,
)
from homing.pipeline.tables import Tables
from tests.conftest import PROFILE
from tests.pipeline.conftest import QUICK, SKEW, WriteJournal

KILLS = 10 if PROFILE == "nightly" else 1
SECONDS = 240  # for a driver to come up and write, on a machine that has other things to do
# Each life finds as much that is new: the last one too has something to be killed in.
EACH, SIZE, PUSHES = 9, 400, 700


def story() -> list[list[Event]]:
    """Requests whose answers come a group later, so that every batch leaves some open."""
    events: list[Event] = []
    opened: list[int] = []
    for _ in range(KILLS * EACH * SIZE // 2):
        if len(opened) > SIZE:
            events.append(RequestAnswered(2.0, opened.pop(0), b"w", 1))
        events.append(RequestAccepted(1.0, b"echo", b"c", 1))
        opened.append(len(events))
    events += [RequestAnswered(2.0, number, b"w", 1) for number in opened]
    return [events[i : i + SIZE] for i in range(0, len(events), SIZE)]


def pushes() -> list[list[Event]]:
    """Publications, each for one client, who gets it."""
    client = b"c" * 12
    told = (
        (
            PublicationMatched(1.0, i.to_bytes(12, "big"), client + b"connect1", 1),
            Delivered(2.0, i.to_bytes(12, "big"), client),
        )
        for i in range(PUSHES)
    )
    events: list[Event] = [event for each in told for event in each]
    return [events[i : i + SIZE] for i in range(0, len(events), SIZE)]


@contextmanager
def driver(journal: Path, tables: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ingests; killed, if it still runs, when the test is done with it."""
    words = [sys.executable, "-m", "homing.cli", "pipeline", "ingest", "--master", "local[2]"]
    words += ["--journal", str(journal), "--tables", str(tables), "--max-events", "1200"]
    words += flags
    words += [word for item in QUICK.items() for word in ("--conf", "=".join(item))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def batches(tables: Path) -> int:
    """How many have their marker."""
    return len(list(tables.glob("_batches/batch=*/_SUCCESS")))


@pytest.mark.slow
@pytest.mark.timeout(4 * SECONDS + KILLS * SECONDS)
def test_killed_drivers_leave_every_event_once(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    groups, more = story(), pushes()
    answered, total = sum(map(len, groups)) // 2, sum(map(len, [*groups, *more]))
    journal, tables = tmp_path / "journal", tmp_path / "tables"
    log = write_journal(journal / "broker")
    write_journal(journal / "push", *more, node=b"node0002")
    chance = random.Random(5)
    for life in range(KILLS):
        for group in groups[EACH * life : EACH * (life + 1)]:
            log.append(group, SKEW)
        before = batches(tables)
        with driver(journal, tables, "--follow") as process:
            deadline = time.monotonic() + SECONDS
            while batches(tables) <= before:
                assert process.poll() is None, "it ended by itself"
                assert time.monotonic() < deadline, "no batch in time"
                time.sleep(0.02)
            time.sleep(chance.random() * 2)  # anywhere inside the next batch
            assert process.poll() is None
    with driver(journal, tables) as process:
        _, said = process.communicate(timeout=SECONDS)
        assert (process.returncode, said) == (0, b"")  # nothing of Spark's or of Java's own
    found = Tables(spark, str(tables))
    events = found.read("events")
    assert events.count() == events.select("node", "number").distinct().count() == total
    for name in ("matched", "matches", "deliveries"):
        ids = found.read(name).select("id")
        assert ids.count() == ids.distinct().count() == PUSHES, name
    outcomes = {
        row.outcome: row["count"]
        for row in found.read("requests").groupBy("outcome").count().collect()
    }
    assert outcomes == {"answered": answered}
    assert sum(marker.events for marker in found.markers()) == total
