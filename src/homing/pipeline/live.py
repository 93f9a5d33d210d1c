"""Job `live`: Spark takes the matchers' place.

    matchers (push.matching = "spark")      take publications, journal and acknowledge them
       └─ their journals ─ stream ─►  executors   match against an index of all subscriptions
                                         └─►  driver   a stand-in matcher: journals the lists, owes
                                                       them to the connectors over the dispatchers

Exactly once: a batch that Spark runs again finds in the stand-in's journal what was taken, and
connectors recognise what they were given. A subscription counts from the next micro-batch on,
so for every publication that is accepted after it was confirmed.

Over Spark Connect the driver is at the server, and so is all of this: the job travels there, the
stand-in's journal is below `node.data` there, and dispatchers are dialled from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from homing.clock import SystemClock
from homing.config import Config
from homing.errors import JournalError, PipelineError
from homing.pipeline.handing import PAUSE, READY_SECONDS, Handing, Placed, stand_in
from homing.pipeline.overlay import Overlays, place, ship
from homing.pipeline.standin import MAX_KNOWN

KIND = "PublicationAccepted"
COLUMNS = "kind string, id string, attrs_json string, payload binary"
# About a second's worth: the driver holds a batch's client lists in memory.
MAX_EVENTS = 20_000


Batch = Callable[[DataFrame, int], None]


@dataclass
class Live:
    """The job where the driver is: it matches by what its stand-in for the matchers knows."""

    handing: Handing
    overlays: Overlays = field(init=False)
    _spark: SparkSession | None = None

    def __post_init__(self) -> None:
        self.overlays = Overlays(self._ship)

    def batch(self, events: DataFrame, number: int) -> None:
        """One micro-batch: match, then hand over what is new in it."""
        self._spark = events.sparkSession
        # Its offsets are fixed by now: every subscription confirmed before one of these
        # publications was accepted is in the register.
        overlay = self.overlays.current(self.handing.changes())
        asked = events.where(F.col("kind") == KIND)
        self.handing.hand(rows(place(asked, overlay).toArrow()))

    def _ship(self, name: str, table: pa.Table) -> None:
        assert self._spark is not None
        ship(self._spark, name, table)


class Sent:
    """The job on its way to the driver of a Spark Connect server: where it arrives, it begins.

    With `drain` a batch ends when connectors have taken over what is owed, as the process that
    owes it ends with the stream; `left` says what they have not.
    """

    def __init__(self, config: Config, *, drain: bool = False) -> None:
        self._config = config
        self._key = f"homing.live.{uuid4().hex}" if drain else None

    def __reduce__(self) -> tuple[Callable[..., Batch], tuple[object, ...]]:
        return _arrived, (self._config, self._key)

    def left(self, spark: SparkSession) -> int:
        """Publications that were still owed when the last batch was over."""
        return int(spark.conf.get(self._key, "0") or 0) if self._key else 0


def _arrived(config: Config, key: str | None) -> Batch:
    """Stand in from now on, not from the first batch: something may be owed from before."""
    coming: Future[Live] = Future()
    try:
        coming.set_result(Live(stand_in(config, "live")))
    except JournalError:
        # Of a caller that was killed the stream runs on, and ends when this one has started.
        coming = ThreadPoolExecutor(1).submit(_when_free, config)
    if key is None:
        return lambda events, number: coming.result().batch(events, number)
    settling = _Settling(key)
    if coming.done():
        settling.settle(coming.result().handing)

    def batch(events: DataFrame, number: int) -> None:
        live = coming.result()
        live.batch(events, number)
        settling.settle(live.handing)

    return batch


def _when_free(config: Config) -> Live:
    deadline = SystemClock.monotonic() + READY_SECONDS
    while True:
        try:
            return Live(stand_in(config, "live"))
        except JournalError:
            if SystemClock.monotonic() > deadline:
                raise
            time.sleep(PAUSE)


class _Settling:
    """Waits for connectors, READY_SECONDS in all, and tells the caller's session what is left."""

    def __init__(self, key: str) -> None:
        spark = SparkSession.getActiveSession()  # batches have one of their own
        assert spark is not None
        self._spark = spark
        self._key = key
        self._patience = READY_SECONDS

    def settle(self, handing: Handing) -> None:
        begun = SystemClock.monotonic()
        handing.wait_done(self._patience)
        self._patience = max(0.0, self._patience - (SystemClock.monotonic() - begun))
        self._spark.conf.set(self._key, str(len(handing.standin.owed)))


def start(
    spark: SparkSession,
    stands_in: Handing | Sent,
    source: dict[str, str],
    checkpoint: str,
    *,
    follow: bool = True,
    max_events: int = MAX_EVENTS,
) -> StreamingQuery:
    """Match what `source` (options of format("homing")) gives, from where the last run stopped."""
    if max_events > MAX_KNOWN // 2:
        raise PipelineError(f"at most {MAX_KNOWN // 2} events in a batch: so many are remembered")
    events = (
        spark.readStream.format("homing")
        .schema(COLUMNS)
        .options(**source, kinds=KIND, maxEvents=str(max_events))
        .load()
    )
    work = Live(stands_in).batch if isinstance(stands_in, Handing) else cast(Batch, stands_in)
    writer = events.writeStream.foreachBatch(work).option("checkpointLocation", checkpoint)
    writer = (
        writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)
    )
    return writer.queryName("homing-live").start()


def reading(spark: SparkSession, source: dict[str, str]) -> DataFrame:
    """What is matched, of all that there is: for its plan."""
    reader = spark.read.format("homing").schema(COLUMNS).options(**source, kinds=KIND)
    return reader.load().where(F.col("kind") == KIND)


def rows(table: pa.Table) -> Iterator[Placed]:
    """Publications as the stand-in takes them; those that concern nobody too, to be recorded."""
    for batch in table.to_batches():
        columns = [batch.column(name).to_pylist() for name in table.column_names]
        for identity, attributes, payload, places, matched in zip(*columns, strict=True):
            yield Placed(
                bytes.fromhex(identity), attributes.encode(), payload or b"", places, matched
            )
