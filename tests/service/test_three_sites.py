"""The example with three sites runs, and all three answer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "three_sites.py"


@pytest.mark.slow
def test_three_sites(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = [line for line in run.stdout.splitlines() if "answered by" in line]
    assert len(told) == 2
    for line in told:
        assert sum(map(int, re.findall(r"'\w+': (\d+)", line))) == 60
    assert all(site in told[0] for site in ("paris", "lyon", "nice"))
