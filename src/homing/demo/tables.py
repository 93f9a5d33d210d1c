"""The Spark pipeline over the demo's journals: tables, ledger, service levels, a plan, a report.

A program of its own (`python -m homing.demo.tables JOURNALS REPORT FINDINGS`, the last a file for JSON: the
JVM warns on standard output), so that what Spark has to say on the way stays off the demo's screen. It
starts while the fabric is under load and takes only what that leaves of the machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from homing.clock import SystemClock
from homing.errors import PipelineError
from homing.node.runs import Run, note_run

if TYPE_CHECKING:
    from pyspark.sql import Row

    from homing.pipeline.plan import Balance
    from homing.pipeline.tables import Tables

MATCHERS = 4
"""For whom the plan is made: as many as a city with a few million watchers might have."""

NICENESS = 5  # about a quarter of a processor that the fabric wants too

# A small local session: the demo's journals are small, and two partitions start fastest.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Findings(Struct):
    """What Spark says of the same run, from the journals alone."""

    seconds: float
    totals: dict[str, int]
    problems: dict[str, int]
    # service (and minute), requests, errors, p50, p99 in µs
    levels: list[tuple[str, int, int, float, float]]
    tiles: int  # of a placement plan for MATCHERS matchers
    copies: float  # of a subscription, on the mean
    busiest: float  # matcher, over the mean


def main(journals: Path, report: Path, findings: Path) -> None:
    """Start Spark, ingest whenever a line comes; once no more do, examine."""
    os.nice(NICENESS)
    from homing.pipeline import ingest
    from homing.pipeline.session import connect, finish
    from homing.pipeline.tables import Tables

    spark = connect("local[2]", name="homing demo", settings=SETTINGS)
    try:
        tables = Tables(spark, str(journals / "tables"))
        begin = partial(ingest.start, tables, str(journals))
        for _ in sys.stdin:
            finish(begin, lambda query: query.awaitTermination())
        start = SystemClock.monotonic()
        finish(begin, lambda query: query.awaitTermination())
        found = examine(tables, report)
        found.seconds = SystemClock.monotonic() - start
    finally:
        spark.stop()
    _note(journals / "tables", found)
    findings.write_bytes(msgspec.json.encode(found))


def examine(tables: Tables, report: Path) -> Findings:
    """Audit, measure and plan side by side, as small jobs mostly wait; then write the report."""
    from homing.pipeline import ledger, slo
    from homing.pipeline import report as page

    with ThreadPoolExecutor(3) as pool:
        auditing = pool.submit(ledger.run, tables)
        measuring = pool.submit(slo.run, tables)
        planning = pool.submit(_plan, tables)
        audit, minutes, even = auditing.result(), measuring.result(), planning.result()
    figures = ("requests", "errors", "p50_us", "p99_us")
    rows = minutes.select("service", "minute", *figures).orderBy("service", "minute").collect()
    page.write(tables, report, audit=audit, minutes=minutes)
    return Findings(
        0.0,
        audit.totals,
        audit.problems,
        [(_named(row, rows), row[2], row[3], row[4], row[5]) for row in rows],
        even.tiles,
        even.copies,
        even.max_over_mean,
    )


def _named(row: Row, rows: list[Row]) -> str:
    """The service; with the minute where there are several of it."""
    alone = sum(other.service == row.service for other in rows) == 1
    return str(row.service) if alone else f"{row.service} at {row.minute:%H:%M}"


def _plan(tables: Tables) -> Balance:
    """A placement plan, and how even it is on everything."""
    from homing.pipeline import plan

    publications = tables.read("publications").select("attrs_json").persist()
    subscriptions = tables.read("subscriptions").select("fields").persist()  # all have left by now
    matchers = plan.names(str(MATCHERS))
    made, _ = plan.make(1, matchers, publications, subscriptions)
    laid = plan.tiles(publications, subscriptions, made)
    return plan.balance(made, matchers, laid, subscriptions.count(), publications.count())


def _note(tables: Path, found: Findings) -> None:
    """Leave the findings where a dashboard looks for them."""
    off = ", ".join(f"{count:,} {problem}" for problem, count in found.problems.items())
    results = {
        "ledger": (off or "nothing lost, doubled, orphaned or late", not off),
        "slo": (f"{len(found.levels):,} minutes of services", True),
        "plan": (f"{found.tiles} tiles, busiest / mean {found.busiest:.2f}", True),
    }
    for job, (result, well) in results.items():
        note_run(str(tables), Run(job, SystemClock.wall(), found.seconds, result, well))


class Apart:
    """`main` in a process of its own, which starts Spark while there is something else to do."""

    def __init__(self, journals: Path, report: Path) -> None:
        self._findings = journals / "findings.json"
        self._words = [str(journals), str(report), str(self._findings)]
        self._process: asyncio.subprocess.Process | None = None
        self._noise: asyncio.Task[bytes] | None = None

    async def __aenter__(self) -> Apart:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "homing.demo.tables", *self._words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            # Everything happens on this machine; its name may lead elsewhere, or nowhere.
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert self._process.stderr is not None
        self._noise = asyncio.create_task(self._process.stderr.read())
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._process is not None
        assert self._noise is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._noise.cancel()

    def ingest(self) -> None:
        """Take in what the journals hold by now."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # `findings` tells why it ended
            self._process.stdin.write(b"\n")

    async def findings(self) -> Findings:
        """What it finds in all of the journals; PipelineError with its last words if it fails."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._noise is not None
        start = SystemClock.monotonic()
        self._process.stdin.close()
        noise = await self._noise
        if await self._process.wait():
            raise PipelineError(f"Spark failed: {_reason(noise.decode('utf-8', 'replace'))}")
        found = msgspec.json.decode(self._findings.read_bytes(), type=Findings)
        found.seconds = SystemClock.monotonic() - start
        return found


def _reason(noise: str) -> str:
    """Of all that Spark has to say, the line that names an error."""
    lines = [line.strip() for line in noise.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (named or lines or ["it said nothing"])[-1]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
