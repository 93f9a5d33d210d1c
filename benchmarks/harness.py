"""What every benchmark shares: servers with their CPU and memory, medians, tables, plots, goals.

Machines differ and are noisy, so the figures that count are CPU time per message of the
server process, and ratios between servers measured in the same run.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shutil import which
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "benchmarks"

Cell = str | int | float | None


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its live and reaped children, in seconds.

    Read from the scheduler's nanosecond account where there is one: clock ticks are too
    coarse for runs of a second.
    """
    pids = [pid, *_children(pid)]
    total = 0.0
    for each in pids:
        with contextlib.suppress(OSError):
            total += _threads_seconds(each)
    return total


def _threads_seconds(pid: int) -> float:
    seconds = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            seconds += int((task / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
    return seconds


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="utf-8").split():
                found += [int(child), *_children(int(child))]
    return found


def rss_bytes(pid: int) -> int:
    """Resident memory of one process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def free_port() -> int:
    """A TCP port on loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(
    port: int | str, seconds: float = 20.0, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Return once somebody listens there, at a port or a socket's path; a process that ends first is told of at once."""
    family, address = (
        (socket.AF_UNIX, port) if isinstance(port, str) else (socket.AF_INET, ("127.0.0.1", port))
    )
    deadline = time.monotonic() + seconds
    while True:
        if process is not None and process.poll() is not None:
            words = " ".join(map(str, process.args)) if isinstance(process.args, list) else ""
            raise RuntimeError(f"exit code {process.returncode} from: {words}")
        with socket.socket(family) as probe:
            if probe.connect_ex(address) == 0:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens on {port} after {seconds:.0f} s")
        time.sleep(0.02)


@contextlib.contextmanager
def server(
    argv: Sequence[str],
    port: int | str,
    *,
    core: int | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that listens on `port` (or a path), pinned to a core, ended by its own id."""
    process = subprocess.Popen(
        list(argv),
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    try:
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        wait_for_port(port, process=process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def apt_installed(program: str, package: str) -> bool:
    """Whether a peer's program is there, installing its Debian package when root."""
    if which(program) or Path(f"/usr/sbin/{program}").exists():
        return True
    if os.geteuid() == 0 and which("apt-get"):
        print(f"  installing {package} for the comparison", file=sys.stderr)
        for verb in (["update"], ["install", "-y", package]):
            subprocess.run(["apt-get", *verb], check=False, capture_output=True)
    if which(program) or Path(f"/usr/sbin/{program}").exists():
        return True
    print(f"  left out: {program} (install the Debian package {package})", file=sys.stderr)
    return False


class Report:
    """Collects one area's figures and writes them as JSON, a page and plots."""

    def __init__(self, area: str, *, title: str, quick: bool = False) -> None:
        self.area = area
        self.title = title
        self.quick = quick
        self.repeats = 1 if quick else 3
        self.missed = 0
        self._data: dict[str, Any] = {"area": area, "machine": machine(), "tables": {}, "goals": []}
        self._page: list[str] = [f"# {title}", ""]

    def median(self, measure: Callable[[], float]) -> float:
        """The median of as many runs as this report repeats."""
        return statistics.median(measure() for _ in range(self.repeats))

    def say(self, text: str) -> None:
        """Progress for the person who waits."""
        print(f"  {text}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A paragraph on the page."""
        self._page += [text, ""]

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table, on the terminal, on the page and in the JSON."""
        shown = [[_cell(cell) for cell in row] for row in rows]
        lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(row) + " |" for row in shown]
        self._page += [f"## {name}", "", *lines, ""]
        self._data["tables"][name] = [dict(zip(columns, row, strict=True)) for row in rows]
        print(f"\n{name}")
        print("\n".join(lines), flush=True)

    def goal(self, name: str, value: float, limit: float, *, at_least: bool = False) -> None:
        """A ratio or figure to reach, checked and said."""
        reached = value >= limit if at_least else value <= limit
        self.missed += not reached
        sign = "≥" if at_least else "≤"
        self._data["goals"].append(
            {"name": name, "value": value, "limit": limit, "sign": sign, "reached": reached}
        )
        print(f"{'reached' if reached else 'MISSED '} {name}: {_cell(value)} (goal {sign} {limit})")

    def plot(self, name: str, draw: Callable[[Any], None]) -> None:
        """An SVG: `draw` gets matplotlib axes."""
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "homing"
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7.5, 4.2), layout="constrained")
        draw(axes)
        if not self.quick:
            PAGES.mkdir(parents=True, exist_ok=True)
            figure.savefig(PAGES / f"{self.area}-{name}.svg", metadata={"Date": None})
        pyplot.close(figure)
        self._page += [f"![{name}]({self.area}-{name}.svg)", ""]

    def finish(self) -> None:
        """Write it all down, unless this was a quick run."""
        if self.quick:
            return
        goals = self._data["goals"]
        if goals:
            self._page += ["## Goals", "", "| goal | measured | wanted | |", "|---|---|---|---|"]
            self._page += [
                f"| {g['name']} | {_cell(g['value'])} | {g['sign']} {g['limit']} | "
                f"{'reached' if g['reached'] else 'missed'} |"
                for g in goals
            ]
            self._page.append("")
        self._page += [
            f"Measured on {self._data['machine']}, medians of {self.repeats}.",
            f"Repeat it with `make bench ONLY={self.area}`.",
            "",
        ]
        RESULTS.mkdir(parents=True, exist_ok=True)
        PAGES.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self._data, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / f"{self.area}.json").write_text(text + "\n")
        (PAGES / f"{self.area}.md").write_text("\n".join(self._page))


def machine() -> str:
    """One line that says what the figures were measured on."""
    model = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    day = datetime.date.today().isoformat()
    return f"{os.cpu_count()} × {model}, Python {platform.python_version()}, {day}"


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
