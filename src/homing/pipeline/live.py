"""Job `live`: Spark takes the matchers' place.

    matchers (push.matching = "spark")      take publications, journal and acknowledge them
       └─ their journals ─ stream ─►  executors   match against an index of all subscriptions
                                         └─►  driver   a stand-in matcher: journals the lists, owes
                                                       them to the connectors over the dispatchers

Exactly once: a batch that Spark runs again finds in the stand-in's journal what was taken, and
connectors recognise what they were given. A subscription counts from the next micro-batch on,
so for every publication that is accepted after it was confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from homing.errors import PipelineError
from homing.pipeline.handing import Handing, Placed
from homing.pipeline.overlay import Overlays, place, ship
from homing.pipeline.standin import MAX_KNOWN

KIND = "PublicationAccepted"
COLUMNS = "kind string, id string, attrs_json string, payload binary"
# About a second's worth: the driver holds a batch's client lists in memory.
MAX_EVENTS = 20_000


@dataclass
class Live:
    """The job: where it reads, and what stands in for the matchers."""

    spark: SparkSession
    handing: Handing
    overlays: Overlays

    def batch(self, events: DataFrame, number: int) -> None:
        """One micro-batch: match, then hand over what is new in it."""
        # Its offsets are fixed by now: every subscription confirmed before one of these
        # publications was accepted is in the register.
        overlay = self.overlays.current(self.handing.changes())
        asked = events.where(F.col("kind") == KIND)
        self.handing.hand(rows(place(asked, overlay).toArrow()))


def start(
    spark: SparkSession,
    handing: Handing,
    source: dict[str, str],
    checkpoint: str,
    *,
    follow: bool = True,
    max_events: int = MAX_EVENTS,
) -> StreamingQuery:
    """Match what `source` (options of format("homing")) gives, from where the last run stopped."""
    if max_events > MAX_KNOWN // 2:
        raise PipelineError(f"at most {MAX_KNOWN // 2} events in a batch: so many are remembered")
    live = Live(spark, handing, Overlays(partial(ship, spark)))
    events = (
        spark.readStream.format("homing")
        .schema(COLUMNS)
        .options(**source, kinds=KIND, maxEvents=str(max_events))
        .load()
    )
    writer = events.writeStream.foreachBatch(live.batch).option("checkpointLocation", checkpoint)
    writer = (
        writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    )
    return writer.queryName("homing-live").start()


def rows(table: pa.Table) -> Iterator[Placed]:
    """Publications as the stand-in takes them; those that concern nobody too, to be recorded."""
    for batch in table.to_batches():
        columns = [batch.column(name).to_pylist() for name in table.column_names]
        for identity, attributes, payload, places, matched in zip(*columns, strict=True):
            yield Placed(
                bytes.fromhex(identity), attributes.encode(), payload or b"", places, matched
            )
