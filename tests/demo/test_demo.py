"""The demo is what it says: real processes, a real kill, an audit that could fail."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from homing.node.runs import Run, note_run
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
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme.partition("$ make demo\n")[2].partition("```")[0]
    shown = re.sub(r"[\d,]*\d", "…", block.partition("\nPipeline ")[0]) + "nothing was lost\n"
    ran = _demo("--requests", "500", "--subscribers", "30", "--publications", "100", "--no-spark")
    assert printed_as_shown(ran.stdout.replace("\n\nnothing", "\nnothing"), shown), ran.stdout


def _said(process: subprocess.Popen[str], wanted: str) -> str:
    """All it prints up to a line that has this."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if wanted in line:
            return said
    raise AssertionError(said)


def test_a_kept_fabric_lives_until_it_is_interrupted(tmp_path: Path) -> None:
    few = ["--requests", "20", "--subscribers", "2", "--publications", "4", "--no-spark"]
    note_run(str(tmp_path / "tables"), Run("ledger", time.time(), 1.0, "as in the demo"))
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", "demo", *few, "--keep", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
    try:
        said = _said(process, "  try ")
        [page] = re.findall(r"http://\S+", said)
        _until(page, lambda now: now["topology"]["peers"][0]["up"])
        _until(page, lambda now: now["times"]["homing_service_request_seconds"]["quote"][0] > 0)
        _until(page, lambda now: now["rates"]["homing_push_publications_total"][""] > 0)
        _until(page, lambda now: now["topology"]["pipeline"][0]["result"] == "as in the demo")
        process.send_signal(signal.SIGINT)
        process.wait(30)
        with pytest.raises(URLError):
            urlopen(page, timeout=5)
    finally:
        process.kill()
        process.communicate()


def _until(page: str, holds: Callable[[Any], bool]) -> None:
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(KeyError, IndexError):
            if holds(json.load(urlopen(page + "api/now", timeout=5))):
                return
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("words", [["--requests", "1"], ["--requests", "many"]])
def test_wrong_words(words: list[str]) -> None:
    ran = _demo(*words)
    assert ran.returncode == 64
    assert ran.stderr.startswith("homing: ")
