"""Pipeline: reading journals with Spark, ingesting them, and matching in bulk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.harness import Report
from benchmarks.pipeline import cores, latency, matching, reading
from benchmarks.pipeline.session import session
from homing.push.index import kernels


def run(report: Report) -> None:
    """Reading and ingesting, bulk matching beside its peers, and how soon an event is there."""
    report.say("kernels: fetched, or compiled for a minute")  # no worker is to wait for a compiler
    kernels.load()
    with session(2) as spark, tempfile.TemporaryDirectory() as directory:
        reading.run(report, spark, Path(directory) / "reading")
        latency.run(report, spark, Path(directory) / "latency")
        matching.run(report, spark)
        if not report.quick:
            matching.million(report, spark)
    cores.run(report)
