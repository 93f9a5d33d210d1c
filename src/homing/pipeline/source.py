"""The Spark data source `homing`: journals as a table and as a stream.

    spark.read.format("homing").load("/var/lib/homing")
    spark.readStream.format("homing").option("kinds", "RequestAccepted,RequestAnswered")

Options:
    path        a journal or any directory above journals
    endpoint    instead of a path: journal servers (`homing journal serve`), comma-separated
    token       what those servers ask for
    kinds       only these kinds of events, comma-separated
    since       only events at or after this time (ISO 8601, or µs since 1970)
    until       only events before it
    maxEvents   about so many events in one micro-batch
    damage      `skip` (default): pass over damaged blocks and log each; `fail`: stop at the first
    ranges      `true`: instead of events, which ranges of blocks they are in (homing.pipeline.pieces)
    pushdown    `true`: take Spark's own filters on kind and at; needs
                spark.sql.python.filterPushdown.enabled (homing.pipeline.session sets both)

A schema given by the user prunes columns: only those are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from math import ceil

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from homing.errors import PipelineError
from homing.journal.positions import Offset, Range
from homing.pipeline.asked import Asked, parse
from homing.pipeline.reading import read_range, sealed
from homing.pipeline.schema import EVENTS, RANGES
from homing.pipeline.sink import Sink, StreamSink, check_schema, parse_target

# Events of sealed segments that one task reads at most, about, one to three seconds' by the columns asked for:
# starting a task takes about 30 ms in Spark and in Python, which a small segment does not pay for.
# Blocks take four times as long, and a range of them is a task of its own, but for one so small that it is
# read while a task would start: the end of a journal that is being written.
TASK_EVENTS = 1 << 20
SMALL_BYTES = 1 << 20


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Range]) -> None:
        super().__init__(tuple(pieces))
        self.pieces = tuple(pieces)


def tasks(asked: Asked, pieces: Iterable[Range]) -> list[RangePartition]:
    """Ranges shared out to tasks, in their order."""
    found: list[list[Range]] = []
    for quick, run in groupby(pieces, lambda piece: _small(piece) or sealed(asked, piece)):
        some = list(run)
        found += _evenly(some) if quick else [[piece] for piece in some]
    return [RangePartition(each) for each in found]


def _small(piece: Range) -> bool:
    return piece.end - piece.start < SMALL_BYTES


def _evenly(pieces: Sequence[Range]) -> list[list[Range]]:
    """As few tasks as do, of about the same size: the last must not be waited for alone."""
    sizes = [piece.last - piece.first + 1 for piece in pieces]
    total = sum(sizes)
    count = ceil(total / TASK_EVENTS)
    found: list[list[Range]] = [[] for _ in range(count)]
    for piece, size, end in zip(pieces, sizes, accumulate(sizes), strict=True):
        found[(2 * end - size) * count // (2 * total)].append(piece)  # where its middle lies
    return [each for each in found if each]


def read_partition(asked: Asked, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """A task's batches; where there is nothing at all to read Spark asks once, with None."""
    if not isinstance(partition, RangePartition):
        return
    if asked.ranges:
        rows = [piece._asdict() for piece in partition.pieces]
        yield pa.RecordBatch.from_pylist(rows, RANGES)
        return
    for piece in partition.pieces:
        yield from read_range(asked, piece)


class JournalSource(DataSource):
    """`format("homing")`: journals to read, matchers to write to."""

    @classmethod
    def name(cls) -> str:
        return "homing"

    def schema(self) -> StructType:
        ranges = self.options.get("ranges", "false").lower() == "true"
        return from_arrow_schema(RANGES) if ranges else EVENTS

    def reader(self, schema: StructType) -> DataSourceReader:
        asked = parse(self.options, schema)
        pushing = self.options.get("pushdown", "false").lower() == "true"
        return PushingReader(asked) if pushing else JournalReader(asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JournalStream(parse(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> Sink:
        if overwrite:
            raise PipelineError("publications cannot be overwritten", hint='mode("append")')
        check_schema(schema)
        return Sink(parse_target(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        check_schema(schema)
        return StreamSink(parse_target(self.options))


class JournalReader(DataSourceReader):
    """Everything that is there now."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        place, told = self.asked.place, self.asked.on_damage
        end = place.advance({}, None, told)
        return tasks(self.asked, place.between({}, end, told))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.asked, partition)


class PushingReader(JournalReader):
    """Narrows by Spark's filters; Spark applies them again, so taking a part is enough."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            self.asked.wanted.narrow(each)
        return filters


class JournalStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is there and what comes."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.target: Offset | None = None  # where an availableNow run ends

    def initialOffset(self) -> Offset:
        return {}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        most = None if isinstance(limit, ReadAllAvailable) else self.asked.most
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        return self.asked.place.advance(start, most, self.asked.on_damage, self.target)

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.asked.place.advance({}, None, self.asked.on_damage)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.asked.most) if self.asked.most else ReadAllAvailable()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return tasks(self.asked, self.asked.place.between(start, end, self.asked.on_damage))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.asked, partition)
