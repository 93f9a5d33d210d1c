"""Loop: uvloop's protocols against a plain epoll loop, for the broker's and the connector's pattern."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Cell, Report, cpu_seconds, free_port, rss_bytes, server

LOOPS = (
    "epoll",
    "uvloop-direct",
    "uvloop-chunk",
    "uvloop-turn",
    "uvloop-buffered",
    "asyncio-turn",
    "homing-node",
)

# Workers, clients, requests in flight.
BROKER = {
    "4 workers, 1 in flight": (4, 1, 1),
    "4 workers, 100 in flight": (4, 16, 100),
    "32 workers, 1 in flight": (32, 1, 1),
    "32 workers, 100 in flight": (32, 16, 100),
}
# Subscribers, publications in flight.
FAN = {
    "1 000 sinks, window 1": (1000, 1),
    "5 000 sinks, window 1": (5000, 1),
    "5 000 sinks, window 8": (5000, 8),
}
IDLE = 10_000


def run(report: Report) -> None:
    """Server CPU µs a message for every loop and pattern, and memory an idle connection."""
    with tempfile.TemporaryDirectory() as folder:
        load = build(Path(folder))
        columns: dict[str, dict[str, float]] = {}
        for name in LOOPS:
            report.say(name)
            columns[name] = measure(report, load, name)
    rows: list[list[Cell]] = [
        [what, *(columns[name][what] for name in LOOPS)] for what in columns[LOOPS[0]]
    ]
    report.note(
        "`direct` writes each message to the transport, which tries the system call at once; `chunk` joins what "
        "one read caused, `turn` what one loop turn caused; `buffered` is BufferedProtocol; "
        "`homing-node` is the node itself, with its limits, timers and back-pressure."
    )
    report.table("Server CPU µs a message, and bytes an idle connection", ["", *LOOPS], rows)


def build(folder: Path) -> str:
    """The load generator, compiled."""
    program = folder / "load"
    source = Path(__file__).with_name("load.c")
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return str(program)


def measure(report: Report, load: str, name: str) -> dict[str, float]:
    """Everything for one loop."""
    requests = 5_000 if report.quick else 60_000
    deliveries = 50_000 if report.quick else 1_000_000
    figures: dict[str, float] = {}
    for what, (workers, clients, flying) in BROKER.items():
        arguments = ["broker", workers, clients, flying, requests // (3 if flying == 1 else 1)]
        figures[what] = report.median(partial(cpu, load, name, arguments))
    for what, (sinks, window) in FAN.items():
        arguments = ["fan", sinks, window, max(window * 4, deliveries // sinks)]
        figures[what] = report.median(partial(cpu, load, name, arguments))
    figures[f"{IDLE:,} idle"] = idle_bytes(load, name, 1_000 if report.quick else IDLE)
    return figures


def cpu(load: str, name: str, arguments: list[Any]) -> float:
    """CPU µs of the server a message."""
    port = free_port()
    with server(
        [sys.executable, "-m", "benchmarks.loop.server", name, str(port)], port, core=0
    ) as process:
        before = cpu_seconds(process.pid)
        mode, *rest = map(str, arguments)
        out = subprocess.run(
            ["taskset", "-c", "1", load, mode, str(port), *rest],
            check=True,
            capture_output=True,
            timeout=120,
        ).stdout
        spent = cpu_seconds(process.pid) - before
    return spent / int(json.loads(out)["messages"]) * 1e6


def idle_bytes(load: str, name: str, connections: int) -> float:
    """Resident bytes of the server for each connection that does nothing."""
    port = free_port()
    with server([sys.executable, "-m", "benchmarks.loop.server", name, str(port)], port) as process:
        before = rss_bytes(process.pid)
        with subprocess.Popen(
            [load, "idle", str(port), str(connections)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as peers:
            assert peers.stdout is not None
            peers.stdout.readline()
            grown = rss_bytes(process.pid) - before
    return grown / connections
