"""Tables `subscriptions` and `sessions`: what held from when to when.

Each opening event (SubscriptionSet, SessionOpened) holds until the next event of the same
key; a row whose end has not come is `open` and has no end. A clock that is set back makes no end
earlier than its beginning.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SUBSCRIPTION_KINDS = ("SubscriptionSet", "SubscriptionRemoved")
SESSION_KINDS = ("SessionOpened", "SessionClosed")

_END = Window.unboundedFollowing
# Clocks of two nodes may disagree; within a node the number decides, also where its clock was set back.
_ORDER = ("clock", "node", "number")


def _clocked(events: DataFrame) -> DataFrame:
    """With the latest time that a client's events at the node have had so far."""
    before = Window.partitionBy("client", "node").orderBy("number")
    so_far = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return events.withColumn("clock", F.max("at").over(so_far))


def _not_before(end: Column) -> Column:
    return F.when(end.isNotNull(), F.greatest(end, F.col("at")))


def subscriptions(events: DataFrame) -> DataFrame:
    """History of every subscription with its validity."""
    changes = _clocked(_changes(events))
    following = Window.partitionBy("client").orderBy(*_ORDER).rowsBetween(1, _END)
    change = F.struct(*_ORDER, "at")
    replaced = F.lead(change).over(Window.partitionBy("client", "name").orderBy(*_ORDER))
    wiped = F.first(F.when(_wipes(), change), ignorenulls=True).over(following)
    end = F.least(replaced, wiped)["at"]
    ended = changes.withColumn("valid_to", _not_before(end))
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


def _wipes() -> Column:
    """Removing without a name removes all subscriptions of a client."""
    return F.col("name").isNull() & (F.col("kind") == "SubscriptionRemoved")


def sessions(events: DataFrame) -> DataFrame:
    """Every subscriber session at a connector."""
    same = Window.partitionBy("node", "client").orderBy("number")
    found = events.where(F.col("kind").isin(*SESSION_KINDS))
    extra = F.from_json("extra", "durable boolean, resumed boolean, address string")
    return (
        found.withColumn("closed_at", _not_before(F.lead("at").over(same)))
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
