"""Tables `subscriptions` and `sessions`: what held from when to when.

Each opening event (SubscriptionSet, SessionOpened) holds until the next event of the same
key; a row whose end has not come is `open` and has no end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SUBSCRIPTION_KINDS = ("SubscriptionSet", "SubscriptionRemoved")
SESSION_KINDS = ("SessionOpened", "SessionClosed")


def _order() -> list[Column]:
    """Clocks of two nodes may disagree; within a node the number decides."""
    return [F.col("at"), F.col("node"), F.col("number")]


def subscriptions(events: DataFrame) -> DataFrame:
    """History of every subscription with its validity."""
    changes = events.where(F.col("kind").isin(*SUBSCRIPTION_KINDS))
    # Removing without a name removes all: it ends each subscription of that client.
    later = (
        Window.partitionBy("client").orderBy(*_order()).rowsBetween(1, Window.unboundedFollowing)
    )
    wiped_at = F.min(F.when(F.col("name").isNull() & _removed(), F.col("at"))).over(later)
    next_at = F.lead("at").over(Window.partitionBy("client", "name").orderBy(*_order()))
    ended = changes.withColumn("valid_to", F.least(next_at, wiped_at))
    return ended.where("kind = 'SubscriptionSet'").select(
        "client",
        "connector",
        "name",
        "fields",
        F.col("at").alias("valid_from"),
        "valid_to",
        "node",
        "number",
        F.col("valid_to").isNull().alias("open"),
    )


def _removed() -> Column:
    return F.col("kind") == "SubscriptionRemoved"


def sessions(events: DataFrame) -> DataFrame:
    """Every subscriber session at a connector."""
    same = Window.partitionBy("node", "client").orderBy(*_order())
    found = events.where(F.col("kind").isin(*SESSION_KINDS))
    extra = F.from_json("extra", "durable boolean, resumed boolean, address string")
    return (
        found.withColumn("closed_at", F.lead("at").over(same))
        .withColumn("reason", F.lead("code").over(same))
        .withColumn("more", extra)
        .where("kind = 'SessionOpened'")
        .select(
            "client",
            "node",
            F.col("at").alias("opened_at"),
            "closed_at",
            "reason",
            F.col("more.durable").alias("durable"),
            F.col("more.resumed").alias("resumed"),
            "number",
            F.col("closed_at").isNull().alias("open"),
        )
    )


def still_open(events: DataFrame, found: DataFrame) -> DataFrame:
    """The opening events to keep for the next batch."""
    return events.join(
        found.where("open").select("node", "number"), ["node", "number"], "left_semi"
    )
