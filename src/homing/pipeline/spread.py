"""How what the fabric did is spread: over its nodes, and over what subscribers ask for.

Transformations of tables, for the report. Filters are taken from the events, where matchers record
the subscriptions of all sessions; the table `subscriptions` has the durable ones only.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

WORK = ("requests of brokers", "publications of matchers", "deliveries of connectors")


def over_nodes(
    events: DataFrame, requests: DataFrame, matched: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """What each node did of each kind of work: `work`, `node`, `name`, `count`."""
    pushed = deliveries.where("step = 'delivered'")
    done = [
        frame.groupBy("node").count().withColumn("work", F.lit(work))
        for work, frame in zip(WORK, (requests, matched, pushed), strict=True)
    ]
    counts = done[0].unionByName(done[1]).unionByName(done[2])
    return counts.join(_names(events), "node", "left").select("work", "node", "name", "count")


def _names(events: DataFrame) -> DataFrame:
    """What nodes call themselves, as of their last start."""
    started = events.where("kind = 'NodeStarted'").groupBy("node")
    return started.agg(F.max_by("name", F.struct("at", "number")).alias("name"))


def over_filters(events: DataFrame, matches: DataFrame) -> DataFrame:
    """Who asked for what, and what came of it: `fields`, `clients`, `matches`.

    A match is of a publication and a client; one who asks for several things counts with each.
    """
    asked = events.where("kind = 'SubscriptionSet'").select("fields", "client").distinct()
    found = matches.groupBy("client").agg(F.count("*").alias("found"))
    return (
        asked.join(found, "client", "left")
        .groupBy("fields")
        .agg(F.count("*").alias("clients"), F.sum(F.coalesce("found", F.lit(0))).alias("matches"))
    )
