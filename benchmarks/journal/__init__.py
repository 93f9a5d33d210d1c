"""Journal: what an event costs to record, to read and to seal."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import Report
from benchmarks.service.brokers import contestants, plain_path
from benchmarks.service.drive import measure
from homing.journal.body import decode, encode
from homing.journal.columns import batch
from homing.journal.events import Event, RequestAccepted, RequestAnswered
from homing.journal.reader import read, segments
from homing.journal.sealing import seal_all
from homing.journal.writer import Durability, open_journal

TURN = 100  # events a turn of the loop appends before it looks elsewhere
SWITCH = "HOMING_JOURNAL_ENABLED"
CASES: dict[str, dict[str, float]] = {
    "4 workers, one at a time": {"workers": 4},
    "4 workers, credit 25": {"workers": 4, "credit": 25},
}
BEHIND = 20_000  # as a node under back-pressure does, wait rather than overrun the disk


def run(report: Report) -> None:
    """Record, encode, read and seal requests and their answers."""
    size = 40_000 if report.quick else 400_000
    batch(b"node0001", [(1, 0, pair(1))])  # pyarrow's imports are not what is measured
    report.note(
        "CPU µs per event of the whole process: making it, appending it, its share of the group's "
        "checksum, write and sync. One request is two events."
    )
    with tempfile.TemporaryDirectory() as directory:
        rows: list[list[str | float]] = []
        for durability in ("fsync", "os", "none"):
            path = Path(directory) / durability
            cost = report.median(lambda p=path, d=durability: record(p, d, size))  # type: ignore[misc]
            rows.append([durability, cost])
        report.table("Recording", ["durability", "CPU µs per event"], rows)
        report.table("Reading", ["what", "events/s of one core"], reading(Path(directory) / "os"))
    report.table("Parts", ["what", "CPU µs per event"], parts(size // 10))
    overhead(report)


def overhead(report: Report) -> None:
    """What the journal costs a broker under load: the same requests with it and without."""
    rows: list[list[str | float]] = []
    seconds = 0.5 if report.quick else 2.0
    with tempfile.TemporaryDirectory() as directory:
        broker = contestants(plain_path(Path(directory)), "")[1]  # its own dialect, for credit
        for case, options in CASES.items():
            # In turns, and the least of each: what else the machine does only ever adds.
            costs = {"true": math.inf, "false": math.inf}
            for _ in range(2 * report.repeats):
                for enabled in costs:
                    os.environ[SWITCH] = enabled
                    report.say(f"broker, {case}, journal {enabled}")
                    spent = measure(broker, 1, seconds=seconds, **options).cpu_us
                    costs[enabled] = min(costs[enabled], spent)
            del os.environ[SWITCH]
            share = costs["true"] / costs["false"] - 1
            rows.append([case, costs["false"], costs["true"], 100 * share])
            report.goal(f"journal's share, {case}", share, 0.10)
    columns = ["broker's load", "without, CPU µs", "with, CPU µs", "more, %"]
    report.table("A broker with and without its journal", columns, rows)


def pair(number: int) -> tuple[Event, Event]:
    return (
        RequestAccepted(1.5, b"echo", b"\x00abcd", 64),
        RequestAnswered(1.6, number, b"worker-1", 64, 0.0001),
    )


def record(path: Path, durability: Durability, size: int) -> float:
    """CPU µs per event of a journal that is kept busy."""
    journal = open_journal(
        path, b"node0001", post=lambda call: call(), on_durable=lambda number: None,
        durability=durability,
    )  # fmt: skip
    before = time.process_time()
    for _ in range(size // TURN):
        for _ in range(TURN // 2):
            for event in pair(journal.number):
                journal.append(event)
        while journal.backlog > BEHIND:
            time.sleep(0.001)
    journal.close()
    return (time.process_time() - before) / size * 1e6


def reading(path: Path) -> list[list[str | float]]:
    """Events a second: as structs, as columns into Parquet."""
    events = sum(1 for _ in read(path))
    structs = timed(lambda: sum(1 for _ in read(path)))
    segment_count = len(segments(path))
    (path / "99999999999999999999.hj").touch()  # so that the last one counts as finished
    sealing = timed(lambda: assert_sealed(path, segment_count))
    return [["as structs", events / structs], ["sealed to Parquet", events / sealing]]


def assert_sealed(path: Path, count: int) -> None:
    if len(list(seal_all(path, lambda damage: None))) != count:
        raise RuntimeError("not every segment was sealed")


def parts(size: int) -> list[list[str | float]]:
    """What the pieces cost by themselves."""
    group = [event for number in range(size // 2) for event in pair(number)]
    body = encode(group)
    columns: Callable[[], pa.RecordBatch] = lambda: batch(b"node0001", [(1, 0, group)])  # noqa: E731
    columns()
    return [
        ["make", timed(lambda: [pair(number) for number in range(size // 2)]) / size * 1e6],
        ["encode in a group", timed(lambda: encode(group)) / size * 1e6],
        ["decode a group", timed(lambda: decode(body)) / size * 1e6],
        ["to columns", timed(columns) / size * 1e6],
    ]


def timed(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before
