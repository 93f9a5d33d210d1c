"""A range of a journal's blocks as Arrow batches: from its segment, its Parquet copy or a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from homing.errors import CorruptSegment
from homing.journal.columns import SCHEMA, batch
from homing.journal.positions import Range
from homing.journal.reader import Segment, blocks, events_of, segments
from homing.journal.sealing import check_footer, unreadable
from homing.pipeline.asked import Asked, Wanted
from homing.pipeline.remote import Remote

# Events in one Arrow batch: Spark copies a batch at a time, so it bounds a task's memory. With half of the columns or
# fewer a row group, twice as many, is no more than that, and Python and Spark wait for each other less often.
BATCH_EVENTS = 65_536
# A copy's pages have checksums, which cost a hundredth of what decoding takes; those of earlier versions have none.
CHECKED: dict[str, Any] = {"page_checksum_verification": True}


def read_range(asked: Asked, piece: Range, *, copies: bool = True) -> Iterator[pa.RecordBatch]:
    """A range's events as batches: from the Parquet copy where there is one, unless it is damaged."""
    if isinstance(asked.place, Remote):
        yield from _rows(asked, _from_server(asked, asked.place, piece))
        return
    if copies and sealed(asked, piece):
        given = 0
        try:
            for found in _rows(asked, _from_parquet(asked, piece)):
                given += 1
                yield found
            return
        except (pa.ArrowException, OSError) as error:
            damage = unreadable(_copy(piece), error)
            if given:  # nobody knows which rows those were
                raise damage from error
            asked.on_damage(damage)
    segment = _segment(asked, piece)
    if segment is None:
        asked.on_damage(CorruptSegment(piece.path, piece.start, "removed before it was read"))
        return
    yield from _rows(asked, _from_blocks(asked, segment, piece))


def whole_copy(asked: Asked, piece: Range) -> Path | None:
    """The Parquet copy that holds what `read_range` gives, and nothing else, if there is one."""
    everything = asked.wanted == Wanted() and asked.schema.equals(SCHEMA)
    if not everything or not sealed(asked, piece):
        return None
    copy = _copy(piece)
    try:
        check_footer(copy)
        with pq.ParquetFile(copy) as file:
            whole, _ = _row_groups(file.metadata, piece)
            exact = len(whole) == file.num_row_groups and file.schema_arrow.equals(SCHEMA)
    except (pa.ArrowException, OSError):
        return None  # `read_range` reports it
    return copy if exact else None


def sealed(asked: Asked, piece: Range) -> bool:
    """Whether a range is read from a Parquet copy, as far as can be told now."""
    return not isinstance(asked.place, Remote) and _copy(piece).exists()


def _copy(piece: Range) -> Path:
    return Path(piece.path).with_suffix(".parquet")


def coded(path: Path, names: Sequence[str]) -> pa.Table:
    """Columns of a Parquet copy. Texts stay the codes that the file has: they mostly repeat."""
    texts = [name for name in names if SCHEMA.field(name).type == pa.string()]
    with pq.ParquetFile(path, read_dictionary=texts, **CHECKED) as file:
        found = file.read(columns=list(names))
        if found.num_rows != file.metadata.num_rows:
            raise pa.ArrowInvalid("rows are missing")
        for name in texts:  # heads of pages have no checksum: codes may be beyond the texts
            if name in found.column_names:
                found.column(name).validate(full=True)
        return found.unify_dictionaries()


def batches_of(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Columns of a Parquet copy, some rows at a time."""
    with pq.ParquetFile(path, **CHECKED) as file:
        yield from _all_of(file, file.metadata, list(range(file.num_row_groups)), list(names))


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
    for header, block in place.blocks(piece, asked.on_damage):
        yield batch(header.node, [block], schema, kinds, role=header.role)


def _internal(asked: Asked) -> pa.Schema:
    """The columns asked for and those that the filters need."""
    needed = {"at", "number", "kind"} - set(asked.schema.names)
    return pa.schema([*asked.schema, *(SCHEMA.field(name) for name in sorted(needed))])


def _from_blocks(asked: Asked, segment: Segment, piece: Range) -> Iterator[pa.RecordBatch]:
    schema, kinds = _internal(asked), asked.wanted.kinds
    gathered: list[tuple[int, int, Sequence[Any]]] = []
    size = 0
    node, role = segment.header.node, segment.header.role
    for block in blocks(segment, asked.on_damage, piece.start, piece.end):
        gathered.append((block.first, block.skew, events_of(segment, block, asked.on_damage)))
        size += block.count
        if size >= BATCH_EVENTS:
            yield batch(node, gathered, schema, kinds, role=role)
            gathered, size = [], 0
    if gathered:
        yield batch(node, gathered, schema, kinds, role=role)


def _from_parquet(asked: Asked, piece: Range) -> Iterator[pa.RecordBatch]:
    """Only columns that somebody asks for are read: most row groups lie in the range as a whole."""
    wanted = asked.wanted
    timed = wanted.since is not None or wanted.until is not None
    for_filters = ["at"] * timed + ["kind"] * (wanted.kinds is not None)
    names = list(dict.fromkeys([*asked.schema.names, *for_filters]))
    schema = pa.schema([SCHEMA.field(name) for name in names])
    check_footer(_copy(piece))
    fitting = partial(_fitting, schema=schema, role=partial(_role, asked, piece))
    # A file that is mapped is not copied, and threads of a task would only be in those of others' way.
    with pa.memory_map(str(_copy(piece))) as source:
        told = pq.read_metadata(source)
        whole, cut = _row_groups(told, piece)
        texts = repeating(told, names)
        with pq.ParquetFile(source, metadata=told, read_dictionary=texts, **CHECKED) as file:
            read = partial(_all_of, file, told)
            for found in read(whole, names):
                yield _of_kinds(fitting(found), wanted.kinds)
            for found in read(cut, [*names, "number"]):
                number = found.column("number")
                keep = pc.and_(
                    pc.greater_equal(number, piece.first), pc.less_equal(number, piece.last)
                )
                yield _of_kinds(fitting(found.filter(keep)), wanted.kinds)


def _all_of(
    file: pq.ParquetFile, told: pq.FileMetaData, groups: list[int], names: list[str]
) -> Iterator[pa.RecordBatch]:
    """Row groups in batches. Heads of pages have no checksum: a broken one may make rows disappear."""
    sizes = [told.row_group(group).num_rows for group in groups]
    left = sum(sizes)
    most = max(sizes, default=BATCH_EVENTS) if 2 * len(names) <= len(SCHEMA) else BATCH_EVENTS
    for found in file.iter_batches(most, groups, columns=names, use_threads=False):
        left -= found.num_rows
        yield found
    if left:
        raise pa.ArrowInvalid(f"{left} rows are missing")


def repeating(told: pq.FileMetaData, names: Sequence[str]) -> list[str]:
    """Texts that the file holds as codes: taken as such and spelled out at once they take half the time.

    A text that is written out takes four bytes and itself; codes take less than that.
    """
    texts = [name for name in names if SCHEMA.field(name).type == pa.string()]
    groups = [told.row_group(i) for i in range(told.num_row_groups)]
    places = {told.schema.column(i).path: i for i in range(told.num_columns)}
    return [
        name
        for name in texts
        if name in places
        and all(
            group.column(places[name]).total_uncompressed_size < 4 * group.num_rows
            for group in groups
        )
    ]


def _row_groups(told: pq.FileMetaData, piece: Range) -> tuple[list[int], list[int]]:
    """Those that lie in a range, and those that overlap it; what files say of numbers is exact."""
    paths = [told.schema.column(i).path for i in range(told.num_columns)]
    if "number" not in paths:
        raise pa.ArrowInvalid("it has no numbers")
    column = paths.index("number")
    whole, cut = [], []
    for group in range(told.num_row_groups):
        about = told.row_group(group).column(column).statistics
        if about is not None and piece.first <= about.min and about.max <= piece.last:
            whole.append(group)
        elif about is None or (about.min <= piece.last and about.max >= piece.first):
            cut.append(group)
    return whole, cut


def _fitting(
    found: pa.RecordBatch, schema: pa.Schema, role: Callable[[], str | None]
) -> pa.RecordBatch:
    """The columns of a schema, texts spelled out; where the file is older than one, null or what its segment says."""
    if found.schema.equals(schema):
        return found
    there = set(found.schema.names)
    columns = []
    for field in schema:
        if field.name in there:
            columns.append(found.column(field.name).cast(field.type))
        else:
            value = role() if field.name == "role" else None
            columns.append(pa.repeat(pa.scalar(value, field.type), found.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _role(asked: Asked, piece: Range) -> str | None:
    segment = _segment(asked, piece)
    return None if segment is None else segment.header.role


def _of_kinds(found: pa.RecordBatch, kinds: frozenset[str] | None) -> pa.RecordBatch:
    if kinds is None:
        return found
    return found.filter(pc.is_in(found.column("kind"), pa.array(sorted(kinds), pa.string())))
