"""What tasks of `ingest` do: each takes ranges of a journal's blocks and leaves files of tables.

A sealed segment is Parquet already, and a table of events is the same columns: no row needs to
pass through Spark to get from one to the other. Where a range is a whole sealed segment, its Parquet
copy is a file of `events` as it is; otherwise the range is read as Arrow and written as one. Its
plain requests become a file of `requests` (homing.pipeline.folding), and the events that are not so
plain are left in `_left`, to be folded with those of other ranges. What each event says by itself becomes
files of the push plane's tables (homing.pipeline.projecting). A file is named after its
range, which is the same however often a batch is begun, and gets its name when it is whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from homing.journal.columns import SCHEMA
from homing.journal.positions import Range
from homing.journal.sealing import unreadable
from homing.pipeline.asked import Asked, parse
from homing.pipeline.files import duplicate, read, save
from homing.pipeline.folding import NEEDED, closed, plain
from homing.pipeline.projecting import PROJECTIONS, project
from homing.pipeline.reading import batches_of, coded, read_range, whole_copy
from homing.pipeline.schema import EVENTS

LEFT, STATE = "_left", "_state"
WRITTEN = "kind string, events bigint, left bigint"

_WRITTEN = pa.schema([("kind", pa.string()), ("events", pa.int64()), ("left", pa.int64())])
Batches = Iterable[pa.RecordBatch]
Work = Callable[[Batches], Iterator[pa.RecordBatch]]
Columns = Callable[[Sequence[str]], pa.Table]


def clear(root: Path, batch: int) -> None:
    """Remove what an earlier attempt at a batch left."""
    for place in ("events", "requests", *PROJECTIONS):
        shutil.rmtree(root / place / f"batch={batch}", ignore_errors=True)
    shutil.rmtree(root / LEFT, ignore_errors=True)


def reading(options: Mapping[str, str]) -> Work:
    """For mapInArrow: ranges in, their events out."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        asked = parse(options, EVENTS)
        for piece in _ranges(batches):
            yield from read_range(asked, piece)

    return run


def writing(options: Mapping[str, str], root: Path, batch: int) -> Work:
    """For mapInArrow: ranges in, files written, how many events of each kind there were out."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        asked = parse(options, EVENTS)
        for piece in _ranges(batches):
            identity = f"{piece.journal} {piece.path} {piece.start}"
            name = f"{piece.first:020}-{sha256(identity.encode()).hexdigest()[:16]}.parquet"
            columns = _events(asked, piece, root / "events" / f"batch={batch}" / name)
            found = columns(NEEDED.names)
            if found.num_rows:
                told = _fold(found, root, f"batch={batch}/{name}")
                _project(
                    set(told.column("kind").to_pylist()), columns, root, f"batch={batch}/{name}"
                )
                yield told

    return run


def _ranges(batches: Batches) -> Iterator[Range]:
    return (Range(**row) for batch in batches for row in batch.to_pylist())


def _events(asked: Asked, piece: Range, path: Path) -> Columns:
    """Write a range's file of events; how to get columns of them."""
    copy = whole_copy(asked, piece)
    known = None if copy is None else _checked(asked, copy)
    if copy is not None and known is not None:
        duplicate(copy, path)
        there = set(NEEDED.names)
        return lambda names: known.select(names) if there.issuperset(names) else coded(copy, names)
    batches = read_range(asked, piece, copies=copy is None)
    found = pa.Table.from_batches(batches, SCHEMA)
    if found.num_rows:
        save(found, path)
    return lambda names: found.select(names)


def _checked(asked: Asked, copy: Path) -> pa.Table | None:
    """The columns of a copy that are needed, once all of it was read; None, and a report, if it is damaged."""
    try:
        for _ in batches_of(copy, [name for name in SCHEMA.names if name not in NEEDED.names]):
            pass
        return coded(copy, NEEDED.names)
    except (pa.ArrowException, OSError) as error:
        asked.on_damage(unreadable(copy, error))
        return None


def _project(kinds: set[str], columns: Columns, root: Path, name: str) -> None:
    """The files of tables whose events are in the range."""
    for table, projection in PROJECTIONS.items():
        if kinds.isdisjoint(projection.kinds):
            continue
        rows = project(columns(projection.columns), projection)
        if rows.num_rows:
            save(rows, root / table / name)


def _fold(found: pa.Table, root: Path, name: str) -> pa.RecordBatch:
    rows, left = plain(found)
    if rows.num_rows:
        save(rows, root / "requests" / name)
    if left.num_rows:
        save(left, root / LEFT / name)
    kinds, events = pc.value_counts(found.column("kind").cast(pa.string())).flatten()
    # Of what is left only the whole matters: it is told with the first kind.
    there = pa.array([left.num_rows, *[0] * (len(kinds) - 1)], pa.int64())
    return pa.RecordBatch.from_arrays([kinds, events, there], schema=_WRITTEN)


def finish(root: Path, batch: int, state: Path | None) -> None:
    """Fold what tasks left with what earlier batches left open; leave the next state."""
    known = read([root / LEFT / f"batch={batch}", *([state] if state else [])], NEEDED)
    rows, still = closed(known)
    save(rows, root / "requests" / f"batch={batch}" / "left.parquet")
    place = root / STATE / "requests" / f"batch={batch}"
    shutil.rmtree(place, ignore_errors=True)
    save(still, place / "open.parquet")
