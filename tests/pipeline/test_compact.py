"""Compaction: the same rows in fewer files, old ones gone, whenever it is interrupted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from homing.errors import PipelineError
from homing.journal.events import Event, RequestAccepted, RequestAnswered
from homing.pipeline import compact, ingest
from homing.pipeline.tables import Tables
from tests.pipeline.conftest import SKEW, WriteJournal, run_through


def group(first: int, size: int = 5) -> list[Event]:
    """Requests answered a hundred seconds after the group before; the last two stay open."""
    events: list[Event] = []
    for number in range(first, first + 2 * size, 2):
        events.append(RequestAccepted(float(number * 10), b"echo", b"c%d" % number, 1))
        events.append(RequestAnswered(number * 10 + 1.0, number, b"w", 1))
    return [*events[:-1], RequestAccepted(events[-1].at, b"echo", b"open", 1)]


def everything(tables: Tables) -> dict[str, list[Any]]:
    return {
        name: sorted(tables.read(name).drop("attrs").collect(), key=str)
        for name in ("events", "requests", "publications", "subscriptions")
    }


def files(root: Path, table: str) -> int:
    return len(list(root.glob(f"{table}/batch=*/*.parquet")))


def test_few_files_hold_the_same_rows(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    root = tmp_path / "tables"
    tables, journal = Tables(spark, str(root)), str(tmp_path / "journal")
    with pytest.raises(PipelineError, match="nothing to compact"):
        compact.run(tables)
    log = write_journal(tmp_path / "journal/broker", group(1), group(11))

    def read_in() -> None:
        run_through(lambda: ingest.start(tables, journal, max_events=10))

    read_in()
    before = everything(tables)
    found = {each.table: each for each in compact.run(tables)}
    assert everything(tables) == before
    assert (found["events"].rows, found["events"].files) == (20, 1)
    assert found["events"].bytes > 0
    assert files(root, "events") > 0  # for queries that are under way

    log.append(group(21), SKEW)
    read_in()
    after = everything(tables)
    assert len(after["events"]) == 30

    # A driver killed before the marker: what it left is not looked at, then overwritten.
    half = root / "_compacted/events/generation=2"
    half.mkdir()
    (half / "part-torn.parquet").write_bytes(b"torn")
    assert everything(tables) == after

    # Retention by time: what was over before goes, what is open stays.
    cutoff = datetime.fromtimestamp(SKEW / 1e6 + 200.0, UTC)
    compact.run(tables, cutoff)
    events = tables.read("events")
    assert events.where(events["at"] < cutoff).count() == 0
    assert events.count() == sum(row["at"].replace(tzinfo=UTC) >= cutoff for row in after["events"])
    left = tables.read("requests").collect()
    assert sum(row.outcome == "open" for row in left) == 6
    assert files(root, "events") == 1  # the batch that only the latest generation replaced
    compact.run(tables)
    assert files(root, "events") == 0
    assert not (root / "_compacted/events/generation=1").exists()
    read_in()  # nothing new, and nothing written again
    assert tables.read("events").count() == events.count()
