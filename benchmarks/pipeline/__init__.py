"""Pipeline: reading journals with Spark, ingesting them, and matching in bulk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.harness import Report
from benchmarks.pipeline import latency, matching, reading
from homing.pipeline.session import connect


def run(report: Report) -> None:
    """Reading and ingesting, bulk matching beside its peers, and how soon an event is there."""
    spark = connect(
        "local[2]",
        settings={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.driver.memory": "4g",
            "spark.driver.host": "127.0.0.1",
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with tempfile.TemporaryDirectory() as directory:
            reading.run(report, spark, Path(directory) / "reading")
            latency.run(report, spark, Path(directory) / "latency")
        matching.run(report, spark)
    finally:
        spark.stop()
