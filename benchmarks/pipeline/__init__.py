"""Pipeline: reading journals with Spark, ingesting them, and matching in bulk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.harness import Report
from benchmarks.pipeline import latency, matching, reading
from homing.pipeline.session import connect


def run(report: Report) -> None:
    """Reading and ingesting, bulk matching beside its peers, and how soon an event is there."""
    with session(2) as spark, tempfile.TemporaryDirectory() as directory:
        reading.run(report, spark, Path(directory) / "reading")
        latency.run(report, spark, Path(directory) / "latency")
        matching.run(report, spark)
        if not report.quick:
            matching.million(report, spark)
        two = matching.speed(report, spark)
    with session(1) as spark:
        one = matching.speed(report, spark)
    rows: list[list[str | float]] = [["one core", one], ["two cores", two]]
    report.table("Matching by cores, publications/s", ["executors", "publications/s"], rows)
    report.goal("two cores / one core", two / one, 1.7, at_least=True)


@contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """A session of so many cores, gone afterwards."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
    }
    spark = connect(f"local[{cores}]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
