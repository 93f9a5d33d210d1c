"""The Spark pipeline over the demo's journals: tables, ledger, service levels, a plan, a report.

A program of its own (`python -m homing.demo.tables JOURNALS REPORT FINDINGS`, the last a file for JSON: the
JVM warns on standard output), so that what Spark has to say on the way stays off the demo's screen.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from homing.clock import SystemClock
from homing.errors import PipelineError
from homing.node.runs import Run, note_run

MATCHERS = 4
"""For whom the plan is made: as many as a city with a few million watchers might have."""

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
    levels: list[tuple[str, int, int, float, float]]  # service, requests, errors, p50, p99 in µs
    tiles: int  # of a placement plan for MATCHERS matchers
    copies: float  # of a subscription, on the mean
    busiest: float  # matcher, over the mean


def examine(journals: Path, report: Path) -> Findings:
    """Ingest, audit, measure and write the report."""
    from homing.pipeline import ingest, ledger, plan, slo
    from homing.pipeline import report as page
    from homing.pipeline.session import connect
    from homing.pipeline.tables import Tables

    start = SystemClock.monotonic()
    spark = connect("local[2]", name="homing demo", settings=SETTINGS)
    try:
        tables = Tables(spark, str(journals / "tables"))
        ingest.start(tables, str(journals), follow=False).awaitTermination()
        audit = ledger.run(tables)
        minutes = slo.run(tables).select("service", "requests", "errors", "p50_us", "p99_us")
        levels = [(row[0], row[1], row[2], row[3], row[4]) for row in minutes.collect()]
        publications = tables.read("publications")
        subscriptions = tables.read("subscriptions")  # everybody has left by now
        matchers = plan.names(str(MATCHERS))
        made, _ = plan.make(1, matchers, publications, subscriptions)
        laid = plan.tiles(publications, subscriptions, made)
        even = plan.balance(made, matchers, laid, subscriptions.count(), publications.count())
        page.write(tables, report)
    finally:
        spark.stop()
    found = Findings(
        SystemClock.monotonic() - start,
        audit.totals,
        audit.problems,
        levels,
        even.tiles,
        even.copies,
        even.max_over_mean,
    )
    _note(journals / "tables", found)
    return found


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


async def examine_apart(journals: Path, report: Path) -> Findings:
    """`examine` in a process of its own; PipelineError with its last words if it fails."""
    findings = journals / "findings.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "homing.demo.tables", str(journals), str(report), str(findings)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        # Everything happens on this machine; its name may lead elsewhere, or nowhere.
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        _, noise = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise PipelineError(f"Spark failed: {_reason(noise.decode('utf-8', 'replace'))}")
    return msgspec.json.decode(findings.read_bytes(), type=Findings)


def _reason(noise: str) -> str:
    """Of all that Spark has to say, the line that names an error."""
    lines = [line.strip() for line in noise.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception)\b", line)]
    return (named or lines or ["it said nothing"])[-1]


if __name__ == "__main__":
    Path(sys.argv[3]).write_bytes(
        msgspec.json.encode(examine(Path(sys.argv[1]), Path(sys.argv[2])))
    )
