"""Job `slo`: rate, errors, latency and saturation per service and minute; lag per subscriber.

Latencies go into a logarithmic histogram whose buckets are 2 % wide: counts add up over
minutes, nodes and runs, a percentile is within 1 %, and Spark does it without a single
Python row.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from homing.pipeline.tables import Tables

WIDTH = 1.02
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}
# How far back "usual" reaches, and how unusual is unusual: four standard deviations of the
# logarithm, which a steady service passes once in months.
HISTORY_MINUTES = 30
LEAST_HISTORY = 5
UNUSUAL = 4.0
MINUTE = 60
UNKNOWN = "unknown"  # the code of a refusal that has none


def run(tables: Tables) -> DataFrame:
    """Write `slo_minutes` and `slo_subscribers` from all that was ingested; the minutes."""
    tables.replace(figures(tables), "slo_minutes")
    tables.replace(
        subscribers(tables.read("publications"), tables.read("deliveries")), "slo_subscribers"
    )
    return tables.derived("slo_minutes")


def figures(tables: Tables) -> DataFrame:
    """The minutes of all that was ingested, with their flags."""
    return anomalies(minutes(histogram(tables.read("requests"))))


def _bucket(micros: str) -> Column:
    """Which 2 % wide bucket a duration falls into; all below 1 µs in bucket 0."""
    value = F.greatest(F.col(micros), F.lit(1))
    return F.floor(F.log(value) / F.lit(math.log(WIDTH))).cast("int")


def _timed() -> Column:
    """Of an answer whose acceptance nobody recorded nobody knows how long it took."""
    return (F.col("outcome") == "answered") & F.col("latency_us").isNotNull()


def _not_negative(micros: str) -> Column:
    """A clock that is set back while a request is under way makes no time that is less than none."""
    return F.when(F.col(micros) < 0, 0).otherwise(F.col(micros))


def _middle(bucket: Column) -> Column:
    """The duration that stands for a bucket."""
    return F.pow(F.lit(WIDTH), bucket + 0.5)


def histogram(requests: DataFrame, seconds: int = MINUTE) -> DataFrame:
    """Counts by service, minute, outcome and latency bucket: the mergeable form.

    With other `seconds` than a minute's, what is called a minute is as long as they are.
    """
    begin = F.floor(F.unix_seconds("ended_at") / seconds) * seconds
    return (
        each_once(requests.where("not open"))
        .withColumn("minute", F.timestamp_seconds(begin))
        .withColumn("bucket", F.when(_timed(), _bucket("latency_us")))
        .groupBy("service", "minute", "outcome", "bucket")
        .agg(
            F.count("*").alias("count"),
            F.sum(_not_negative("latency_us")).alias("busy_us"),
            F.sum("waited_us").alias("waited_us"),
        )
    )


def each_once(requests: DataFrame) -> DataFrame:
    """Without ends that came after the first, which are rows of their own where a later batch has them."""
    same = ["node", "request"]
    alone = requests.where("accepted_at is null and request is not null")
    accepted = requests.where("accepted_at is not null").select(*same)
    known = accepted.join(alone.select(*same), same, "left_semi")
    first = F.row_number().over(Window.partitionBy(*same).orderBy("ended_at")) == 1
    orphans = alone.join(known, same, "left_anti").withColumn("first", first).where("first")
    whole = requests.where("accepted_at is not null or request is null")
    return whole.unionByName(orphans.drop("first"))


def minutes(counts: DataFrame, seconds: int = MINUTE) -> DataFrame:
    """Rate, errors, percentiles and saturation per service and minute."""
    answered = F.col("outcome").eqNullSafe("answered")  # a refusal may have no code
    totals = counts.groupBy("service", "minute").agg(
        F.sum("count").alias("requests"),
        F.sum(F.when(answered, 0).otherwise(F.col("count"))).alias("errors"),
        (F.sum("busy_us") / F.lit(seconds * 1e6)).alias("in_flight"),
        (F.sum("waited_us") / F.sum("busy_us")).alias("waiting_share"),
    )
    codes = (
        counts.where(~answered)
        .groupBy("service", "minute", F.coalesce("outcome", F.lit(UNKNOWN)).alias("outcome"))
        .agg(F.sum("count").alias("count"))
        .groupBy("service", "minute")
        .agg(F.map_from_entries(F.collect_list(F.struct("outcome", "count"))).alias("codes"))
    )
    found = _beside(_beside(totals, percentiles(counts)), codes)
    return found.withColumn("error_share", F.col("errors") / F.col("requests"))


def _beside(totals: DataFrame, other: DataFrame) -> DataFrame:
    """Rows of the same service and minute together; requests that nobody accepted have no service."""
    other = other.withColumnRenamed("service", "whose").withColumnRenamed("minute", "when")
    same = F.col("service").eqNullSafe(F.col("whose")) & (F.col("minute") == F.col("when"))
    return totals.join(other, same, "left").drop("whose", "when")


def percentiles(counts: DataFrame) -> DataFrame:
    """p50 … p99.9 of the answered requests, from the buckets."""
    merged = (
        counts.where("bucket is not null")
        .groupBy("service", "minute", "bucket")
        .agg(F.sum("count").alias("count"))
    )
    same = Window.partitionBy("service", "minute")
    reached = F.sum("count").over(
        same.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    ranked = merged.withColumn("reached", reached).withColumn("all", F.sum("count").over(same))
    return ranked.groupBy("service", "minute").agg(
        *[
            _middle(F.min(F.when(F.col("reached") >= F.col("all") * share, F.col("bucket")))).alias(
                name
            )
            for name, share in QUANTILES.items()
        ]
    )


def anomalies(found: DataFrame) -> DataFrame:
    """Minutes with flags: where rate, p99 or errors are far from the half hour before."""
    at = F.unix_seconds("minute")  # a service that rested has no rows of those minutes
    before = Window.partitionBy("service").orderBy(at).rangeBetween(-HISTORY_MINUTES * MINUTE, -1)
    flagged = found
    for name, column in (("rate", "requests"), ("latency", "p99_us"), ("errors", "errors")):
        value = F.log1p(F.col(column))
        usual, spread = F.avg(value).over(before), F.stddev(value).over(before)
        unusual = F.abs(value - usual) > UNUSUAL * F.greatest(spread, F.lit(0.1))
        known = F.count(value).over(before) >= LEAST_HISTORY
        flagged = flagged.withColumn(f"odd_{name}", F.coalesce(unusual & known, F.lit(False)))
    return flagged


def subscribers(publications: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Per client and minute: deliveries, drops, and how far behind the publisher they were."""
    accepted = publications.groupBy("id").agg(F.min("accepted_at").alias("accepted_at"))
    lag = F.when(
        F.col("step").isin("delivered", "redelivered"),
        F.unix_micros("at") - F.unix_micros("accepted_at"),
    )
    return (
        deliveries.join(accepted, "id", "left")
        .withColumn("lag_us", lag)
        .groupBy("client", F.date_trunc("minute", "at").alias("minute"))
        .agg(
            F.count(F.when(F.col("step") == "delivered", 1)).alias("delivered"),
            F.count(F.when(F.col("step") == "redelivered", 1)).alias("redelivered"),
            F.count(F.when(F.col("step") == "acknowledged", 1)).alias("acknowledged"),
            F.count(F.when(F.col("step") == "dropped", 1)).alias("dropped"),
            F.max("lag_us").alias("worst_lag_us"),
            F.percentile_approx("lag_us", 0.5, 200).alias("p50_lag_us"),
        )
    )
