"""Wire: how fast each codec is, and homing's ZMTP against pyzmq as a ROUTER that echoes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Cell, Report, cpu_seconds, free_port, server

CONNECTIONS = 8
SIZES = (64, 256, 1024)
IN_FLIGHT = (1, 8, 64)
SERVERS = ("homing", "pyzmq")


def run(report: Report) -> None:
    """The codecs alone, then on sockets beside pyzmq."""
    measure_codecs(report)
    with tempfile.TemporaryDirectory() as folder:
        measure_echo(report, build(Path(folder)))


def measure_codecs(report: Report) -> None:
    """CPU of decoding and encoding, no sockets."""
    from benchmarks.wire import codecs

    seconds = 0.05 if report.quick else codecs.SECONDS
    rows: list[list[Cell]] = []
    for work in codecs.workloads():
        report.say(f"{work.codec}: {work.message}")
        rows.append([work.codec, work.message, *codecs.measure(work, seconds)])
    rows.append(["zmtp, CURVE", "1 frame, 64 B", *codecs.curve_figures(seconds)])
    report.note(
        "Decoding is fed 64 KiB at a time, as a busy socket gives it; `mdp` and `tasks` read messages that "
        "`zmtp` has already cut out of the stream."
    )
    columns = ["codec", "message", "decode µs", "decode MB/s", "encode µs", "encode MB/s"]
    report.table("Codecs, one core", columns, rows)


def build(folder: Path) -> str:
    """The load generator, compiled."""
    program = folder / "echo"
    source = Path(__file__).with_name("echo.c")
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return str(program)


def measure_echo(report: Report, load: str) -> None:
    """CPU of the server process a round trip, side by side."""
    rows: list[list[Cell]] = []
    ratios: dict[tuple[int, int], float] = {}
    for flying in IN_FLIGHT:
        for size in SIZES:
            report.say(f"ROUTER echo, {size} B, {flying} in flight")
            found = [_median(report, load, name, flying, size) for name in SERVERS]
            ratios[flying, size] = found[0][0] / found[1][0]
            flat = [figure for pair in found for figure in pair]
            rows.append([flying, f"{size} B", *flat, ratios[flying, size]])
    report.note(
        f"A ROUTER that echoes to {CONNECTIONS} DEALERs, which are one C program speaking ZMTP by itself. CPU "
        "is user and system time of the whole server process, libzmq's I/O thread included. With one in "
        "flight server and load share a core: on a virtual machine waking an idle one costs the server 30 to "
        "40 µs a time, whoever serves (a C program that only reads and writes needs 45 µs a round trip then, "
        "and 12 on a shared core; on two cores homing needed 0.53 to 0.64 of pyzmq's CPU)."
    )
    columns = [
        "in flight",
        "body",
        "homing CPU µs",
        "homing/s",
        "pyzmq CPU µs",
        "pyzmq/s",
        "CPU ratio",
    ]
    report.table("ROUTER echo, a round trip", columns, rows)
    for size in SIZES:
        worst = max(ratios[flying, size] for flying in IN_FLIGHT)
        report.goal(f"CPU against pyzmq, {size} B, worst of all", worst, 0.5)
    report.plot("echo", partial(_draw, rows))


def _median(report: Report, load: str, name: str, flying: int, size: int) -> tuple[float, float]:
    """CPU µs a round trip and round trips a second, each the median of its own."""
    runs = [_echo(report, load, name, flying, size) for _ in range(report.repeats)]
    middle = len(runs) // 2
    return sorted(run[0] for run in runs)[middle], sorted(run[1] for run in runs)[middle]


def _echo(report: Report, load: str, name: str, flying: int, size: int) -> tuple[float, float]:
    total = (2_000 if report.quick else 40_000) * (1 if flying == 1 else 5)
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.wire.server", name, str(port)]
    with server(argv, port, core=_core(flying)) as process:
        _drive(load, port, flying, size, total // 10)  # warm
        before = cpu_seconds(process.pid)
        out = _drive(load, port, flying, size, total)
        spent = cpu_seconds(process.pid) - before
    return spent / total * 1e6, total / float(out["seconds"])


def _core(flying: int) -> int | None:
    """With one in flight both sides share a core: waking an idle one costs more than the rest."""
    return 0 if flying == 1 else None


def _drive(load: str, port: int, flying: int, size: int, total: int) -> dict[str, Any]:
    numbers = [port, CONNECTIONS if flying > 1 else 1, flying, size, total]
    argv = [load, *map(str, numbers)]
    if _core(flying) is not None:
        argv = ["taskset", "-c", str(_core(flying)), *argv]
    done = subprocess.run(argv, check=True, capture_output=True, timeout=120)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _draw(rows: list[list[Cell]], axes: Any) -> None:
    names = [f"{row[0]} in flight\n{row[1]}" for row in rows]
    places = range(len(rows))
    axes.bar([at - 0.2 for at in places], [row[2] for row in rows], 0.4, label="homing")
    axes.bar([at + 0.2 for at in places], [row[4] for row in rows], 0.4, label="pyzmq")
    axes.set_xticks(list(places), names, fontsize=7)
    axes.set_ylabel("server CPU µs a round trip")
    axes.legend()
