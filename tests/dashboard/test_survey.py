"""The survey: disks, the index and the pipeline as they are."""

from __future__ import annotations

from pathlib import Path

from homing.dashboard.survey import MAX_ATTRIBUTES, Place, Survey
from homing.node.runs import Run, note_run
from homing.push.filters import parse_filter
from homing.push.index import Index


def test_journals_are_measured_on_their_disk(tmp_path: Path) -> None:
    (tmp_path / "broker-paris").mkdir()
    (tmp_path / "broker-paris" / "1.log").write_bytes(b"x" * 100)
    (tmp_path / "broker-paris" / "2.log").write_bytes(b"x" * 20)
    (tmp_path / "matcher-1").mkdir()
    (tmp_path / "matcher-1" / "1.log").write_bytes(b"x" * 3)
    survey = Survey([Place("broker", tmp_path, lambda: 7)], tmp_path)
    survey.look()
    [journal] = survey.found["journals"]
    free = journal.pop("free")
    assert journal == {"node": "broker", "segments": 2, "bytes": 120, "number": 7}
    assert free > 0


def test_selectivity_comes_from_the_index(tmp_path: Path) -> None:
    index = Index(background=False)
    try:
        for number in range(100):
            [fields] = parse_filter(f"price in {number}..{number + 1} and city = 'c{number % 10}'")
            index.replace(number, fields)
        for number in range(100):
            index.match({"price": number + 0.5, "city": "c1"})
        survey = Survey([], tmp_path, index.stats)
        survey.look()
        assert survey.found["index"]["subscriptions"] == 100
        assert {one["name"] for one in survey.found["attributes"]} == {"price", "city"}
        shares = {one["name"]: one["selectivity"] for one in survey.found["attributes"]}
        assert 0 <= shares["price"] < 0.2
    finally:
        index.close()


def test_many_attributes_are_cut(tmp_path: Path) -> None:
    index = Index(background=False)
    try:
        for number in range(2 * MAX_ATTRIBUTES):
            [fields] = parse_filter(f"a{number} > 1")
            index.replace(number, fields)
        survey = Survey([], tmp_path, index.stats)
        survey.look()
        assert len(survey.found["attributes"]) == MAX_ATTRIBUTES
    finally:
        index.close()


def test_pipeline_runs_are_told(tmp_path: Path) -> None:
    survey = Survey([], tmp_path)
    survey.look()
    assert survey.found["pipeline"] == []
    note_run(str(tmp_path), Run("ledger", 5.0, 1.5, "nothing lost"))
    survey.look()
    assert survey.found["pipeline"][0]["result"] == "nothing lost"
