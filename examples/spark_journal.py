"""Spark reads what a fabric did, matches it in bulk, and publishes what it found. Needs Java 17.

    python examples/spark_journal.py

A fabric publishes sensor readings and keeps a journal. Spark reads the journal as a table, asks whom
a new filter would have concerned (with the matchers' own index, inside its executors), averages the
readings by road, and publishes the slow roads back into the fabric, where a subscriber gets them.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import homing
from homing.pipeline import ingest, match
from homing.pipeline.session import connect
from homing.pipeline.tables import Tables
from homing.push.filters import parse_filter
from homing.push.subscription import Attributes
from homing.testing import Fabric, fabric

ROADS = ("A1", "A4", "A7", "A10")
READINGS = 2_000
QUIET = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


async def publish_readings(here: Fabric) -> None:
    """Sensors: the speed on some roads, where A4 is jammed."""
    chance = random.Random(4)
    async with homing.Publisher(here.publishers) as publisher:
        readings: Iterator[Attributes] = (
            {"road": road, "speed": round(chance.gauss(20 if road == "A4" else 90, 5), 1)}
            for road in chance.choices(ROADS, k=READINGS)
        )
        async for _ in publisher.publish_all((reading, b"") for reading in readings):
            pass


def slow_roads(publications: DataFrame) -> DataFrame:
    """Columns become attributes: one publication a row."""
    speed = F.col("attrs")["speed"].cast("double")
    by_road = publications.groupBy(F.col("attrs")["road"].alias("road"))
    found = by_road.agg(F.round(F.avg(speed), 1).alias("average"), F.count("*").alias("readings"))
    return found.where("average < 50").withColumn("kind", F.lit("jam"))


def analyse(spark: SparkSession, here: Fabric, data: Path) -> None:
    """Journal to tables, tables to answers, answers to publications."""
    tables = Tables(spark, str(data / "tables"))
    ingest.start(tables, str(data)).awaitTermination()
    publications = tables.read("publications")
    print(f"read: {publications.count()} publications")
    filters = parse_filter('road = "A4" and speed < 15')
    found = match.match(publications, match.what_if(spark, filters))
    print(f"matched: {found.count()} of them by a filter that nobody had")
    jams = slow_roads(publications)
    jams.write.format("homing").mode("append").option("matchers", here.publishers).save()


async def jam(spark: SparkSession, here: Fabric, data: Path) -> homing.Push:
    """Analyse while a subscriber waits for the result."""
    async with here.subscriber() as subscriber:
        await subscriber.subscribe('kind = "jam"')
        await asyncio.to_thread(analyse, spark, here, data)
        push = await anext(subscriber)
    assert isinstance(push, homing.Push)
    return push


def tell(spark: SparkSession) -> None:
    """Publish, then look."""
    with tempfile.TemporaryDirectory() as data:
        with fabric(f"node.data={data}", push=True, journal=True) as here:
            asyncio.run(publish_readings(here))
            push = asyncio.run(jam(spark, here, Path(data)))
        print(f"published: {push.attrs['road']} is slow, {push.attrs['average']} km/h")


if __name__ == "__main__":
    session = connect("local[2]", settings=QUIET)
    try:
        tell(session)
    finally:
        session.stop()
