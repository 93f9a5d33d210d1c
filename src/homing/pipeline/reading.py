"""A range of a journal's blocks as Arrow batches: from its segment, its Parquet copy or a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from homing.errors import CorruptSegment
from homing.journal.columns import SCHEMA, batch
from homing.journal.positions import Range
from homing.journal.reader import Segment, blocks, events_of, segments
from homing.pipeline.asked import Asked, Wanted
from homing.pipeline.remote import Remote

# Events in one Arrow batch: Spark copies a batch at a time, so it bounds a task's memory.
BATCH_EVENTS = 65_536


def read_range(asked: Asked, piece: Range) -> Iterator[pa.RecordBatch]:
    """A range's events as batches: from the Parquet copy where there is one."""
    if isinstance(asked.place, Remote):
        yield from _rows(asked, _from_server(asked, asked.place, piece))
        return
    segment = _segment(asked, piece)
    if segment is None:
        asked.on_damage(CorruptSegment(piece.path, piece.start, "removed before it was read"))
        return
    made = _from_parquet if segment.parquet.exists() else _from_blocks
    yield from _rows(asked, made(asked, segment, piece))


def whole_copy(asked: Asked, piece: Range) -> Path | None:
    """The Parquet copy that holds what `read_range` gives, and nothing else, if there is one."""
    everything = asked.wanted == Wanted() and asked.schema.equals(SCHEMA)
    if not everything or isinstance(asked.place, Remote):
        return None
    segment = _segment(asked, piece)
    if segment is None or not segment.parquet.exists():
        return None
    with pq.ParquetFile(segment.parquet) as file:
        whole, _ = _row_groups(file, piece)
        exact = len(whole) == file.num_row_groups and file.schema_arrow.equals(SCHEMA)
    return segment.parquet if exact else None


def sealed(asked: Asked, piece: Range) -> bool:
    """Whether a range is read from a Parquet copy, as far as can be told now."""
    return not isinstance(asked.place, Remote) and Path(piece.path).with_suffix(".parquet").exists()


def coded(path: Path, names: Sequence[str]) -> pa.Table:
    """Columns of a Parquet copy. Texts stay the codes that the file has: they mostly repeat."""
    texts = [name for name in names if SCHEMA.field(name).type == pa.string()]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        return file.read(columns=list(names)).unify_dictionaries()


def _segment(asked: Asked, piece: Range) -> Segment | None:
    path = Path(piece.path)
    near = segments(path.parent, asked.on_damage, int(path.stem))
    return next((each for each in near if each.path == path), None)


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
