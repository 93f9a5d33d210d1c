"""Tables `publications`, `matches` and `deliveries`: projections of the push plane's events."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

MATCH_KINDS = ("PublicationMatched", "PublicationTaken")
DELIVERY_KINDS = ("Delivered", "Redelivered", "Acknowledged", "Dropped", "DeliveryQueued")


def publications(events: DataFrame) -> DataFrame:
    """One row a publication accepted; attributes as text by name and as VARIANT."""
    return events.where("kind = 'PublicationAccepted'").select(
        "id",
        "node",
        "number",
        F.col("at").alias("accepted_at"),
        "publisher",
        "attrs",
        F.try_parse_json("attrs_json").alias("attributes"),
        "attrs_json",
        "payload",
        "size",
    )


def matches(events: DataFrame) -> DataFrame:
    """One row a client that a publication was for."""
    pairs = F.explode(F.arrays_zip("clients", "connectors")).alias("pair")
    return (
        events.where(F.col("kind").isin(*MATCH_KINDS))
        .select("id", "node", F.col("at").alias("matched_at"), "took_us", pairs)
        .select(
            "id",
            F.col("pair.clients").alias("client"),
            F.col("pair.connectors").alias("connector"),
            "node",
            "matched_at",
            "took_us",
        )
    )


def matched(events: DataFrame) -> DataFrame:
    """One row a publication that was matched, with how many clients it was for."""
    return events.where(F.col("kind").isin(*MATCH_KINDS)).select(
        "id",
        "node",
        F.col("at").alias("matched_at"),
        F.size("clients").alias("clients"),
        F.col("count").alias("subscriptions"),
    )


def deliveries(events: DataFrame) -> DataFrame:
    """One row a publication, client and step: delivered, redelivered, acknowledged, dropped…"""
    return events.where(F.col("kind").isin(*DELIVERY_KINDS)).select(
        "id",
        F.explode("clients").alias("client"),
        F.lower("kind").alias("step"),
        "node",
        "number",
        "at",
        F.col("code").alias("reason"),
    )
