"""The report's plots: as many points as a run of any length is worth, and pauses that show."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from homing.journal.events import (
    Delivered,
    Event,
    NodeStarted,
    PublicationMatched,
    RequestAccepted,
    RequestAnswered,
    SubscriptionSet,
)
from homing.pipeline import ingest, report, slo
from homing.pipeline.plots import HEIGHT, LEFT, RIGHT, WIDTH
from homing.pipeline.requests import requests
from homing.pipeline.tables import Tables
from tests.pipeline.conftest import ToFrame, WriteJournal, run_through


@pytest.mark.parametrize(
    ("span", "step"),
    [(0, 1), (29, 1), (60, 1), (299, 1), (300, 10), (1799, 10), (1800, 60), (86_400, 600)],
)
def test_a_point_stands_for_as_long_as_leaves_a_curve(span: float, step: int) -> None:
    assert report.step_of(span) == step


@given(st.floats(0, 2 * 365 * 86_400))
def test_there_are_enough_points_and_not_too_many(span: float) -> None:
    points = span / report.step_of(span)
    assert points <= 24 * report.LEAST_POINTS + 10
    assert points >= report.LEAST_POINTS or span < report.LEAST_POINTS


def story(seconds: int) -> list[Event]:
    """One request a second, answered at once."""
    events: list[Event] = []
    for second in range(seconds):
        events.append(RequestAccepted(second + 0.1, b"echo", b"c", 1))
        events.append(RequestAnswered(second + 0.2, len(events), b"w", 1))
    return events


def test_counts_by_any_number_of_seconds(frame: ToFrame) -> None:
    ended = requests(frame(*story(60)))
    for step, each in ((1, 1), (10, 10), (60, 60)):
        found = slo.minutes(slo.histogram(ended, step), step).collect()
        # The story begins 20 s into a minute.
        assert sum(row.requests for row in found) == 60
        assert max(row.requests for row in found) == min(each, 40)
        busy = max(row.in_flight for row in found)
        assert busy == pytest.approx(0.1 * min(each, 40) / step, rel=0.001)  # µs are cut off


def test_a_run_of_a_minute_is_a_curve(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    tables, page = Tables(spark, str(tmp_path / "tables")), tmp_path / "report.html"
    write_journal(tmp_path / "journal/broker", story(60))
    run_through(lambda: ingest.start(tables, str(tmp_path / "journal")))
    report.write(tables, page)
    text = page.read_text(encoding="utf-8")
    assert "requests/s, by second" in text
    answered, *_ = re.findall(r'd="M([^"]*)" fill="none"', text)
    places = [tuple(map(float, spot.split())) for spot in answered.split("L")]
    assert len(places) == 60
    assert (places[0][0], places[-1][0]) == (LEFT, WIDTH - RIGHT)
    assert len({y for _, y in places}) == 1


def point(second: int, **figures: Any) -> dict[str, Any]:
    at = datetime.fromtimestamp(1_700_000_000 + second, UTC)
    return {"minute": at, "requests": 10, "errors": 0, "service": "echo", **figures}


def test_a_pause_is_drawn_as_none() -> None:
    text = report._throughput([point(0), point(10), point(60), point(70)], 10)
    answered, *_ = re.findall(r'd="M([^"]*)" fill="none"', text)
    heights = [float(spot.split()[1]) for spot in answered.split("L")]
    assert len(heights) == 6
    assert heights[2] == heights[3] == max(heights) < HEIGHT
    assert len({*heights[:2], *heights[4:]}) == 1


def test_balance_and_filters_are_shown(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """Two matchers, of which one does three times as much; two filters, one asked for by two."""
    connector = b"conn0001"
    clients = [bytes([number]) * 12 for number in range(3)]
    dear, berlin = (
        b'{"price":{"use":2,"low":10,"high":20}}',
        b'{"city":{"use":1,"strval":"Berlin"}}',
    )
    asked = [
        SubscriptionSet(0.1, client, connector, b"default", fields)
        for client, fields in zip(clients, (dear, dear, berlin), strict=True)
    ]

    def matched(number: int, *whom: int) -> Event:
        places = b"".join(clients[one] + connector for one in whom)
        return PublicationMatched(1.0 + number, number.to_bytes(12, "big"), places, len(whom))

    busy: list[Event] = [NodeStarted(0.0, b"matcher", b"busy"), *asked]
    busy += [matched(1, 0, 1), matched(2, 0), matched(3, 2)]
    idle: list[Event] = [NodeStarted(0.0, b"matcher", b"<idle>"), *asked, matched(4, 0, 1)]
    write_journal(tmp_path / "journal/busy", busy, node=b"match001")
    write_journal(tmp_path / "journal/idle", idle, node=b"match002")
    pushed = [NodeStarted(0.0, b"connector", b"c"), Delivered(2.0, bytes(12), clients[0])]
    write_journal(tmp_path / "journal/connector", pushed, node=connector)
    tables, page = Tables(spark, str(tmp_path / "tables")), tmp_path / "report.html"
    run_through(lambda: ingest.start(tables, str(tmp_path / "journal")))
    report.write(tables, page)
    text = page.read_text(encoding="utf-8")
    assert "publications of matchers: 2 at work, busiest / mean 1.50" in text
    assert "deliveries of connectors: 1 at work, busiest / mean 1.00" in text
    assert "requests of brokers" not in text
    assert "&lt;idle&gt;" in text
    rows = re.findall(r"<tr><td>([^<]*)</td><td[^>]*>(\d+)</td><td[^>]*>(\d+)</td></tr>", text)
    assert rows == [
        ("price in 10..20", "2", "5"),
        ("city = &quot;Berlin&quot;", "1", "1"),
    ]
