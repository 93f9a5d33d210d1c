"""Job `replay`: send again what was published, under its own ids.

Two questions are answered with the same list, publication by publication:

    a span of time    everybody whose subscriptions match it today, and who has not got it yet
    a client          what was matched to it then, and did not reach it

Publications go over the dispatchers, from a stand-in matcher that journals whom it sends to, so
the ledger accounts for them like for any other. Connectors recognise what a client got lately;
`again` also sends what the tables say that a client has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from homing.errors import PipelineError
from homing.ids import NODE_ID_BYTES
from homing.pipeline.handing import Handing, Placed
from homing.pipeline.match import match
from homing.pipeline.register import Entry
from homing.pipeline.sink import Pace
from homing.pipeline.tables import Tables

# Rows handed over in one go where no rate is given.
PORTION = 1000
REACHED = ("delivered", "redelivered", "acknowledged")
# A durable session is owed what was queued for it, unless that was dropped since.
QUEUED, DROPPED = "deliveryqueued", "dropped"
_PAIR = "client string, connector string, fields string"


class Asked(NamedTuple):
    """What to send again."""

    since: datetime | None = None
    until: datetime | None = None
    client: str | None = None
    again: bool = False
    rate: float | None = None


class Replayed(NamedTuple):
    """What was sent: publications, and clients they were for in all."""

    publications: int
    deliveries: int


def within(publications: DataFrame, asked: Asked) -> DataFrame:
    """The publications of a span, each once however many nodes recorded it."""
    found = publications.select("id", "accepted_at", "node", "number", "attrs_json", "payload")
    if asked.since is not None:
        found = found.where(F.col("accepted_at") >= F.lit(asked.since))
    if asked.until is not None:
        found = found.where(F.col("accepted_at") < F.lit(asked.until))
    return found.dropDuplicates(["id"])


def owed(
    publications: DataFrame, pairs: DataFrame, deliveries: DataFrame, *, again: bool = False
) -> DataFrame:
    """Publications with the places of those they have not reached, in their order."""
    if not again:
        pairs = pairs.join(_got(deliveries), ["id", "client"], "left_anti")
    places = F.sort_array(F.collect_set(F.concat("client", "connector"))).alias("places")
    lists = pairs.groupBy("id").agg(places)
    return publications.join(lists, "id").orderBy("accepted_at", "node", "number")


def _got(deliveries: DataFrame) -> DataFrame:
    """Who has what, or has it in a queue: of a connector that did both, what it did last counts."""
    in_queue = F.when(F.col("step").isin(QUEUED, DROPPED), F.col("number"))
    found = deliveries.groupBy("id", "client", "node").agg(
        F.bool_or(F.col("step").isin(*REACHED)).alias("reached"),
        F.max_by("step", in_queue).alias("last"),
    )
    got = found.where(F.col("reached") | F.col("last").eqNullSafe(QUEUED))
    return got.select("id", "client").distinct()


def plan(tables: Tables, entries: Sequence[Entry], asked: Asked) -> DataFrame:
    """The rows that a replay sends; `entries` are the subscriptions as they are now."""
    publications = within(tables.read("publications"), asked)
    if asked.client is not None:
        pairs = _where_it_is(tables, entries, asked.client)
    else:
        pairs = match(publications, _subscriptions(tables.spark, entries))
    return owed(publications, pairs, tables.read("deliveries"), again=asked.again)


def _where_it_is(tables: Tables, entries: Sequence[Entry], client: str) -> DataFrame:
    """What was matched to a client, at the connector that holds it now, if one does."""
    pairs = tables.read("matches").where(F.col("client") == client)
    now = {_split(entry)[1] for entry in entries if _split(entry)[0] == client}
    connector = F.lit(sorted(now)[0]) if now else F.col("connector")
    return pairs.select("id", "client", connector.alias("connector")).distinct()


def _subscriptions(spark: SparkSession, entries: Sequence[Entry]) -> DataFrame:
    rows = [(*_split(entry), entry.fields.decode()) for entry in entries]
    return spark.createDataFrame(rows, _PAIR)


def _split(entry: Entry) -> tuple[str, str]:
    return entry.place[:-NODE_ID_BYTES].hex(), entry.place[-NODE_ID_BYTES:].hex()


def run(found: DataFrame, handing: Handing, asked: Asked, patience: float = 60.0) -> Replayed:
    """Send them, no quicker than asked; returns when connectors have taken all of it over."""
    pace = Pace(asked.rate)
    publications = deliveries = 0
    handing.hand((), again=True)  # what an earlier replay sent may be asked for again
    for rows in _portions(found.toLocalIterator(prefetchPartitions=True)):
        for part in pace.parts(rows):
            time.sleep(pace.wait(len(part)))
            placed = [_placed(row) for row in part]
            handing.hand(placed)
            publications += len(placed)
            deliveries += sum(each.matched for each in placed)
    if not handing.wait_done(patience):
        left = len(handing.standin.owed)
        raise PipelineError(
            f"connectors have not taken over {left} of {publications} publications",
            hint="they are in the stand-in's journal: a replay with nothing to send goes on with them",
        )
    return Replayed(publications, deliveries)


def _portions(rows: Iterator[Row]) -> Iterator[list[Row]]:
    portion: list[Row] = []
    for row in rows:
        portion.append(row)
        if len(portion) >= PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def _placed(row: Row) -> Placed:
    places = bytes.fromhex("".join(row.places))
    payload = bytes(row.payload or b"")
    return Placed(bytes.fromhex(row.id), row.attrs_json.encode(), payload, places, len(row.places))
