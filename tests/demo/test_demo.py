"""The demo is what it says: real processes, a real kill, an audit that could fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import printed_as_shown


def _demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "homing.cli", "demo", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "HOMING_SERVICE_NAME": "not for the demo", "COLUMNS": "100"},
    )


def test_a_whole_run(tmp_path: Path) -> None:
    few = ["--requests", "3000", "--subscribers", "100", "--publications", "400"]
    ran = _demo(*few, "--no-spark", "--data", str(tmp_path / "kept"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    answered = re.search(
        r"answered +3,000 \(paris ([\d,]+), lyon ([\d,]+)\), 0 mixed up", ran.stdout
    )
    assert answered is not None, ran.stdout
    paris, lyon = (int(number.replace(",", "")) for number in answered.groups())
    assert paris + lyon == 3000
    assert lyon > 300, "the busy site spills to its peer"
    assert "0 missing, 0 uncalled for" in ran.stdout
    assert re.search(r"asked for +[1-9]\d*", ran.stdout), "somebody was to get something"
    assert "0 lost, 0 ended twice" in ran.stdout
    assert ran.stdout.endswith("nothing was lost\n")
    assert ran.stderr == ""
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {
        "paris",
        "lyon",
        "matcher",
        "dispatcher",
        "connector",
    }


def test_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """Down to the pipeline, which is left out here; figures may differ."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = readme.partition("$ make demo\n")[2].partition("```")[0]
    shown = re.sub(r"[\d,]*\d", "…", block.partition("\nPipeline ")[0]) + "nothing was lost\n"
    ran = _demo("--requests", "500", "--subscribers", "30", "--publications", "100", "--no-spark")
    assert printed_as_shown(ran.stdout.replace("\n\nnothing", "\nnothing"), shown), ran.stdout


@pytest.mark.parametrize("words", [["--requests", "1"], ["--requests", "many"]])
def test_wrong_words(words: list[str]) -> None:
    ran = _demo(*words)
    assert ran.returncode == 64
    assert ran.stderr.startswith("homing: ")
