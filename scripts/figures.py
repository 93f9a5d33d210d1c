"""Write README's measured figures from benchmarks/results, so that it cannot show any others.

    python -m scripts.figures             # part of `make reference`

How many goals each area reached, and those that it missed; all of them stand on the area's page.
tests/docs/test_figures.py fails while README differs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->"


def figures(results: Path = RESULTS) -> str:
    """A line for each area, behind it a row for each goal it missed, and what it was measured on."""
    areas: list[str] = ["| area | goals reached |", "|---|---|"]
    missed: list[str] = []
    machines: dict[str, None] = {}
    for path in sorted(results.glob("*.json")):
        area = json.loads(path.read_text(encoding="utf-8"))
        if goals := area["goals"]:
            machines[re.sub(r", [\d-]+$", "", area["machine"])] = None
            short = [goal for goal in goals if not goal["reached"]]
            reached = len(goals) - len(short)
            areas.append(f"| {_page(area['area'])} | {reached} of {len(goals)} |")
            missed += [_row(area["area"], goal) for goal in short]
    where = f"Measured on {'; '.join(machines)}; `make bench` repeats it.\n"
    if missed:
        missed = ["| area | missed | result | goal |", "|---|---|---|---|", *missed, ""]
    return "\n".join([*areas, "", *missed, where])


def _page(area: str) -> str:
    return f"[{area}](docs/benchmarks/{area}.md#goals)"


def _row(area: str, goal: dict[str, Any]) -> str:
    result, wanted = _number(goal["value"]), f"{goal['sign']} {_number(goal['limit'])}"
    return f"| {_page(area)} | {goal['name']} | {result} | {wanted} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def updated(text: str, table: str) -> str:
    """README with this table in its place."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README has no {BEGIN.strip()} … {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8"), figures()))
    print("wrote README.md")
