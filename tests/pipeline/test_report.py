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

from homing.journal.events import Event, RequestAccepted, RequestAnswered
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
