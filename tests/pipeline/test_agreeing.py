"""Tables and checkpoints that were taken apart are told, and so is a second one who ingests."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from homing.errors import PipelineError
from homing.pipeline import compact, ingest
from homing.pipeline.agreeing import LOCK, alone, check, check_whole
from homing.pipeline.tables import Tables
from tests.pipeline.conftest import WriteJournal, run_through
from tests.pipeline.test_requests import STORY


def ingested(spark: SparkSession, tmp_path: Path, write_journal: WriteJournal) -> Tables:
    write_journal(tmp_path / "journal" / "one", STORY)
    tables = Tables(spark, str(tmp_path / "tables"))
    check(tables)  # nothing is there
    run_through(partial(ingest.start, tables, str(tmp_path / "journal")))
    check(tables)
    return tables


def test_either_without_the_other(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """What came meanwhile would be passed over as read, or what was read be missing."""
    tables = ingested(spark, tmp_path, write_journal)
    checkpoint = tmp_path / "tables" / "_checkpoint"
    shutil.move(checkpoint, tmp_path / "kept")
    with pytest.raises(PipelineError, match="not all of its checkpoint"):
        ingest.start(tables, str(tmp_path / "journal"))
    shutil.rmtree(tables.root)
    shutil.copytree(tmp_path / "kept", checkpoint)
    with pytest.raises(PipelineError, match="not all tables"):
        ingest.start(tables, str(tmp_path / "journal"))
    with pytest.raises(PipelineError, match="was read before is missing"):
        check_whole(tables)  # as those who read them do


def test_a_file_that_somebody_removed(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """Without it an audit finds losses that are none. What is not read any more may go."""
    tables = ingested(spark, tmp_path, write_journal)
    root = tmp_path / "tables"
    for place in ("events", "requests", "_state/requests"):
        path, *_ = (root / place).glob("batch=0/*.parquet")
        path.rename(tmp_path / "away")
        with pytest.raises(PipelineError, match=f"{place}/batch=0/{path.name}: what was in there"):
            check_whole(tables)
        (tmp_path / "away").rename(path)
    write_journal(tmp_path / "journal" / "other", STORY, node=b"node0002")
    run_through(partial(ingest.start, tables, str(tmp_path / "journal")))
    assert tables.state_batch("requests") == 1
    shutil.rmtree(root / "_state" / "requests" / "batch=0")
    compact.run(tables)
    shutil.rmtree(root / "requests")  # a compaction holds it
    check(tables)
    path, *_ = (root / "_compacted" / "requests").glob("*/*.parquet")
    path.unlink()
    with pytest.raises(PipelineError, match=f"{path.name}: what was in there is missing"):
        check(tables)
    for note in root.glob("_*/*=*/_files"):  # as an earlier version left them
        note.unlink()
    check(tables)


def test_a_driver_that_was_killed_is_no_mistake(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """Between marker and commit, or before the marker."""
    tables = ingested(spark, tmp_path, write_journal)
    (commit,) = (tmp_path / "tables" / "_checkpoint" / "commits").glob("[0-9]*")
    commit.unlink()
    check(tables)
    shutil.rmtree(tmp_path / "tables" / "_batches")
    check(tables)


def test_one_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    with (
        alone(tables),
        pytest.raises(PipelineError, match="another ingest"),
        alone(Tables(spark, tables.root)),
    ):
        pass
    with alone(tables):  # whoever comes later
        assert (tmp_path / "tables" / LOCK.format("ingest")).exists()


def test_one_compaction_at_a_time(
    spark: SparkSession, tmp_path: Path, write_journal: WriteJournal
) -> None:
    """One that began earlier and ends later would count for rows that the other's note has too."""
    journal, tables = str(tmp_path / "journal"), Tables(spark, str(tmp_path / "tables"))
    write_journal(tmp_path / "journal/broker", STORY)
    run_through(lambda: ingest.start(tables, journal))
    with (
        alone(tables),
        alone(tables, "compact"),
        pytest.raises(PipelineError, match="another compact"),
    ):
        compact.run(tables)
    compact.run(tables)
    assert tables.generation() is not None
