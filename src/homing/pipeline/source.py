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

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from homing.errors import CorruptSegment, PipelineError
from homing.journal.columns import SCHEMA, batch
from homing.journal.events import KINDS
from homing.journal.positions import Offset, Range, advance, between
from homing.journal.reader import OnDamage, Segment, blocks, events_of, segments
from homing.pipeline.remote import Remote, parse_remote
from homing.pipeline.schema import EVENTS, RANGES, arrow_part
from homing.pipeline.sink import Sink, StreamSink, check_schema, parse_target

log = logging.getLogger(__name__)

# Events in one Arrow batch: Spark copies a batch at a time, so it bounds a task's memory.
BATCH_EVENTS = 65_536


@dataclass
class Wanted:
    """Which events: kinds, and a span of wall-clock µs."""

    kinds: frozenset[str] | None = None
    since: int | None = None
    until: int | None = None

    def narrow(self, filter: Filter) -> None:
        """Take over what a filter of Spark's says about `kind` and `at`."""
        column, value = getattr(filter, "attribute", ()), getattr(filter, "value", None)
        if column == ("kind",):
            if isinstance(filter, EqualTo):
                self._only({value})
            elif isinstance(filter, In):
                self._only(set(filter.value))
        elif column == ("at",) and isinstance(value, datetime):
            moment = int(value.astimezone(UTC).timestamp() * 1e6)
            if isinstance(filter, GreaterThan | GreaterThanOrEqual | EqualTo):
                self.since = moment if self.since is None else max(self.since, moment)
            if isinstance(filter, LessThan | LessThanOrEqual | EqualTo):
                self.until = moment + 1 if self.until is None else min(self.until, moment + 1)

    def _only(self, kinds: set[Any]) -> None:
        known = frozenset(str(kind) for kind in kinds)
        self.kinds = known if self.kinds is None else self.kinds & known

    def rows(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """Those of a batch within the span."""
        if self.since is None and self.until is None:
            return found
        at = found.column("at").cast(pa.int64())
        keep = pc.greater_equal(at, self.since if self.since is not None else -(2**63))
        if self.until is not None:
            keep = pc.and_(keep, pc.less(at, self.until))
        return found.filter(keep)


@dataclass(frozen=True)
class Local:
    """Journals below a directory of this machine, or one that all machines share."""

    root: Path

    def advance(
        self, offset: Offset, most: int | None, on_damage: OnDamage, until: Offset | None = None
    ) -> Offset:
        """As far as they go."""
        return advance(self.root, offset, most, on_damage, until)

    def between(self, start: Offset, end: Offset, on_damage: OnDamage) -> list[Range]:
        """What to read."""
        return between(self.root, start, end, on_damage)


@dataclass
class Asked:
    """The options of one read."""

    place: Local | Remote
    wanted: Wanted
    schema: pa.Schema
    most: int | None
    fail_on_damage: bool
    ranges: bool = False

    def on_damage(self, damage: CorruptSegment) -> None:
        """Never silently."""
        if self.fail_on_damage:
            raise damage
        log.warning("%s", damage)


def parse(options: Mapping[str, str], schema: StructType) -> Asked:
    """The options, checked."""
    damage = options.get("damage", "skip")
    if damage not in ("skip", "fail"):
        raise PipelineError(f"damage is skip or fail, not {damage!r}")
    ranges = options.get("ranges", "false").lower() == "true"
    return Asked(
        _place(options),
        Wanted(_kinds(options), _moment(options, "since"), _moment(options, "until")),
        arrow_part(EVENTS if ranges else schema),
        _positive(options, "maxEvents"),
        damage == "fail",
        ranges,
    )


def _place(options: Mapping[str, str]) -> Local | Remote:
    path, endpoint = options.get("path"), options.get("endpoint")
    if bool(path) == bool(endpoint):
        hint = ".load('/var/lib/homing') or .option('endpoint', 'host:7010')"
        raise PipelineError("the homing source needs a path or an endpoint", hint=hint)
    return parse_remote(endpoint, options.get("token", "")) if endpoint else Local(Path(path or ""))


def _kinds(options: Mapping[str, str]) -> frozenset[str] | None:
    if not options.get("kinds"):
        return None
    asked = frozenset(kind.strip() for kind in options["kinds"].split(","))
    unknown = asked - {kind.__name__ for kind in KINDS.values()} - {"Unknown"}
    if unknown:
        raise PipelineError(f"no such kinds of events: {', '.join(sorted(unknown))}")
    return asked


def _moment(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if text.isdigit():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{name} is a time (ISO 8601) or µs, not {text!r}") from None
    return int(found.replace(tzinfo=found.tzinfo or UTC).timestamp() * 1e6)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise PipelineError(f"{name} is a number above 0, not {text!r}")
    return int(text)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Range) -> None:
        super().__init__(piece)
        self.piece = piece


def read_partition(asked: Asked, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    """A task's batches; where there is nothing at all to read Spark asks once, with None."""
    if not isinstance(partition, RangePartition):
        return iter(())
    if asked.ranges:
        return iter([pa.RecordBatch.from_pylist([partition.piece._asdict()], RANGES)])
    return read_range(asked, partition.piece)


def read_range(asked: Asked, piece: Range) -> Iterator[pa.RecordBatch]:
    """A range's events as batches: from the Parquet copy where there is one."""
    if isinstance(asked.place, Remote):
        yield from _rows(asked, _from_server(asked, asked.place, piece))
        return
    path = Path(piece.path)
    near = segments(path.parent, asked.on_damage, int(path.stem))
    segment = next((each for each in near if each.path == path), None)
    if segment is None:
        asked.on_damage(CorruptSegment(piece.path, piece.start, "removed before it was read"))
        return
    made = _from_parquet if segment.parquet.exists() else _from_blocks
    yield from _rows(asked, made(asked, segment, piece))


def _rows(asked: Asked, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Those wanted, with the columns asked for."""
    for found in batches:
        rows = asked.wanted.rows(found)
        if rows.num_rows:
            yield rows.select(asked.schema.names)


def _from_server(asked: Asked, place: Remote, piece: Range) -> Iterator[pa.RecordBatch]:
    schema, kinds = _internal(asked), asked.wanted.kinds
    for node, block in place.blocks(piece, asked.on_damage):
        yield batch(node, [block], schema, kinds)


def _internal(asked: Asked) -> pa.Schema:
    """The columns asked for and those that the filters need."""
    needed = {"at", "number", "kind"} - set(asked.schema.names)
    return pa.schema([*asked.schema, *(SCHEMA.field(name) for name in sorted(needed))])


def _from_blocks(asked: Asked, segment: Segment, piece: Range) -> Iterator[pa.RecordBatch]:
    schema, kinds = _internal(asked), asked.wanted.kinds
    gathered: list[tuple[int, int, Sequence[Any]]] = []
    size = 0
    for block in blocks(segment, asked.on_damage, piece.start, piece.end):
        gathered.append((block.first, block.skew, events_of(segment, block, asked.on_damage)))
        size += block.count
        if size >= BATCH_EVENTS:
            yield batch(segment.header.node, gathered, schema, kinds)
            gathered, size = [], 0
    if gathered:
        yield batch(segment.header.node, gathered, schema, kinds)


def _from_parquet(asked: Asked, segment: Segment, piece: Range) -> Iterator[pa.RecordBatch]:
    """Only columns that somebody asks for are read: most row groups lie in the range as a whole."""
    wanted = asked.wanted
    timed = wanted.since is not None or wanted.until is not None
    for_filters = ["at"] * timed + ["kind"] * (wanted.kinds is not None)
    names = list(dict.fromkeys([*asked.schema.names, *for_filters]))
    with pq.ParquetFile(segment.parquet) as file:
        whole, cut = _row_groups(file, piece)
        for found in file.iter_batches(BATCH_EVENTS, whole, columns=names):
            yield _of_kinds(_fitting(found, names), wanted.kinds)
        for found in file.iter_batches(BATCH_EVENTS, cut, columns=[*names, "number"]):
            number = found.column("number")
            keep = pc.and_(pc.greater_equal(number, piece.first), pc.less_equal(number, piece.last))
            yield _of_kinds(_fitting(found.filter(keep), names), wanted.kinds)


def _row_groups(file: pq.ParquetFile, piece: Range) -> tuple[list[int], list[int]]:
    """Those that lie in a range, and those that overlap it; what files say of numbers is exact."""
    column = next(i for i in range(len(file.schema)) if file.schema.column(i).path == "number")
    whole, cut = [], []
    for group in range(file.num_row_groups):
        told = file.metadata.row_group(group).column(column).statistics
        if told is not None and piece.first <= told.min and told.max <= piece.last:
            whole.append(group)
        elif told is None or (told.min <= piece.last and told.max >= piece.first):
            cut.append(group)
    return whole, cut


def _fitting(found: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The columns by these names; null where the file is older than the column."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    if found.schema.equals(schema):
        return found
    there = set(found.schema.names)
    columns = [
        found.column(field.name).cast(field.type)
        if field.name in there
        else pa.nulls(found.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _of_kinds(found: pa.RecordBatch, kinds: frozenset[str] | None) -> pa.RecordBatch:
    if kinds is None:
        return found
    return found.filter(pc.is_in(found.column("kind"), pa.array(sorted(kinds), pa.string())))


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
        return [RangePartition(piece) for piece in place.between({}, end, told)]

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
        pieces = self.asked.place.between(start, end, self.asked.on_damage)
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.asked, partition)
