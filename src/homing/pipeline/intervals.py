"""Tables `subscriptions` and `sessions`: what held from when to when.

Each opening event (SubscriptionSet, SessionOpened) holds until the next event of the same
key; a row whose end has not come is `open` and has no end. A clock that is set back makes no end
earlier than its beginning.

A session is one node's, whose events come in their order. A client's subscriptions are told by every connector
it was at, and journals come in any order: what ended a subscription may be read long after it, and an end that
is known may turn out not to be the first. So `subscriptions` is made of all that is known whenever it is read.
What is kept for it is the table `changes`.

What a client sets where it is replaces what it had set elsewhere under that name. A removal ends only what its own
connector had: one that lets a session go to another removes all it had of it, after the other has all of it.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

SUBSCRIPTION_KINDS = ("SubscriptionSet", "SubscriptionRemoved")
SESSION_KINDS = ("SessionOpened", "SessionClosed", "NodeStarted")
OWNER = "connector"  # the role that owns sessions
RESTARTED = "restarted"  # why a session ended that its connector had no time to close

# Columns of the table `changes`.
CHANGES = ("client", "connector", "name", "fields", "kind", "at", "node", "number")

# Clocks of two nodes may disagree; within a node the number decides, also where its clock was set back.
_ORDER = ("clock", "node", "number")


def _clocked(events: DataFrame) -> DataFrame:
    """With the latest time that a client's events at the node have had so far."""
    before = Window.partitionBy("client", "node").orderBy("number")
    so_far = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return events.withColumn("clock", F.max("at").over(so_far))


def _not_before(end: Column) -> Column:
    return F.when(end.isNotNull(), F.greatest(end, F.col("at")))


def changes(events: DataFrame) -> DataFrame:
    """Each change of a subscription, as the connector that owns the session records it.

    Matchers record copies, and in a cluster one of them has the connector's id. Events that were ingested by versions
    before the column do not say their role.
    """
    own = (F.col("node") == F.col("connector")) & (F.coalesce("role", F.lit(OWNER)) == OWNER)
    return events.where(F.col("kind").isin(*SUBSCRIPTION_KINDS) & own).select(*CHANGES)


def subscriptions(changes: DataFrame) -> DataFrame:
    """History of every subscription with its validity."""
    ended = _ended(changes).withColumn("valid_to", _not_before(F.col("end.at")))
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


def not_over(changes: DataFrame, cutoff: datetime) -> DataFrame:
    """Without subscriptions that ended before a moment, and without what ended them.

    By the clock that orders them: what ended one that is kept is kept.
    """
    over = F.when(F.col("kind") == "SubscriptionSet", F.col("end.clock")).otherwise(F.col("clock"))
    kept = _ended(changes).where(over.isNull() | (over >= F.lit(cutoff)))
    return kept.select(*CHANGES)


def _ended(changes: DataFrame) -> DataFrame:
    """Changes with the one that ended each."""
    removed = F.col("kind") == "SubscriptionRemoved"
    replaced = _next(~removed, "client", "name")
    gone = _next(removed, "client", "name", "node")
    all_of_them = removed & F.col("name").isNull()
    wiped = _next(all_of_them, "client", "node")
    return _clocked(changes).withColumn("end", F.least(replaced, gone, wiped))


def _next(which: Column, *same: str) -> Column:
    """The nearest later change of some kind. Backwards, as Spark begins anew for each row where a frame ends with all that follow."""
    later = Window.partitionBy(*same).orderBy(*map(F.desc, _ORDER))
    frame = later.rowsBetween(Window.unboundedPreceding, -1)
    change = F.struct(*_ORDER, "at")
    return F.last(F.when(which, change), ignorenulls=True).over(frame)


def sessions(events: DataFrame) -> DataFrame:
    """Every subscriber session at a connector; one that was killed and began anew holds none of before."""
    same = Window.partitionBy("node", "client").orderBy("number")
    found = events.where(F.col("kind").isin(*SESSION_KINDS))
    extra = F.from_json("extra", "durable boolean, resumed boolean, address string")
    following = F.lead(F.struct("number", "at", "code")).over(same)
    restart = F.array_min(F.filter("restarts", lambda each: each.number > F.col("number")))
    return (
        found.join(F.broadcast(_restarts(found)), "node", "left")
        .withColumn("end", F.least(following, restart))
        .withColumn("closed_at", _not_before(F.col("end.at")))
        .withColumn("reason", F.col("end.code"))
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


def _restarts(events: DataFrame) -> DataFrame:
    """Of connectors. A node of a cluster has one id and a journal, with its own numbers, for each role."""
    role = F.coalesce(F.get_json_object("extra", "$.role"), F.lit(""))
    started = events.where("kind = 'NodeStarted'").where(~role.isin("matcher", "dispatcher"))
    restart = F.struct("number", "at", F.lit(RESTARTED).alias("code"))
    return started.groupBy("node").agg(F.collect_list(restart).alias("restarts"))


def still_open(events: DataFrame, found: DataFrame) -> DataFrame:
    """The opening events to keep for the next batch."""
    opened = events.where("kind = 'SessionOpened'")
    return opened.join(
        found.where("open").select("node", "number"), ["node", "number"], "left_semi"
    )
