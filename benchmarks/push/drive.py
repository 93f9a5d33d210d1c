"""Drive a push server with the sink, and weigh what it costs the server."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from statistics import median
from typing import IO

from benchmarks.harness import cpu_seconds, rss_bytes
from benchmarks.peers import sink_program
from benchmarks.push.servers import Running, Server, token_file
from benchmarks.service.drive import at_work, expect


@dataclass(frozen=True)
class Figures:
    """One run: what the server's processes spent, what subscribers saw."""

    cpu_us: float  # of all the server's processes, per delivery
    rate: float  # deliveries/s
    useful: float  # of those, what the subscriber had asked for
    useful_cpu_us: float  # per useful delivery
    p50_us: float
    p99_us: float


Cases = Mapping[str, Mapping[str, float]]


def measure(server: Server, repeats: int, cases: Cases) -> dict[str, Figures]:
    """Every case, one after the other, through a fresh server each time; the medians."""
    runs: dict[str, list[Figures]] = {case: [] for case in cases}
    for _ in range(server.repeats or repeats):
        with server.start() as running:
            for case, options in cases.items():
                runs[case].append(once(server, running, options))
    return {case: middle(seen) for case, seen in runs.items()}


def middle(runs: list[Figures]) -> Figures:
    """The median of each figure."""
    return Figures(*(median(figures) for figures in zip(*map(astuple, runs), strict=True)))


def once(server: Server, running: Running, options: Mapping[str, float]) -> Figures:
    """One run against a server that runs."""
    with sinking(running, server, options) as output:
        expect(output, "start")
        before = _cpu(running)
        told = json.loads(expect(output, "end"))
        spent = (_cpu(running) - before) * 1e6
    # A peer's topic is the same in every run: what the run before left under way may still come.
    if not told["useful"] or (told["strays"] and server.filters):
        raise RuntimeError(f"the sink went wrong: {told}")
    seconds = told["seconds"]
    return Figures(
        spent / told["deliveries"],
        told["deliveries"] / seconds,
        told["useful"] / seconds,
        spent / told["useful"],
        told["p50_us"],
        told["p99_us"],
    )


@contextlib.contextmanager
def sinking(running: Running, server: Server, options: Mapping[str, float]) -> Iterator[IO[str]]:
    """The sink at work, all subscribed; its output. Closing its input ends it."""
    groups = int(options.get("groups", 1))
    words = [f"{name}={value}" for name, value in options.items()]
    words += [f"port={running.subscribers}", f"pub={running.publishers}"]
    words += [f"filter={int(groups > 1 and not server.filters)}"]
    with tempfile.TemporaryDirectory() as directory:
        words += token_file(running, int(options["subs"]), directory)
        with at_work([str(sink_program()), server.protocol, *words]) as output:
            yield output


def bytes_per_connection(server: Server, count: int) -> tuple[float, float]:
    """Resident memory that one more idle subscriber costs: of the first process, and of all."""
    with server.start() as running:
        with sinking(running, server, {"subs": 10, "idle": 1}):
            few = _resident(running)
        with sinking(running, server, {"subs": 10 + count, "idle": 1}):
            many = _resident(running)
    grown = [max(0.0, (after - before) / count) for before, after in zip(few, many, strict=True)]
    return grown[0], sum(grown)


def _resident(running: Running) -> list[int]:
    """What each process holds once it has come to rest."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        before = _cpu(running)
        time.sleep(0.25)
        if _cpu(running) - before < 0.02:
            return [rss_bytes(pid) for pid in running.pids]
    raise TimeoutError("the server never came to rest")


def _cpu(running: Running) -> float:
    return sum(cpu_seconds(pid) for pid in running.pids)
