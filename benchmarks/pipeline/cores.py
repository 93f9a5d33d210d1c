"""What a second core gains: matching in Spark, and bare processes on the same machine.

A Spark session of one core is not one core: its JVM and its Python worker are two processes that
take turns only where they must. So each measurement is a process of its own, bound to as many
processors as it may use, with everything that it starts. What two processes gain that share nothing,
a loop in registers and the match kernel on its index, is what the machine has to give.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numba

from benchmarks.harness import ROOT, Report
from benchmarks.pipeline import matching
from benchmarks.pipeline.session import session
from homing.pipeline.match import chunks, match_chunk, open_shard, save

SECONDS = 3.0
_Work = Callable[[str], Callable[[], int]]


def run(report: Report) -> None:
    """The table of both, and the goal."""
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        report.say("left out: matching by cores, as there is one")
        return
    pubs, subs = matching.size(report)
    left, right = matching.workload(min(pubs, 20_000), subs)
    rows: list[list[str | float]] = []
    with tempfile.TemporaryDirectory() as directory:
        shard = Path(directory) / "shard"
        save(right.select(["client", "connector", "fields"]), shard)
        batch = left.select(["id", "attrs_json"]).combine_chunks().to_batches()[0]
        name = str(shard.with_suffix(".index"))
        for told, work, given in (
            ("bare processes, a loop in registers", _spinning, ""),
            ("bare processes, matching", _Matching(batch), name),
        ):
            report.say(told)
            rates = [_bare(work, given, processors[:count]) for count in (1, 2)]
            rows.append([told, *rates, rates[1] / rates[0]])
    pairs = [(_spark(1, report), _spark(2, report)) for _ in range(report.repeats)]
    one, two = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    rows.append(["matching in Spark, publications/s", one, two, two / one])
    names = ["what", "one core", "two cores", "gain"]
    report.table("What a second core gains", names, rows)
    report.note(
        "A core is a processor that the whole process is bound to, Spark's JVM and its Python "
        "workers with it. The bare processes share nothing: more than they gain the machine has "
        "not to give. Steps of the loop are counted in millions, matching in publications."
    )
    report.goal("two cores / one core", two / one, 1.7, at_least=True)


def _spark(count: int, report: Report) -> float:
    """Publications/s in a process that has so many processors, and a session of as many cores."""
    report.say(f"matching in Spark on {count} processors")
    words = [sys.executable, "-m", __name__, str(count), *(["quick"] if report.quick else [])]
    found = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(found.stdout.split()[-1])


def _bare(work: _Work, given: str, processors: list[int]) -> float:
    """Units of work a second, of as many processes as processors, all at once."""
    fresh = multiprocessing.get_context("spawn")
    start = fresh.Barrier(len(processors))
    told = fresh.SimpleQueue()
    ours: list[Any] = [
        fresh.Process(target=_repeat, args=(work, given, processor, start, told))
        for processor in processors
    ]
    for process in ours:
        process.start()
    rates = [float(told.get()) for _ in ours]
    for process in ours:
        process.join()
    return sum(rates)


def _repeat(work: _Work, given: str, processor: int, start: Barrier, told: Any) -> None:
    os.sched_setaffinity(0, {processor})
    once = work(given)
    once()
    start.wait()
    done, before = 0, time.perf_counter()
    while time.perf_counter() - before < SECONDS:
        done += once()
    told.put(done / (time.perf_counter() - before))


def _spinning(_: str) -> Callable[[], int]:
    """Millions of steps that need nothing but a processor's registers."""
    spin: Any = numba.njit(_spin)

    def once() -> int:
        return 1 if spin(1_000_000) else 0

    return once


def _spin(steps: int) -> int:
    state = 88172645463325252
    for _ in range(steps):
        state ^= (state << 13) & 0x7FFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= (state << 17) & 0x7FFFFFFFFFFFFFFF
    return state


class _Matching:
    """What a task does, without Spark."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __call__(self, index: str) -> Callable[[], int]:
        shard = open_shard(Path(index))

        def once() -> int:
            for asking in chunks(self._batch):
                for _ in match_chunk(shard, asking):
                    pass
            return int(self._batch.num_rows)

        return once


def main(cores: str, quick: str = "") -> None:
    """One measurement of Spark's; the figure is the last word that is printed."""
    count = int(cores)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:count]))
    report = Report("pipeline", title="", quick=bool(quick))
    with session(count) as spark:
        print(matching.speed(report, spark))


if __name__ == "__main__":
    main(*sys.argv[1:])
