"""Every fuzz target runs a few seconds in each test run, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import driver
from tests.conftest import PROFILE

SECONDS = 600 if PROFILE == "nightly" else 3
ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", driver.targets())
@pytest.mark.timeout(SECONDS + 60)
def test_target_finds_nothing(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz", name, "--seconds", str(SECONDS)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
