"""README shows what the benchmarks measured, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.figures import BEGIN, END, README, RESULTS, figures, updated


def test_readme_shows_the_results() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == updated(text, figures()), "run: make reference"


def test_what_is_missed_is_shown_and_what_is_reached_is_counted(tmp_path: Path) -> None:
    goals = [
        {"name": "quick", "value": 0.4049, "limit": 0.5, "sign": "≤", "reached": True},
        {"name": "much", "value": 12345.6, "limit": 20000, "sign": "≥", "reached": False},
    ]
    area = {"area": "wire", "machine": "2 × CPU, Python 3.11.7, 2026-11-01", "goals": goals}
    (tmp_path / "wire.json").write_text(json.dumps(area))
    (tmp_path / "loop.json").write_text(json.dumps({**area, "area": "loop", "goals": []}))
    table = figures(tmp_path)
    assert "| [wire](docs/benchmarks/wire.md#goals) | 1 of 2 |" in table
    assert "| [wire](docs/benchmarks/wire.md#goals) | much | 12,346 | ≥ 20,000 |" in table
    assert "quick" not in table
    assert "Measured on 2 × CPU, Python 3.11.7;" in table
    assert "loop" not in table


def test_every_goal_stands_on_its_area_s_page() -> None:
    """README counts on it."""
    for path in RESULTS.glob("*.json"):
        area = json.loads(path.read_text(encoding="utf-8"))
        page = (README.parent / "docs" / "benchmarks" / f"{path.stem}.md").read_text("utf-8")
        assert all(f"| {goal['name']} |" in page for goal in area["goals"]), path.stem
        assert not area["goals"] or "## Goals" in page


def test_the_rest_of_readme_stays() -> None:
    assert updated(f"a\n{BEGIN}old\n{END}\nb\n", "new\n") == f"a\n{BEGIN}\nnew\n\n{END}\nb\n"
    with pytest.raises(ValueError, match="README has no"):
        updated("nothing", "new\n")
