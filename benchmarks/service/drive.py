"""Drive a broker with the load generator, and weigh what it costs the broker."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import IO

from benchmarks.harness import cpu_seconds, rss_bytes
from benchmarks.peers import load_program
from benchmarks.service.brokers import Broker, Running, Start

LOAD_CORE = 1 if (os.cpu_count() or 1) > 1 else None


@dataclass(frozen=True)
class Figures:
    """One run: what the broker's processes spent, what clients saw."""

    cpu_us: float  # of the broker, per request
    rate: float  # requests/s
    p50_us: float
    p99_us: float


def middle(runs: list[Figures]) -> Figures:
    """The median of each figure."""
    return Figures(
        median(run.cpu_us for run in runs),
        median(run.rate for run in runs),
        median(run.p50_us for run in runs),
        median(run.p99_us for run in runs),
    )


def measure(broker: Broker, repeats: int, **options: float) -> Figures:
    """Requests through a fresh broker each time; the medians."""
    return middle(
        [once(broker.start, broker.protocol, {**broker.options, **options}) for _ in range(repeats)]
    )


def once(start: Start, protocol: str, options: Mapping[str, float]) -> Figures:
    """One run against a broker started for it."""
    with start() as running, loading(running, protocol, options) as output:
        expect(output, "start")
        before = _cpu(running)
        told = json.loads(expect(output, "end"))
        spent = _cpu(running) - before
    if told["strays"] or told["dropped"] or not told["requests"]:
        raise RuntimeError(f"the load went wrong: {told}")
    requests = told["requests"]
    rate = requests / told["seconds"]
    return Figures(spent / requests * 1e6, rate, told["p50_us"], told["p99_us"])


@contextlib.contextmanager
def loading(running: Running, protocol: str, options: Mapping[str, float]) -> Iterator[IO[str]]:
    """The load generator at work; its output. Closing its input ends it."""
    words = [f"{name}={value}" for name, value in options.items()]
    argv = [
        str(load_program()),
        protocol,
        f"fe={running.fe}",
        f"be={running.be}",
        *words,
    ]
    with at_work(argv) as output:
        yield output


@contextlib.contextmanager
def at_work(argv: list[str]) -> Iterator[IO[str]]:
    """A load program on its core, once it is ready; its output. Closing its input ends it."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if LOAD_CORE is not None:
            os.sched_setaffinity(process.pid, {LOAD_CORE})
        expect(process.stdout, "ready")
        yield process.stdout
    finally:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        process.stdout.close()


def expect(output: IO[str], word: str) -> str:
    """The rest of the line that starts with `word`, which comes next."""
    line = output.readline()
    if not line.startswith(word):
        raise RuntimeError(f"the load generator ended early (wanted {word!r}, got {line!r})")
    return line[len(word) :].strip()


CLIENTS = 16


def bytes_per_worker(broker: Broker, count: int) -> float:
    """Resident memory that one more idle worker costs."""
    few = _weigh(broker, workers=10, clients=1, mute=1)
    many = _weigh(broker, workers=10 + count, clients=1, mute=1)
    return (many - few) / count


def bytes_per_request(broker: Broker, count: int) -> float:
    """Resident memory that one more waiting request costs: the one worker never answers."""
    # As many clients as are allowed to have so much under way between them.
    few = _weigh(broker, workers=1, clients=CLIENTS, mute=1, requests=1000)
    many = _weigh(broker, workers=1, clients=CLIENTS, mute=1, requests=count)
    if many <= few:
        raise RuntimeError(f"{broker.name}: {count} requests should wait, and nothing does")
    return (many - few) / (count - 1000)


PATIENT = 30_000
"""Milliseconds between heartbeats that homing's own workers can keep to while they are idle."""


def idle_share(broker: Broker, workers: int, seconds: float, patient: int = 0) -> float:
    """The share of one core that a broker with idle workers takes.

    Workers beat every 2.5 s, or, `patient`, as seldom as the broker asks. That has time to come into force, and whole
    intervals are measured, 20 s for ten thousand: those who were told together beat together.
    """
    options = {**broker.options, "workers": workers, "clients": 1, "mute": 1}
    if patient:
        options["patient"] = patient
    with (
        broker.start() as running,
        loading(running, broker.protocol, options) as output,
    ):
        expect(output, "start")
        _settled(running)
        if patient:
            time.sleep(2 * seconds)
            seconds *= 6
        before, began = _cpu(running), time.monotonic()
        time.sleep(seconds)
        return (_cpu(running) - before) / (time.monotonic() - began)


def _weigh(broker: Broker, **options: int) -> int:
    merged = {**broker.options, **options}
    with broker.start() as running, loading(running, broker.protocol, merged) as output:
        expect(output, "start")
        _settled(running)
        return sum(rss_bytes(pid) for pid in running.pids)


def _settled(running: Running) -> None:
    """Wait until the broker has worked off what it was sent: it then spends next to nothing."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        before = _cpu(running)
        time.sleep(0.25)
        if _cpu(running) - before < 0.02:
            return
    raise TimeoutError("the broker never came to rest")


def _cpu(running: Running) -> float:
    return sum(cpu_seconds(pid) for pid in running.pids)
