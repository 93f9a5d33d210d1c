"""Pipeline: reading journals with Spark, ingesting them, and matching in bulk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.harness import Report
from benchmarks.pipeline import cores, latency, matching, reading
from benchmarks.pipeline.session import session
from homing.push.index import kernels


def run(report: Report) -> None:
    """Reading and ingesting, bulk matching beside its peers, and how soon an event is there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        _keep_bytecode(Path(directory) / "bytecode")
        report.say("kernels: fetched, or compiled for a minute")  # no worker waits for a compiler
        kernels.load()
        with session(2) as spark:
            reading.run(report, spark, Path(directory) / "reading")
            latency.run(report, spark, Path(directory) / "latency")
            matching.run(report, spark)
            if not report.quick:
                matching.million(report, spark)
        cores.run(report)


def _keep_bytecode(directory: Path) -> None:
    """Where it is not to be written, Spark's Python processes would each compile pyspark, pandas and
    numba: seconds that an installed package takes nowhere else."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(directory))
