"""The site builds without a warning and without the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.site import navigation

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation_once() -> None:
    def pages(nav: object) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        parts = nav.values() if isinstance(nav, dict) else nav
        assert isinstance(parts, list | type({}.values()))
        return [page for part in parts for page in pages(part)]

    listed = pages(navigation(ROOT / "docs"))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == there, "a folder of docs/ is missing in scripts/site.py"


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """`--strict` makes every broken link, anchor and omitted page an error."""
    site = tmp_path / "site"
    told = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "homing" in start
    assert "fonts.googleapis.com" not in start
    decisions = (site / "design" / "adr" / "index.html").read_text(encoding="utf-8")
    assert "0001: Decisions are recorded" in decisions
