"""Tables `subscriptions` and `sessions`: what held from when to when.

Each opening event (SubscriptionSet, SessionOpened) holds until the next event of the same
key; a row whose end has not come is `open` and has no end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SUBSCRIPTION_KINDS = ("SubscriptionSet", "SubscriptionRemoved")
SESSION_KINDS = ("SessionOpened", "SessionClosed")

_END = Window.unboundedFollowing


def _order() -> list[Column]:
    """Clocks of two nodes may disagree; within a node the number decides."""
    return [F.col("at"), F.col("node"), F.col("number")]


def subscriptions(events: DataFrame) -> DataFrame:
    """History of every subscription with its validity."""
    changes = _changes(events)
    following = Window.partitionBy("client").orderBy(*_order()).rowsBetween(1, _END)
    next_at = F.lead("at").over(Window.partitionBy("client", "name").orderBy(*_order()))
    ended = changes.withColumn("valid_to", F.least(next_at, F.min(_wiped_at()).over(following)))
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


def _changes(events: DataFrame) -> DataFrame:
    """As the connector that owns the session records them; matchers record copies."""
    return events.where(
        F.col("kind").isin(*SUBSCRIPTION_KINDS) & (F.col("node") == F.col("connector"))
    )


def _wiped_at() -> Column:
    """Removing without a name removes all subscriptions of a client."""
    return F.when(F.col("name").isNull() & _removed(), F.col("at"))


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
