"""The last run of each pipeline job is remembered beside its tables."""

from __future__ import annotations

from pathlib import Path

from homing.node.runs import DIRECTORY, MAX_RESULT, Run, last_runs, note_run


def test_the_last_run_of_each_job_counts(tmp_path: Path) -> None:
    for finished in (1.0, 5.0):
        note_run(str(tmp_path), Run("ledger", finished, 2.0, f"run of {finished}"))
    note_run(f"file://{tmp_path}", Run("slo", 9.0, 1.0, "3 minutes", well=False))
    assert last_runs(tmp_path) == [
        Run("slo", 9.0, 1.0, "3 minutes", well=False),
        Run("ledger", 5.0, 2.0, "run of 5.0"),
    ]


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    note_run(str(tmp_path), Run("slo", 1.0, 1.0, "x" * 10_000))
    (tmp_path / DIRECTORY / "broken.json").write_text("{")
    (tmp_path / DIRECTORY / "other.json").write_text('{"job": 3}')
    [run] = last_runs(tmp_path)
    assert len(run.result) == MAX_RESULT


def test_no_tables_no_runs(tmp_path: Path) -> None:
    assert last_runs(tmp_path / "none") == []


def test_tables_elsewhere_or_unwritable_are_no_error(tmp_path: Path) -> None:
    note_run("s3://bucket/tables", Run("slo", 1.0, 1.0, "fine"))
    blocked = tmp_path / "file"
    blocked.write_text("")
    note_run(str(blocked), Run("slo", 1.0, 1.0, "fine"))
    assert not Path("s3:").exists()
