"""A Spark session that knows homing's source, local by default, the same on any cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from homing.pipeline.source import JournalSource

# What every job relies on. Users' own settings win.
DEFAULTS: dict[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1m",
}


def connect(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    name: str = "homing",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session at a master, or over Spark Connect at `sc://…`; `format("homing")` works in it."""
    # Tasks must run the interpreter that has homing, not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if remote is None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a local job listens to nobody else
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(remote) if remote else builder.master(master)
    for key, value in {**DEFAULTS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if remote is None:
        spark.sparkContext.setLogLevel("ERROR")  # what a job has to say it says itself
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("homing")` known to a session of yours."""
    spark.dataSource.register(JournalSource)
