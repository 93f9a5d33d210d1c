"""The sink: rows become publications, each once.

    orders.write.format("homing").mode("append").option("matchers", "127.0.0.1:7001").save()
    quotes.writeStream.format("homing").option("checkpointLocation", …).start()

A row's columns are the attributes, but for

    payload     bytes or text; none: empty
    id          the message id, 24 hex digits; none: made from the row itself
    attrs_json  all attributes as one JSON object, instead of columns of their own

Spark runs a task again when it fails and a batch again when its driver dies. The same row has
the same message id every time, and a matcher answers an id that it knows without passing the
publication on. So rows that are equal are one publication: give those that are not an `id`, or
a column that tells them apart.

Options:
    matchers    host:port, comma-separated, tried in turn (127.0.0.1:7001)
    token       a publishers' key, where the fabric asks for one
    timeout     seconds that a publication may wait for its acknowledgement (30)
    rate        publications a second, for each task; none: as quick as they are taken
    refused     `fail` (default): a row that is no publication (an attribute that is NaN, an id that is none), or
                one that a matcher refuses for good, fails the task; `skip`: it is logged and passed over
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from homing.clock import SystemClock
from homing.errors import (
    HomingError,
    Malformed,
    PipelineError,
    QueueFull,
    Refused,
    SubscriptionError,
)
from homing.ids import ID_BYTES, parse_id
from homing.push.publisher import DEFAULT_MATCHER, Publisher
from homing.push.subscription import Attributes, check_attributes, parse_attributes

log = logging.getLogger(__name__)
Row = TypeVar("Row")

# Publications of one task under way at once: enough to fill a round trip of a busy matcher.
WINDOW = 1024
# Before a publication that a full matcher refused is tried again.
PAUSE = 0.25
RESERVED = ("id", "payload", "attrs_json")

_ATTRIBUTE = (T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_ATTRIBUTES = (*_ATTRIBUTE, T.FloatType, T.DoubleType)


class Publication(NamedTuple):
    """What one row says."""

    identity: bytes
    attributes: Attributes
    payload: bytes


@dataclass(frozen=True)
class Target:
    """The options of one write."""

    matchers: tuple[str, ...] = (DEFAULT_MATCHER,)
    token: str = ""
    timeout: float = 30.0
    rate: float | None = None
    skip_refused: bool = False


@dataclass
class Sent(WriterCommitMessage):
    """What a task published."""

    published: int = 0
    matched: int = 0
    refused: int = 0


def parse_target(options: Mapping[str, str]) -> Target:
    """The options, checked."""
    refused = options.get("refused", "fail")
    if refused not in ("fail", "skip"):
        raise PipelineError(f"refused is fail or skip, not {refused!r}")
    matchers = tuple(each.strip() for each in options.get("matchers", DEFAULT_MATCHER).split(","))
    if not all(matchers):
        raise PipelineError("matchers are host:port, comma-separated")
    return Target(
        matchers,
        options.get("token", ""),
        positive(options, "timeout") or Target.timeout,
        positive(options, "rate"),
        refused == "skip",
    )


def positive(options: Mapping[str, str], name: str) -> float | None:
    """A number above 0, or None where the option is not given."""
    text = options.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise PipelineError(f"{name} is a number above 0, not {text!r}")
    return value


def check_schema(schema: T.StructType) -> None:
    """PipelineError, naming every column that cannot be published."""
    text_or_bytes = (T.StringType, T.BinaryType)
    allowed: dict[str, tuple[type, ...]] = {
        "id": (T.StringType,),
        "payload": text_or_bytes,
        "attrs_json": (T.StringType,),
    }
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema
        if not isinstance(field.dataType, allowed.get(field.name, _ATTRIBUTES))
    ]
    if wrong:
        raise PipelineError(
            f"these columns are no attributes: {', '.join(wrong)}",
            hint="attributes are numbers, text and booleans: cast them, or leave them out",
        )
    extra = [name for name in schema.names if name not in RESERVED]
    if extra and "attrs_json" in schema.names:
        raise PipelineError(
            f"attributes are in attrs_json or in columns, not in both: {', '.join(extra)}",
            hint="select id, attrs_json and payload",
        )


def publications(
    batch: pa.RecordBatch, on_bad: Callable[[HomingError], None] | None = None
) -> Iterator[Publication]:
    """A batch's rows. SubscriptionError for attributes that have no meaning, Malformed for ids, unless `on_bad` takes them."""
    names = [name for name in batch.schema.names if name not in RESERVED]
    for row in batch.to_pylist():
        try:
            yield _publication(row, names)
        except (SubscriptionError, Malformed) as error:
            if on_bad is None:
                raise
            on_bad(error)


def _publication(row: Mapping[str, Any], names: Sequence[str]) -> Publication:
    text = row.get("attrs_json")
    if text is not None:
        attributes = parse_attributes(text)
    else:
        given = {name: row[name] for name in names if row[name] is not None}
        attributes = check_attributes(given)
    payload = row.get("payload") or b""
    body = payload.encode() if isinstance(payload, str) else payload
    identity = parse_id(row["id"]) if row.get("id") else made_id(attributes, body)
    return Publication(identity, attributes, body)


def made_id(attributes: Attributes, payload: bytes) -> bytes:
    """The message id of a publication that was given none: a digest of what it says."""
    image = msgspec.json.encode(attributes, order="sorted")
    digest = blake2b(len(image).to_bytes(8, "big"), digest_size=ID_BYTES, person=b"homing sink")
    digest.update(image)
    digest.update(payload)
    return digest.digest()


async def publish(target: Target, batches: Iterable[pa.RecordBatch]) -> Sent:
    """Publish a task's rows; returns when every one of them is acknowledged."""
    sent = Sent()
    pace = Pace(target.rate)

    def skip(error: HomingError) -> None:
        log.warning("a row is not published: %s", error)
        sent.refused += 1

    async with Publisher(
        *target.matchers, token=target.token, timeout=target.timeout, window=WINDOW
    ) as publisher:
        for batch in batches:
            for at in range(0, batch.num_rows, WINDOW):
                window = batch.slice(at, WINDOW)
                rows = list(publications(window, skip if target.skip_refused else None))
                for part in pace.parts(rows):
                    await asyncio.sleep(pace.wait(len(part)))
                    counts = await asyncio.gather(*[_one(publisher, target, row) for row in part])
                    _count(sent, counts)
    return sent


def _count(sent: Sent, counts: Sequence[int | None]) -> None:
    taken = [count for count in counts if count is not None]
    sent.published += len(taken)
    sent.matched += sum(taken)
    sent.refused += len(counts) - len(taken)


async def _one(publisher: Publisher, target: Target, row: Publication) -> int | None:
    """How many subscriptions matched; None if it was refused and may be skipped."""
    give_up = SystemClock.monotonic() + target.timeout
    while True:
        try:
            return await publisher.publish(row.attributes, row.payload, identity=row.identity)
        except QueueFull as error:
            if SystemClock.monotonic() > give_up:
                raise _failed(row, error) from error
            await asyncio.sleep(PAUSE)
        except (Refused, SubscriptionError) as error:
            if error.retryable or not target.skip_refused:
                raise _failed(row, error) from error
            log.warning("%s is not published: %s", row.identity.hex(), error)
            return None


def _failed(row: Publication, error: HomingError) -> PipelineError:
    return PipelineError(f"publication {row.identity.hex()} is not taken: {error.code} {error}")


class Pace:
    """Spreads publications over time, in about ten portions a second."""

    def __init__(
        self, rate: float | None, clock: Callable[[], float] = SystemClock.monotonic
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def parts(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        """Rows in portions that may leave together."""
        size = len(rows) if self._rate is None else max(1, int(self._rate / 10))
        for at in range(0, len(rows), max(1, size)):
            yield rows[at : at + size]

    def wait(self, size: int) -> float:
        """Seconds until so many more may leave."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        self._due = max(self._due, now - 0.1)  # a pause of others' making is not made up for
        pause = max(0.0, self._due - now)
        self._due += size / self._rate
        return pause


class Sink(DataSourceArrowWriter):
    """A batch job's end."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return asyncio.run(publish(self.target, iterator))

    def commit(self, messages: list[Any]) -> None:
        """Nothing is left to do: every publication is acknowledged."""

    def abort(self, messages: list[Any]) -> None:
        """What was published stays published; a second run is recognised by its ids."""


class StreamSink(DataSourceStreamArrowWriter):
    """A stream's end."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        return asyncio.run(publish(self.target, iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing is left to do: every publication is acknowledged."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """What was published stays published; a second run is recognised by its ids."""
