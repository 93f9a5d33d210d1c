"""The measurements: one workload through the index, the peers beside it, growth, goals."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Report
from benchmarks.matching import workloads
from benchmarks.matching.peers import Brute, DuckDB, InC, Table, betree, segment_trees
from benchmarks.matching.peers import publications as peer_publications
from benchmarks.matching.updates import Changes, beside_matching
from benchmarks.matching.workloads import W1, W2, W5, W6, Workload
from homing.push.index import Index, kernels
from homing.push.values import Field

# Sequential events that a percentile is taken over, and events of a batch measurement.
SINGLES = 2000
BATCHED = 4096
# W6 takes four minutes of CPU with all its subscriptions and at most W6_BYTES for each; where these
# do not fit it is measured with fewer, and left out where not even those do.
W6_SIZES = (W6.subscriptions, 4_000_000)
W6_BYTES = 1000
GROWTH = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 5_000_000]
QUICK_GROWTH = [2000, 4000]


class Figures(NamedTuple):
    """What one workload gave."""

    workload: Workload
    matches: float
    p50: float
    p99: float
    single: float
    batch64: float
    batch1024: float
    size: float
    adds: float
    removes: float
    build: float
    load: float


def run(report: Report) -> None:
    """Measure everything and check the goals."""
    kernels.load()
    gc.collect()
    gc.freeze()  # as a started node does: the compiler leaves a million objects behind
    all_figures = [_measured(report, workload) for workload in _chosen(report.quick)]
    by_name = {figures.workload.name: figures for figures in all_figures}
    _figures_table(report, all_figures)
    for name in ("W1", "W2"):
        _peers(report, by_name[name])
    changes = _updates(report)
    exponent = _growth(report)
    _goals(report, by_name, changes, exponent)


def _chosen(quick: bool) -> list[Workload]:
    if quick:
        return [workload.sized(5000) for workload in workloads.ALL if workload.name != "W6"]
    fitting = [size for size in W6_SIZES if _available_bytes() >= W6_BYTES * size]
    return [*workloads.ALL[:-1], *(W6.sized(size) for size in fitting[:1])]


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this thread: other processes on the core do not count."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def filled(workload: Workload) -> tuple[Index, float]:
    """An index with a workload's subscriptions, still unmerged, and the CPU seconds that took."""
    index = Index(background=False)
    seconds = 0.0
    source = workloads.subscriptions(workload)
    while block := _drawn(source):
        seconds += _seconds(lambda block=block: _add_all(index, block))  # type: ignore[misc]
    return index, seconds


def _drawn(source: Iterator[tuple[int, dict[str, Field]]]) -> list[tuple[int, dict[str, Field]]]:
    """The next block, drawn while no garbage is collected, which takes as long as drawing itself."""
    gc.disable()
    block = list(islice(source, workloads.BLOCK))
    gc.enable()
    return block


def _add_all(index: Index, block: list[tuple[int, dict[str, Field]]]) -> None:
    for number, fields in block:
        index.add(number, fields)


def _remove_all(index: Index, count: int) -> None:
    for number in range(count):
        index.remove(number)


def _measured(report: Report, workload: Workload) -> Figures:
    report.say(f"{workload.name}: {workload.subscriptions:,} subscriptions")
    count = 256 if report.quick else BATCHED
    index, adding = filled(workload)
    rows = workloads.publications(workload, count)
    build = _seconds(index.compact)
    index.match_batch(rows)
    index.compact()  # planned for what is published, as a running matcher's index is
    gc.collect()
    singles: list[float] = []
    single = len(rows[:SINGLES]) / _seconds(lambda: singles.extend(_singles(index, rows[:SINGLES])))
    before = index.stats()
    batch64 = report.median(lambda: count / _seconds(lambda: _in_batches(index, rows, 64)))
    batch1024 = report.median(lambda: count / _seconds(lambda: _in_batches(index, rows, 1024)))
    after = index.stats()
    removed = min(20_000, workload.subscriptions // 10)
    load = _load_seconds(index)
    removing = _seconds(lambda: _remove_all(index, removed))
    return Figures(
        workload,
        (after.matches - before.matches) / (after.publications - before.publications),
        float(np.percentile(singles, 50)) * 1e6,
        float(np.percentile(singles, 99)) * 1e6,
        single,
        batch64,
        batch1024,
        before.bytes / workload.subscriptions,
        workload.subscriptions / adding,
        removed / removing,
        build,
        load,
    )


def _singles(index: Index, rows: list[Any]) -> list[float]:
    clock = time.perf_counter
    taken: list[float] = []
    for row in rows:
        begin = clock()
        index.match(row)
        taken.append(clock() - begin)
    return taken


def _in_batches(index: Index, rows: list[Any], size: int) -> None:
    for begin in range(0, len(rows), size):
        index.match_batch(rows[begin : begin + size])


def _load_seconds(index: Index) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        index.snapshot(path)
        begin = time.perf_counter()
        Index.load(path, background=False)
        return time.perf_counter() - begin


def _figures_table(report: Report, all_figures: list[Figures]) -> None:
    report.note(
        "One core. Events/s count CPU time of the matching thread, from attributes in Python "
        "dictionaries to an array of ids; latencies are wall time of one `match` call."
    )
    report.note(
        "The goals are multiples of what adgear's be-tree and the index of the system that the push "
        "plane comes from were measured at on such a machine; the matchers in C beside which homing "
        "is shown here are written for this benchmark, know these workloads only and are faster."
    )
    report.note(
        f"W6 has {W6.subscriptions:,} subscriptions, which take minutes and 9 GiB while they are built; where "
        f"there is less room it is measured with {W6_SIZES[-1]:,}, or not at all."
    )
    report.table(
        "The index by workload",
        [
            "workload",
            "subscriptions",
            "matches/event",
            "single p50 µs",
            "p99 µs",
            "single ev/s",
            "batch 64 ev/s",
            "batch 1024 ev/s",
            "matches/s",
            "bytes/sub",
            "add/s",
            "remove/s",
            "build s",
            "load s",
        ],
        [
            [
                f.workload.name,
                f.workload.subscriptions,
                f.matches,
                f.p50,
                f.p99,
                f.single,
                f.batch64,
                f.batch1024,
                f.batch1024 * f.matches,
                f.size,
                f.adds,
                f.removes,
                f.build,
                f.load,
            ]
            for f in all_figures
        ],
    )


def _peers(report: Report, figures: Figures) -> None:
    """Events/s of each peer on the same workload, after checking that all of them agree."""
    workload = figures.workload
    report.say(f"peers on {workload.subscriptions:,} subscriptions of {workload.name}")
    table = Table(workload)
    values = peer_publications(workload, 256)
    brute, in_c, duck = Brute(table), [segment_trees(table), betree(table)], DuckDB(table)
    _check(workload, values[:16], brute, in_c, duck)
    rates = {
        "homing, batches of 1024": figures.batch1024,
        "homing, batches of 64": figures.batch64,
        "homing, one by one": figures.single,
    }
    # Events enough for a tenth of a second or so, few enough that a million subscriptions end.
    events = max(16, min(256, 25_600_000 // workload.subscriptions))
    by_row: list[InC | Brute] = [*in_c, brute]
    for peer in by_row:
        rates[peer.name] = report.median(
            lambda peer=peer: events / _seconds(lambda: peer.match_all(values[:events]))  # type: ignore[misc]
        )
    rates[duck.name] = report.median(lambda: 64 / _wall(lambda: duck.match_all(values[:64])))
    for matcher in in_c:
        matcher.close()
    report.table(
        f"Peers on {workload.name} ({workload.subscriptions:,} subscriptions)",
        ["matcher", "events/s", "homing's batch is × faster"],
        [[name, rate, figures.batch1024 / rate] for name, rate in rates.items()],
    )


def _check(workload: Workload, values: Any, brute: Brute, in_c: list[InC], duck: DuckDB) -> None:
    index, _ = filled(workload)
    index.compact()
    rows = workloads.publications(workload, len(values))
    joined = duck.match_batch(values)
    offsets, ids = index.match_batch(rows)
    for event, row in enumerate(rows):
        expected = brute.match(values[event]).tolist()
        assert sorted(index.match(row).tolist()) == expected
        assert sorted(ids[offsets[event] : offsets[event + 1]].tolist()) == expected
        assert sorted(joined[joined[:, 0] == event, 1].tolist()) == expected
        for peer in in_c:
            assert sorted(peer.match(values[event]).tolist()) == expected


def _updates(report: Report) -> list[Changes]:
    chosen = [(W1, 200_000), (W5, 200_000), (W2, 1_000_000)]
    if report.quick:
        chosen = [(workload, 20_000) for workload, _ in chosen]
    changes: list[Changes] = []
    for workload, size in chosen:
        report.say(f"changes beside matching: {size:,} subscriptions of {workload.name}")
        changes.append(beside_matching(workload.sized(size), size))
    report.table(
        "Changes beside matching, merging in the background",
        [
            *("workload", "subscriptions", "changes/s", "longest pause ms"),
            *(
                "longest in a snapshot ms",
                "longest by the clock ms",
                "an empty loop by the clock ms",
            ),
        ],
        [[c.workload.name, c.workload.subscriptions, *c[1:]] for c in changes],
    )
    report.note(
        "A pause is a call that took more than a millisecond by the clock: what it computed itself or, "
        "if its thread waited, the time by the clock without that spent in the queue for a core, but no "
        "more than the whole process computed meanwhile. What is left is the machine's, which a loop "
        "without any index shows as well."
    )
    return changes


def _wall(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _growth(report: Report) -> float:
    """Cost per event over the number of subscriptions; the exponent from 100 k to 3 M."""
    sizes = QUICK_GROWTH if report.quick else GROWTH
    costs: list[float] = []
    sizes_in_bytes: list[float] = []
    rows = workloads.publications(W1, 1024)
    index = Index(background=False)
    source = workloads.subscriptions(W1.sized(sizes[-1]))
    for size in sizes:
        report.say(f"growth: {size:,} subscriptions")
        for number, fields in islice(source, size - len(index)):
            index.add(number, fields)
        index.match_batch(rows)
        index.compact()
        costs.append(
            report.median(lambda: _seconds(lambda: index.match_batch(rows))) / len(rows) * 1e6
        )
        sizes_in_bytes.append(index.stats().bytes / size)
    report.table(
        "Growth of cost with the number of subscriptions (W1's ranges, batches of 1024)",
        ["subscriptions", "µs/event", "bytes/sub"],
        [list(row) for row in zip(sizes, costs, sizes_in_bytes, strict=True)],
    )

    def draw(axes: Any) -> None:
        axes.loglog(sizes, costs, marker="o", label="homing")
        axes.loglog(
            sizes, [costs[0] * size / sizes[0] for size in sizes], ls=":", label="proportional"
        )
        axes.set_xlabel("subscriptions")
        axes.set_ylabel("CPU µs per event")
        axes.legend()
        axes.grid(True, which="both", alpha=0.3)

    report.plot("growth", draw)
    wanted = [i for i, size in enumerate(sizes) if 100_000 <= size <= 3_000_000] or [0, 1]
    x = np.log([sizes[i] for i in wanted])
    return float(np.polyfit(x, np.log([costs[i] for i in wanted]), 1)[0])


def _first_match_seconds(*, cached: bool) -> float:
    """From a fresh index to its first answer in a new process, imports apart."""
    code = (
        "import time\n"
        "from homing.push.index import Index\n"
        "from homing.push.subscription import parse_fields\n"
        "begin = time.perf_counter()\n"
        "index = Index()\n"
        "index.add(1, parse_fields({'a': {'use': 2, 'low': 1}}))\n"
        "assert index.match({'a': 2}).tolist() == [1]\n"
        "print(time.perf_counter() - begin, flush=True)\n"
        "__import__('os')._exit(0)\n"  # whatever compiles in the background
    )
    with tempfile.TemporaryDirectory() as empty:
        environment = dict(os.environ) if cached else {**os.environ, "XDG_CACHE_HOME": empty}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
    return float(done.stdout)


def _goals(
    report: Report, by_name: dict[str, Figures], changes: list[Changes], exponent: float
) -> None:
    w1, w2 = by_name["W1"], by_name["W2"]
    report.goal("W1, batches, events/s (600 × be-tree's 161)", w1.batch1024, 96_600, at_least=True)
    report.goal(
        "W1, batches, events/s (150 × the source's 919)", w1.batch1024, 137_850, at_least=True
    )
    report.goal("W2, batches, events/s (1000 × be-tree's 20)", w2.batch1024, 20_000, at_least=True)
    report.goal("moonshot: W1, batches, events/s", w1.batch1024, 250_000, at_least=True)
    report.goal("moonshot: W2, batches, events/s", w2.batch1024, 40_000, at_least=True)
    report.goal("W1, one by one, p50 µs", w1.p50, 15)
    report.goal("bytes per subscription, W2", w2.size, 300)
    for each in changes:
        name = each.workload.name
        report.goal(f"changes/s beside matching, {name}", each.rate, 100_000, at_least=True)
        pause = max(each.pause, each.snapshot_pause)
        report.goal(f"longest pause, {name}, ms", pause, 5)
    report.goal("loading W2's snapshot, s", w2.load, 3)
    for cached, where in ((True, "with cached kernels"), (False, "without")):
        first = report.median(lambda cached=cached: _first_match_seconds(cached=cached))  # type: ignore[misc]
        report.goal(f"first match in a new process {where}, ms", first * 1000, 50)
    report.goal("growth exponent from 100 k to 3 M", exponent, 0.9)
