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
from homing.pipeline.removing import Removal, remove_by_uri
from homing.pipeline.tables import Generation, Marker, Run, Tables
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


def generations(root: Path, table: str) -> dict[int, set[str]]:
    """The files of each run of a table that is there."""
    return {
        int(place.name.partition("=")[2]): {path.name for path in place.glob("*.parquet")}
        for place in root.glob(f"_compacted/{table}/generation=*")
    }


def test_a_full_run_stays_as_it_is(
    spark: SparkSession,
    tmp_path: Path,
    write_journal: WriteJournal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compact, "ROWS_IN_FILE", 15)
    monkeypatch.setattr(compact, "TIMES", {"events": "at"})  # one will do
    root = tmp_path / "tables"
    tables = Tables(spark, str(root))
    log = write_journal(tmp_path / "journal/broker", group(1), group(11))

    def one_more(cutoff: datetime | None = None) -> dict[int, set[str]]:
        run_through(lambda: ingest.start(tables, str(tmp_path / "journal")))
        before = sorted(tables.read("events").collect(), key=str)
        compact.run(tables, cutoff)
        if cutoff is None:
            assert sorted(tables.read("events").collect(), key=str) == before
        return generations(root, "events")

    made = first = one_more()
    assert len(first[1]) == 2  # 20 rows
    for number in (21, 31, 41):
        log.append(group(number), SKEW)
        made = one_more()
        assert made[1] == first[1]
    # The second was small and is in the third; that one is full, so the fourth is beside it.
    assert made.keys() == {1, 3, 4}
    cutoff = datetime.fromtimestamp(SKEW / 1e6 + 105.0, UTC)  # in the midst of the first
    log.append(group(51), SKEW)
    made = one_more(cutoff)
    generation = tables.generation()
    assert generation is not None
    assert [run.number for run in generation.of("events")] == [3, 5]
    after = tables.read("events")
    assert after.where(after["at"] < cutoff).count() == 0
    assert after.count() == 50
    # Too old as a whole: left out without a look at it.
    compact.run(tables, datetime.fromtimestamp(SKEW / 1e6 + 415.0, UTC))
    last = tables.generation()
    assert last is not None
    assert [run.number for run in last.of("events")] == [6]
    compact.run(tables)
    assert 3 not in generations(root, "events")


def test_a_reader_that_meets_a_compaction(
    spark: SparkSession,
    tmp_path: Path,
    write_journal: WriteJournal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between its looks at what there is a batch ends what was open, and is compacted."""
    monkeypatch.setattr(compact, "TIMES", {"requests": compact.TIMES["requests"]})
    tables, journal = Tables(spark, str(tmp_path / "tables")), str(tmp_path / "journal")
    log = write_journal(tmp_path / "journal/broker", [RequestAccepted(1.0, b"echo", b"c", 1)])
    run_through(lambda: ingest.start(tables, journal))
    log.append([RequestAnswered(2.0, 1, b"w", 1)], SKEW)

    class Met(Tables):
        met = False

        def generation(self) -> Generation | None:
            found = super().generation()
            self.meet()
            return found

        def markers(self) -> list[Marker]:
            found = super().markers()
            self.meet()
            return found

        def meet(self) -> None:
            if not self.met:
                self.met = True
                run_through(lambda: ingest.start(tables, journal))
                compact.run(tables)

    under_way = tables.read("requests")
    [row] = Met(spark, tables.root).read("requests").collect()
    assert row.outcome == "answered"
    [row] = under_way.collect()  # what it was to read is still there
    assert row.outcome == "open"


def test_which_runs_stay() -> None:
    def run(rows: int, first: int, last: int, table: str = "events") -> Run:
        return Run(table, 1, rows, first * 10**6, last * 10**6)

    full = compact.ROWS_IN_FILE
    runs = old, cut, large, small = (
        *(run(full, 1, 9), run(full, 9, 10)),
        *(run(full, 10, 20), run(full - 1, 20, 30)),
    )
    changes = run(full, 1, 9, "changes")
    assert compact.sort_out([*runs, changes], None) == ([old, cut, large], [small, changes])
    cutoff = datetime.fromtimestamp(10, UTC)
    assert compact.sort_out([*runs, changes], cutoff) == ([large], [cut, small, changes])


def test_removals_by_tasks(tmp_path: Path) -> None:
    """As over Spark Connect: exactly those that are meant, also below a name that a URI cannot spell."""
    place = tmp_path / "größe 1%" / "events"
    for name in ("batch=1", "batch=2", "batch=3", "batch=x", "batch=", "other=1", "batch=10"):
        (place / name).mkdir(parents=True)
        (place / name / "part.parquet").touch()
    uri = place.as_uri().replace("%C3%B6", "ö")  # as Spark spells it
    removal = Removal(uri, "batch", 3, (2,))
    assert remove_by_uri(removal) == {"seen": True, "removed": 2}
    assert {path.name for path in place.iterdir()} == {
        *("batch=2", "batch=x", "batch=", "other=1", "batch=10")
    }
    assert remove_by_uri(removal) == {"seen": True, "removed": 0}
    gone = Removal((tmp_path / "nothing").as_uri(), "batch", 3)
    assert remove_by_uri(gone) == {"seen": False, "removed": 0}
