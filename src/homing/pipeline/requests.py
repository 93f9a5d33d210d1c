"""Table `requests`: each request with its end, from the broker's events.

One row a request and broker. A request is keyed by the node and the number of its
RequestAccepted; all its events are folded in one aggregation, no join. A request refused at
the door has no number: its refusal is the row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

KINDS = (
    "RequestAccepted",
    "RequestReposted",
    "RequestAnswered",
    "RequestRefused",
    "RequestRequeued",
    "NodeStarted",
)
ENDS = ("RequestAnswered", "RequestRefused")


def requests(events: DataFrame) -> DataFrame:
    """Events in, requests out; `open` is true while one has neither answer nor refusal."""
    ours = events.where(F.col("kind").isin(*KINDS))
    return _accepted(ours).unionByName(_refused_at_the_door(ours))


def still_open(events: DataFrame, found: DataFrame) -> DataFrame:
    """The events to keep for the next batch: those of requests that are open."""
    keys = found.where("open").select("node", F.col("request").alias("key"))
    keyed = events.where(F.col("kind").isin(*KINDS)).withColumn("key", _key())
    return keyed.join(keys, ["node", "key"], "left_semi").drop("key")


def _key() -> Column:
    return F.when(F.col("kind") == "RequestAccepted", F.col("number")).otherwise(F.col("request"))


def _only(kind: str, column: str) -> Column:
    return F.max(F.when(F.col("kind") == kind, F.col(column)))


def _count(kind: str) -> Column:
    return F.count(F.when(F.col("kind") == kind, 1))


def _accepted(events: DataFrame) -> DataFrame:
    is_end = F.col("kind").isin(*ENDS)
    end = F.struct("at", "number", "kind", "code", "worker", "size", "took_us", "attempts", "peer")
    folded = (
        events.withColumn("request", _key())
        .where("request is not null")
        .groupBy("node", "request")
        .agg(
            _only("RequestAccepted", "at").alias("accepted_at"),
            _only("RequestAccepted", "service").alias("service"),
            _only("RequestAccepted", "client").alias("client"),
            _only("RequestAccepted", "peer").alias("origin"),
            _only("RequestAccepted", "name").alias("message"),
            _only("RequestAccepted", "size").alias("request_bytes"),
            F.min(F.when(is_end, end)).alias("end"),
            F.count(F.when(is_end, 1)).alias("ends"),
            _count("RequestReposted").alias("reposts"),
            _count("RequestRequeued").alias("requeues"),
        )
    )
    return _finish(folded.join(F.broadcast(_restarts(events)), "node", "left"))


def _restarts(events: DataFrame) -> DataFrame:
    """A broker that begins anew has forgotten what it had accepted."""
    started = events.where("kind = 'NodeStarted'")
    return started.groupBy("node").agg(F.collect_list(F.struct("number", "at")).alias("restarts"))


def _finish(folded: DataFrame) -> DataFrame:
    later = F.filter("restarts", lambda restart: restart.number > F.col("request"))
    folded = folded.withColumn("restart", F.array_min(later))  # the first of them
    forgotten = (F.col("ends") == 0) & F.col("restart").isNotNull()
    answered = F.col("end.kind") == "RequestAnswered"
    outcome = (
        F.when(answered, "answered")
        .when(F.col("ends") > 0, F.col("end.code"))
        .when(forgotten, "forgotten")
        .otherwise("open")
    )
    ended_at = F.coalesce(F.col("end.at"), F.when(forgotten, F.col("restart.at")))
    return folded.select(
        "node",
        "request",
        "service",
        "client",
        "origin",
        "message",
        "accepted_at",
        ended_at.alias("ended_at"),
        outcome.alias("outcome"),
        (F.unix_micros("end.at") - F.unix_micros("accepted_at")).alias("latency_us"),
        F.col("end.took_us").alias("waited_us"),
        F.col("end.worker").alias("worker"),
        F.col("end.peer").alias("served_by"),
        (1 + (F.col("reposts") > 0).cast("int")).alias("hops"),
        F.coalesce("end.attempts", F.col("requeues").cast("int") + 1).alias("attempts"),
        "request_bytes",
        F.when(answered, F.col("end.size")).alias("answer_bytes"),
        F.col("ends").cast("int").alias("ends"),
        ((F.col("ends") == 0) & ~forgotten).alias("open"),
    )


def _refused_at_the_door(events: DataFrame) -> DataFrame:
    refused = events.where("kind = 'RequestRefused' and request is null")
    null = F.lit(None)
    return refused.select(
        "node",
        null.cast("bigint").alias("request"),
        "service",
        "client",
        F.col("peer").alias("origin"),
        null.cast("string").alias("message"),
        null.cast("timestamp").alias("accepted_at"),
        F.col("at").alias("ended_at"),
        F.col("code").alias("outcome"),
        null.cast("bigint").alias("latency_us"),
        null.cast("bigint").alias("waited_us"),
        null.cast("string").alias("worker"),
        null.cast("string").alias("served_by"),
        F.lit(1).alias("hops"),
        F.lit(0).alias("attempts"),
        F.col("size").alias("request_bytes"),
        null.cast("bigint").alias("answer_bytes"),
        F.lit(1).alias("ends"),
        F.lit(False).alias("open"),
    )
