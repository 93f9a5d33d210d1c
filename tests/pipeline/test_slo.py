"""Service levels: percentiles within the width of a bucket, errors by code, flags."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from homing.journal.events import (
    Delivered,
    Dropped,
    Event,
    PublicationAccepted,
    Redelivered,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
)
from homing.pipeline import slo
from homing.pipeline.publications import deliveries, publications
from homing.pipeline.requests import requests
from homing.pipeline.tables import Tables
from tests.pipeline.conftest import ToFrame


def test_percentiles_errors_and_saturation(frame: ToFrame) -> None:
    chance = random.Random(7)
    latencies = sorted(chance.lognormvariate(-6, 1.5) for _ in range(1000))
    events: list[Event] = []
    for each in chance.sample(latencies, len(latencies)):
        number = len(events) + 1
        events.append(RequestAccepted(50.0, b"echo", b"c", 1))
        events.append(RequestAnswered(50.0 + each, number, b"w", 1, each / 2))
    events += [RequestRefused(50.0, 0, code, b"echo", b"c") for code in (b"timeout", b"denied") * 5]
    [row] = slo.minutes(slo.histogram(requests(frame(*events)))).collect()
    assert (row.service, row.requests, row.errors) == ("echo", 1010, 10)
    assert row.codes == {"timeout": 5, "denied": 5}
    assert row.error_share == pytest.approx(10 / 1010)
    for name, share in slo.QUANTILES.items():
        exact = latencies[int(share * 1000) - 1] * 1e6
        assert row[name] == pytest.approx(exact, rel=0.02)
    assert row.in_flight == pytest.approx(sum(latencies) / 60, rel=0.01)
    assert row.waiting_share == pytest.approx(0.5, rel=0.01)


def test_a_clock_that_is_set_back_takes_no_time_away(frame: ToFrame) -> None:
    events: list[Event] = [
        RequestAccepted(30.0, b"echo", b"c", 1),
        RequestAnswered(36.0, 1, b"w", 1),
        RequestAccepted(55.0, b"echo", b"c", 1),
        RequestAnswered(25.0, 3, b"w", 1),  # set back by half a minute meanwhile
    ]
    [row] = slo.minutes(slo.histogram(requests(frame(*events)))).collect()
    assert (row.requests, row.in_flight) == (2, pytest.approx(0.1))


def test_histograms_merge(frame: ToFrame) -> None:
    one = [RequestAccepted(1.0, b"echo", b"c", 1), RequestAnswered(1.5, 1, b"w", 1)]
    two = [RequestAccepted(2.0, b"echo", b"c", 1), RequestAnswered(2.1, 1, b"w", 1)]
    first = slo.histogram(requests(frame(*one)))
    second = slo.histogram(requests(frame(*two, node=b"node0002")))
    [row] = slo.minutes(first.unionByName(second)).collect()
    assert row.requests == 2
    assert row.p50_us == pytest.approx(100_000, rel=0.02)
    assert row.p99_us == pytest.approx(500_000, rel=0.02)


def test_a_request_counts_once_however_often_it_ends(frame: ToFrame) -> None:
    """Ends that a later batch has are rows of their own."""
    first = requests(
        frame(RequestAccepted(1.0, b"echo", b"c", 1), RequestAnswered(2.0, 1, b"w", 1))
    )
    orphan = requests(frame(RequestAnswered(3.0, 9, b"w", 1), first=3))
    again = [RequestAnswered(70.0, 1, b"w", 1), RequestAnswered(71.0, 9, b"w", 1)]
    later = requests(frame(*again, first=4))
    counts = slo.histogram(first.unionByName(orphan).unionByName(later))
    found = [
        (row.service, row.requests, row.minute.minute) for row in slo.minutes(counts).collect()
    ]
    assert sorted(found, key=str) == [("echo", 1, 13), (None, 1, 13)]


def test_unusual_minutes_are_flagged(spark: SparkSession) -> None:
    quiet = [("echo", minute, 100 + minute % 3, 500.0 + minute % 5, 1) for minute in range(20)]
    rows = [*quiet, ("echo", 20, 100, 50_000.0, 1), ("echo", 21, 9000, 500.0, 700)]
    rows.append(("echo", 60, 9000, 50_000.0, 700))  # it rested for longer than usual reaches back
    found = spark.createDataFrame(
        rows, "service string, minute int, requests bigint, p99_us double, errors bigint"
    ).withColumn("minute", F.timestamp_seconds(F.col("minute") * 60))
    flags = {
        row.minute.minute: (row.odd_rate, row.odd_latency, row.odd_errors)
        for row in slo.anomalies(found).collect()
        if row.odd_rate or row.odd_latency or row.odd_errors
    }
    assert flags == {20: (False, True, False), 21: (True, False, True)}


def test_subscribers_lag_and_drops(frame: ToFrame) -> None:
    alice = b"a" * 12
    events: list[Event] = [
        PublicationAccepted(1.0, b"1" * 12, b"p", b"{}", b""),
        PublicationAccepted(1.0, b"2" * 12, b"p", b"{}", b""),
        Delivered(1.25, b"1" * 12, alice),
        Redelivered(3.0, b"1" * 12, alice),
        Dropped(4.0, b"2" * 12, alice, b"slow"),
    ]
    source = frame(*events)
    [row] = slo.subscribers(publications(source), deliveries(source)).collect()
    assert (row.client, row.delivered, row.redelivered, row.dropped) == (alice.hex(), 1, 1, 1)
    assert row.worst_lag_us == 2_000_000


def test_a_job_that_may_not_write_is_told_before_the_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # modes mean nothing to root
    with pytest.raises(PermissionError, match="cannot be written here"):
        slo.run(Tables(spark, str(tmp_path)))
