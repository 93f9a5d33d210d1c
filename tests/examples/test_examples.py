"""Every example runs as its first lines say, and tells what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.push.processes import free_offset

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*words: str, cwd: Path) -> str:
    """What a program prints; it ends well and leaves nothing in its directory."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert not list(cwd.iterdir())
    return done.stdout


def test_a_thousand_subscribers(tmp_path: Path) -> None:
    told = run(str(EXAMPLES / "thousand_subscribers.py"), cwd=tmp_path)
    assert "500 flats for 1000 people" in told
    assert "none missing" in told


def test_durable_requests(tmp_path: Path) -> None:
    told = run(str(EXAMPLES / "durable_requests.py"), str(free_offset()), cwd=tmp_path)
    assert "killed with -9" in told
    assert told.endswith("the shop has 100 invoices, each once\n")


def test_your_code(tmp_path: Path) -> None:
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_your_code.py")]
    assert "4 passed" in run(*words, cwd=tmp_path)


def test_every_example_is_listed_and_run() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    tests = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.parent.rglob("test_*.py")
    )
    for example in EXAMPLES.glob("*.py"):
        assert f"({example.name})" in listed, example.name
        assert example.stem in tests, f"nothing runs {example.name}"
