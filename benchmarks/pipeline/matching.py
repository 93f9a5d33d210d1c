"""Publications × subscriptions: homing's index in the executors beside joins that Spark and
DuckDB can do themselves, all with the same answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.harness import Report
from homing.pipeline.match import match, pairs, ship

ATTRIBUTES = 8
CONSTRAINED = 3
WIDTH = 0.07  # of each range, out of 1: three of them let one publication in 3 000 through
BUCKETS = 64
SEED = 20261115


def workload(publications: int, subscriptions: int) -> tuple[pa.Table, pa.Table]:
    """Uniform values; each subscription asks for ranges of three of eight attributes."""
    chance = np.random.default_rng(SEED)
    values = chance.random((publications, ATTRIBUTES)).round(6)
    left: dict[str, Any] = {"id": [f"{i:024x}" for i in range(publications)]}
    left |= {f"a{k}": values[:, k] for k in range(ATTRIBUTES)}
    left["attrs_json"] = [
        "{" + ",".join(f'"a{k}":{value}' for k, value in enumerate(row)) + "}"
        for row in values.tolist()
    ]
    lows = np.full((subscriptions, ATTRIBUTES), -1.0)
    highs = np.full((subscriptions, ATTRIBUTES), 2.0)
    chosen = np.argsort(chance.random((subscriptions, ATTRIBUTES)))[:, :CONSTRAINED]
    starts = (chance.random((subscriptions, CONSTRAINED)) * (1 - WIDTH)).round(6)
    rows = np.arange(subscriptions)[:, None]
    lows[rows, chosen] = starts
    highs[rows, chosen] = (starts + WIDTH).round(6)
    right: dict[str, Any] = {
        "client": [f"{i:024x}" for i in range(subscriptions)],
        "connector": ["00" * 8] * subscriptions,
        "first": chosen[:, 0],
    }
    right |= {f"l{k}": lows[:, k] for k in range(ATTRIBUTES)}
    right |= {f"h{k}": highs[:, k] for k in range(ATTRIBUTES)}
    right["fields"] = [
        "{" + ",".join(f'"a{k}":{{"use":2,"low":{low[k]},"high":{high[k]}}}' for k in picked) + "}"
        for picked, low, high in zip(chosen.tolist(), lows.tolist(), highs.tolist(), strict=True)
    ]
    return pa.table(left), pa.table(right)


CONDITION = " and ".join(f"a{k} between l{k} and h{k}" for k in range(ATTRIBUTES))


def nested_loop(left: DataFrame, right: DataFrame) -> DataFrame:
    """What a plain SQL join does."""
    return left.join(F.broadcast(right), F.expr(CONDITION))


def bucketised(left: DataFrame, right: DataFrame) -> DataFrame:
    """An equi-join on buckets of each subscription's first range, then the condition."""
    cells = F.transform(
        F.array(*[F.col(f"a{k}") for k in range(ATTRIBUTES)]),
        lambda value, place: F.struct(
            place.alias("first"), F.floor(value * BUCKETS).alias("bucket")
        ),
    )
    low = F.expr(
        "element_at(array("
        + ",".join(f"l{k}" for k in range(ATTRIBUTES))
        + "), cast(first as int) + 1)"
    )
    covered = F.sequence(F.floor(low * BUCKETS), F.floor((low + WIDTH) * BUCKETS))
    spread = left.withColumn("cell", F.explode(cells)).select("*", "cell.first", "cell.bucket")
    wanted = right.withColumn("bucket", F.explode(covered)).withColumn(
        "first", F.col("first").cast("int")
    )
    return spread.join(wanted, ["first", "bucket"]).where(CONDITION)


def answer(found: DataFrame) -> tuple[int, int]:
    """How many pairs, and a digest of them whatever their order."""
    row = found.select(F.count("*"), F.bit_xor(F.xxhash64("id", "client"))).first()
    return (int(row[0]), int(row[1] or 0)) if row else (0, 0)


def size(report: Report) -> tuple[int, int]:
    """Publications and subscriptions: so many that a run is more than the building of its index."""
    return (10_000, 1_000) if report.quick else (1_000_000, 100_000)


def run(report: Report, spark: SparkSession) -> None:
    pubs, subs = size(report)
    report.say(f"{pubs:,} publications × {subs:,} subscriptions")
    left_table, right_table = workload(pubs, subs)
    left, right = spark.createDataFrame(left_table), spark.createDataFrame(right_table)
    left, right = left.repartition(8).persist(), right.persist()
    left.count(), right.count()
    whole = answer(match(left, right))  # kernels compile and Python workers start once
    rows: list[list[str | float | int]] = []

    def measure(name: str, work: Callable[[DataFrame], DataFrame], share: float) -> float:
        """Publications a second, on a share of them where all would take hours."""
        report.say(name)
        some = left if share == 1 else left.limit(max(1, int(pubs * share))).persist()
        count = some.count()
        before = time.perf_counter()
        found = answer(work(some))
        took = time.perf_counter() - before
        expected = whole if share == 1 else answer(match(some, right))
        if found != expected:
            raise RuntimeError(f"{name} answers otherwise than the index: {found} {expected}")
        rows.append([name, count, found[0], count / took])
        return count / took

    ours = report.median(
        lambda: measure("homing, index in executors", lambda f: match(f, right), 1)
    )
    sharded = measure("homing, index in 4 shards", lambda f: match(f, right, 4), 1)
    naive = measure(
        "Spark, nested-loop join",
        lambda f: nested_loop(f, right),
        1 if report.quick else 1_000 / pubs,
    )
    buckets = measure(
        "Spark, bucketised join",
        lambda f: bucketised(f, right),
        1 if report.quick else 20_000 / pubs,
    )
    some = left_table.slice(0, 4_000)
    expected = answer(match(spark.createDataFrame(some.select(["id", "attrs_json"])), right))
    duck = _duckdb(some, right_table, rows, expected[0])
    left.unpersist(), right.unpersist()
    names = ["how", "publications", "matches", "publications/s"]
    report.table(f"Bulk matching with {subs:,} subscriptions", names, rows)
    report.note(
        "From two frames to all pairs, counted: homing's figures have the building of the index and "
        "its way to the executors in them. Each way takes as many publications as it can in minutes."
    )
    report.goal("index / nested-loop join", ours / naive, 500, at_least=True)
    report.goal("index / bucketised join", ours / buckets, 30, at_least=True)
    report.goal("index / DuckDB", ours / duck, 1, at_least=True)
    report.goal("unsharded / sharded", ours / sharded, 1.5)


def million(report: Report, spark: SparkSession) -> None:
    """A million publications and as many subscriptions: what it takes, from frames to pairs."""
    report.say("a million publications × a million subscriptions")
    left_table, right_table = workload(1_000_000, 1_000_000)
    left = spark.createDataFrame(left_table.select(["id", "attrs_json"])).repartition(8)
    right = spark.createDataFrame(right_table.select(["client", "connector", "fields"]))
    before = time.perf_counter()
    found = match(left, right).count()
    took = time.perf_counter() - before
    rows: list[list[str | float | int]] = [["homing, index in executors", found, took, 1e6 / took]]
    names = ["how", "matches", "seconds", "publications/s"]
    report.table("A million publications × a million subscriptions", names, rows)


def speed(report: Report, spark: SparkSession) -> float:
    """Publications/s of the executors alone, the index being there."""
    pubs, subs = size(report)
    pubs = min(pubs, 400_000)  # some seconds: a job's start is not to count
    left_table, right_table = workload(pubs, subs)
    left = spark.createDataFrame(left_table.select(["id", "attrs_json"])).repartition(8).persist()
    right = spark.createDataFrame(right_table.select(["client", "connector", "fields"])).persist()
    left.count()
    names = ship(right, 1)

    def once() -> float:
        before = time.perf_counter()
        pairs(left, names).write.format("noop").mode("overwrite").save()
        return pubs / (time.perf_counter() - before)

    once()  # the JVM compiles; who calls this takes the median of several processes
    return once()


def _duckdb(
    left: pa.Table, right: pa.Table, rows: list[list[str | float | int]], expected: int
) -> float:
    """One machine's best column engine on the same condition, all cores."""
    database = duckdb.connect()
    database.register("publications", left)
    database.register("subscriptions", right)
    before = time.perf_counter()
    [(found,)] = database.execute(
        f"select count(*) from publications join subscriptions on {CONDITION}"
    ).fetchall()
    rate: float = left.num_rows / (time.perf_counter() - before)
    if found != expected:
        raise RuntimeError(f"DuckDB answers otherwise than the index: {found} {expected}")
    rows.append(["DuckDB, range join", left.num_rows, found, rate])
    return rate
