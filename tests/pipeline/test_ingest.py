"""Ingest: journals into tables, in steps, each event once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from homing.errors import PipelineError
from homing.journal.events import (
    Event,
    NodeStopped,
    RequestAnswered,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.journal.sealing import seal_all
from homing.pipeline import ingest
from homing.pipeline.tables import TABLES, Marker, Tables
from tests.pipeline.conftest import SKEW, ToFrame, WriteJournal, run_through
from tests.pipeline.test_crash import story
from tests.pipeline.test_push_tables import ALICE, BOB, CHANGES, PLACE, history
from tests.pipeline.test_requests import STORY


def run(tables: Tables, journal: Path, **options: int) -> None:
    run_through(partial(ingest.start, tables, str(journal), **options))  # type: ignore[arg-type]


def test_incremental_runs_add_up(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    assert tables.read("requests").count() == 0
    log = write_journal(tmp_path / "journal/broker", STORY[:4], STORY[4:7])
    write_journal(tmp_path / "journal/connector", CHANGES, node=PLACE)
    run(tables, tmp_path / "journal", max_events=4)
    assert len(tables.markers()) >= 2
    assert outcomes(tables) == {1: "answered", 2: "answered", 3: "open", 4: "open"}
    log.append(STORY[7:], SKEW)
    log.append([RequestAnswered(9.0, 4, b"w", 1)], SKEW)
    run(tables, tmp_path / "journal")
    assert outcomes(tables) == {
        1: "answered",
        2: "answered",
        3: "timeout",
        4: "answered",
        None: "queue-full",
    }
    assert tables.read("subscriptions").count() == 6
    events = tables.read("events")
    assert events.count() == len(STORY) + 1 + len(CHANGES)
    assert events.select("node", "number").distinct().count() == events.count()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_cluster_s_node_records_each_change_once(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal, sealed: bool
) -> None:
    """Its roles have one id: which of them wrote a journal is in the journal's header."""
    told: list[Event] = [SubscriptionSet(1.0, ALICE, PLACE, b"s", b"{1}")]
    heard: list[Event] = [
        SubscriptionSet(1.1, ALICE, PLACE, b"s", b"{1}"),
        SubscriptionSet(2.0, BOB, PLACE, b"t", b"{2}"),  # whose session is not durable
    ]
    for role, events in (("connector", told), ("matcher", heard)):
        path = tmp_path / "journal" / role
        log = write_journal(path, events, node=PLACE, name=f"{role} {PLACE.hex()}")
        log.rotate()
        log.append([NodeStopped(9.0)], SKEW)
        if sealed:
            assert len(list(seal_all(path))) == 1
    tables = Tables(spark, str(tmp_path / "tables"))
    run(tables, tmp_path / "journal")
    [row] = tables.read("subscriptions").collect()
    assert (row.client, row.fields) == (ALICE.hex(), "{1}")
    roles = tables.read("events").groupBy("role").count().collect()
    assert {each.role: each["count"] for each in roles} == {"connector": 2, "matcher": 3}


def test_events_of_before_they_said_their_role_are_read_with_the_others(
    spark: SparkSession, frame: ToFrame, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path))
    for batch in range(2):
        number = 1 + batch
        events = frame(RequestAnswered(1.0, 0, b"w", 1), first=number, role="broker")
        ingest.write_batch(tables, events, batch)
    for old in (tmp_path / "events/batch=0").glob("*.parquet"):
        pq.write_table(pq.read_table(old).drop_columns("role"), old, coerce_timestamps="us")
        Path(f"{old.parent}/.{old.name}.crc").unlink(missing_ok=True)
    assert sorted((row.number, row.role) for row in tables.read("events").collect()) == [
        (1, None),
        (2, "broker"),
    ]


def test_a_client_that_moved_and_came_back(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """Journals come one after the other: what ended a subscription may be read batches later."""
    here, there = PLACE, b"connect2"
    at_home: list[Event] = [
        SubscriptionSet(1.0, ALICE, here, b"s", b"{1}"),
        SubscriptionSet(9.0, ALICE, here, b"s", b"{3}"),
        SubscriptionRemoved(12.0, BOB, here),
    ]
    away: list[Event] = [
        SubscriptionSet(5.0, ALICE, there, b"s", b"{2}"),
        SubscriptionSet(10.0, BOB, there, b"s", b"{4}"),
    ]
    for node, events in ((here, at_home), (there, away)):
        write_journal(tmp_path / "journal" / node.decode(), *[[each] for each in events], node=node)
    tables = Tables(spark, str(tmp_path / "tables"))
    run(tables, tmp_path / "journal", max_events=2)
    assert len(tables.markers()) > 2
    assert history(tables.read("subscriptions")) == {
        "{1}": (1.0, 5.0),
        "{2}": (5.0, 9.0),
        "{3}": (9.0, None),
        "{4}": (10.0, None),  # what it had before is let go of here
    }


def test_tables_of_an_earlier_version_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """They kept subscriptions as state; nothing of them would be seen."""
    tables = Tables(spark, str(tmp_path / "tables"))
    tables.complete(Marker(0, 5, ("subscriptions",)))
    with pytest.raises(PipelineError, match="earlier version"):
        tables.read("subscriptions")


def outcomes(tables: Tables) -> dict[int | None, str]:
    return {row.request: row.outcome for row in tables.read("requests").collect()}


def test_a_batch_counts_once_and_only_when_complete(
    spark: SparkSession, tmp_path: Path, frame: ToFrame
) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    ingest.write_batch(tables, frame(*STORY[:5]), 0)
    half = frame(*STORY[5:], first=6)
    tables.write(half, "events", 1)  # as a driver killed in the middle of batch 1 leaves it
    assert tables.read("events").count() == 5
    ingest.write_batch(tables, half, 1)
    ingest.write_batch(tables, half, 1)  # restarted after the marker, before Spark's own note
    assert tables.read("events").count() == len(STORY)
    assert tables.markers() == [Marker(0, 5, ("requests",)), Marker(1, 5, ("requests",))]


def test_every_table_can_be_read_before_there_is_anything(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "none"))
    for name in ("events", *TABLES):
        assert tables.read(name).columns
    with pytest.raises(PipelineError, match="no table 'orders'"):
        tables.read("orders")


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_sealed_segments_cut_anywhere(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal, file_format: str
) -> None:
    """Files that tasks write themselves (Parquet) and rows through Spark give the same tables."""
    groups = story()
    write_journal(tmp_path / "journal/broker", *groups, segment_bytes=20_000)
    assert list(seal_all(tmp_path / "journal/broker"))
    tables = Tables(spark, str(tmp_path / "tables"), file_format)
    assert (tables.local is None) == (file_format != "parquet")
    run(tables, tmp_path / "journal", max_events=1500)
    total = sum(map(len, groups))
    assert len(tables.markers()) >= 2
    assert sum(marker.events for marker in tables.markers()) == total
    events = tables.read("events")
    assert events.count() == events.select("number").distinct().count() == total
    found = tables.read("requests")
    assert found.where("outcome = 'answered' and latency_us = 1000000").count() == total // 2
    assert found.count() == found.select("request").distinct().count() == total // 2


def test_more_left_open_than_the_driver_folds_is_a_job_for_spark(
    spark: SparkSession,
    tmp_path: Path,
    write_journal: WriteJournal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ingest, "MOST_LEFT", 0)
    log = write_journal(tmp_path / "journal/broker", STORY[:4])
    tables = Tables(spark, str(tmp_path / "tables"))
    run(tables, tmp_path / "journal")
    assert outcomes(tables) == {1: "open", 2: "open", 3: "open", 4: "open"}
    log.append(STORY[4:], SKEW)
    run(tables, tmp_path / "journal")
    assert outcomes(tables) == {
        1: "answered",
        2: "answered",
        3: "timeout",
        4: "open",
        None: "queue-full",
    }
