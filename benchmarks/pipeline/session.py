"""The Spark session of a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from homing.pipeline.session import connect


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
