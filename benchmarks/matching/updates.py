"""Changes beside matching: how many a second, and the longest that anybody waits."""

from __future__ import annotations

import gc
import os
import resource
import tempfile
import threading
import time
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.matching import workloads
from benchmarks.matching.workloads import Workload
from homing.push.index import Index
from homing.push.values import Field, Value

# One publication is matched after this many changes, and of so many changes one is a removal.
CHANGES_A_MATCH = 4
# A call that took longer than this has waited for something.
SUSPICIOUS = 0.001

Subscriptions = list[tuple[int, dict[str, Field]]]


class Changes(NamedTuple):
    """Changes a second of their own CPU time; the longest calls, beside merges and a snapshot, in ms.

    Pauses as Stopwatch counts them. `clock` is the longest call by the clock on the wall, `machine` the
    longest that a loop without any index stood still for as long a time.
    """

    workload: Workload
    rate: float
    pause: float
    snapshot_pause: float
    clock: float
    machine: float


class Readings(NamedTuple):
    """What the system says of this thread and of its process."""

    mine: float
    all_threads: float
    queued: float
    waits: int


class Stopwatch:
    """CPU time spent in changes, and the longest that a call kept its caller waiting.

    A call computes, and it may wait for another thread that computes. One that never waited took what it
    computed itself. One that did took no longer than the whole process computed meanwhile, nor than
    the clock says without the time in which its thread stood in the queue for a core. The rest is the
    machine's, which gave its cores to others.
    """

    def __init__(self) -> None:
        self.cpu = 0.0
        self.longest = 0.0
        self.longest_by_clock = 0.0
        # Opened once: opening it for every few calls would leave the caches to the system.
        self._schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._before = self._readings()

    def close(self) -> None:
        """Nothing is measured any more."""
        os.close(self._schedule)

    def begin(self) -> None:
        """A few calls follow; what was before them is not theirs."""
        self._before = self._readings()

    def took(self, seconds: float) -> None:
        """A call took so long by the clock on the wall."""
        if seconds > SUSPICIOUS:
            before, now = self._before, self._readings()
            pause = now.mine - before.mine
            if now.waits > before.waits:
                away = now.queued - before.queued
                pause = min(seconds - away, now.all_threads - before.all_threads)
            self.longest = max(self.longest, pause)
            self.longest_by_clock = max(self.longest_by_clock, seconds)
            self._before = now

    def _readings(self) -> Readings:
        queued = int(os.pread(self._schedule, 64, 0).split()[1]) / 1e9
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        return Readings(time.thread_time(), time.process_time(), queued, waits)


def beside_matching(workload: Workload, size: int) -> Changes:
    """Half of the subscriptions are there; the others come, one by one, while publications do."""
    source = workloads.subscriptions(workload.sized(size))
    index = Index()
    _add(index, list(islice(source, size // 2)))
    rows = workloads.publications(workload, 256)
    gc.collect()
    gc.freeze()  # as a started node does
    watch = Stopwatch()
    began = time.perf_counter()
    count = 0
    while block := list(islice(source, workloads.BLOCK)):
        _change(index, block, rows, watch)
        count += len(block) + len(block) // CHANGES_A_MATCH
    rate = count / watch.cpu
    pause = watch.longest
    watch.longest = 0.0
    some = list(islice(workloads.subscriptions(workload), 2000))
    _change_in_a_snapshot(index, some, rows, watch)
    watch.close()
    index.close()
    gc.unfreeze()
    machine = _longest_gap(time.perf_counter() - began)
    times = (pause, watch.longest, watch.longest_by_clock, machine)
    return Changes(workload, rate, *(1e3 * seconds for seconds in times))


def _longest_gap(seconds: float) -> float:
    """How long this machine stops a loop that does nothing but look at the clock."""
    longest = 0.0
    before = began = time.perf_counter()
    while before - began < seconds:
        now = time.perf_counter()
        longest = max(longest, now - before)
        before = now
    return longest


def _add(index: Index, block: Subscriptions) -> None:
    for number, fields in block:
        index.add(number, fields)


def _change(
    index: Index, block: Subscriptions, rows: list[dict[str, Value]], watch: Stopwatch
) -> None:
    """Add them all, remove an earlier one and match after every few."""
    clock, cpu = time.perf_counter, time.thread_time
    publications = cycle(rows)
    for begin in range(0, len(block), CHANGES_A_MATCH):
        some = block[begin : begin + CHANGES_A_MATCH]
        watch.begin()
        spent = cpu()
        for number, fields in some:
            start = clock()
            index.add(number, fields)
            watch.took(clock() - start)
        start = clock()
        index.remove(some[0][0])
        watch.took(clock() - start)
        watch.cpu += cpu() - spent
        start = clock()
        index.match(next(publications))
        watch.took(clock() - start)


def _change_in_a_snapshot(
    index: Index, some: Subscriptions, rows: list[dict[str, Value]], watch: Stopwatch
) -> None:
    """Replace subscriptions and match while a snapshot is made and written."""
    clock = time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        writer = threading.Thread(target=index.snapshot, args=(Path(folder) / "index",))
        writer.start()
        for (number, fields), row in zip(cycle(some), cycle(rows), strict=False):
            watch.begin()
            start = clock()
            index.replace(number, fields)
            watch.took(clock() - start)
            start = clock()
            index.match(row)
            watch.took(clock() - start)
            if not writer.is_alive():
                break
        writer.join()
