"""Changes beside matching: how many a second, and the longest that anybody waits."""

from __future__ import annotations

import gc
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

    `machine_pause`: the longest that a loop without any index stood still for as long a time. A
    virtual machine whose host is busy cannot show anything shorter.
    """

    workload: Workload
    rate: float
    pause: float
    snapshot_pause: float
    machine_pause: float


class Stopwatch:
    """CPU time spent in changes, and the longest that a call kept its caller waiting.

    The time in which the core was given to another process is not the index's, and not counted.
    """

    def __init__(self) -> None:
        self.cpu = 0.0
        self.longest = 0.0
        self._queued = _queued()

    def took(self, seconds: float) -> None:
        """A call took so long by the clock on the wall."""
        if seconds > SUSPICIOUS:
            queued = _queued()
            self.longest = max(self.longest, seconds - (queued - self._queued))
            self._queued = queued


def _queued() -> float:
    """Seconds that this thread was ready to run and did not."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()[1]) / 1e9


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
    index.close()
    gc.unfreeze()
    machine = _longest_gap(time.perf_counter() - began)
    return Changes(workload, rate, 1e3 * pause, 1e3 * watch.longest, 1e3 * machine)


def _longest_gap(seconds: float) -> float:
    """How long this machine stops a loop that does nothing but look at the clock."""
    watch = Stopwatch()
    before = began = time.perf_counter()
    while before - began < seconds:
        now = time.perf_counter()
        watch.took(now - before)
        before = now
    return watch.longest


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
            start = clock()
            index.replace(number, fields)
            watch.took(clock() - start)
            start = clock()
            index.match(row)
            watch.took(clock() - start)
            if not writer.is_alive():
                break
        writer.join()
