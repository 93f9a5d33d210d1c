"""Sealed segments as Parquet beside the segment: `….hj` gets a `….parquet`.

A copy for Spark and anyone else who reads columns; the segment stays the record until
retention takes both. Written whole under another name, synced, then renamed, so that a file
called `.parquet` is always complete. One process at a time makes those of a journal: a node that was killed may
have left a child at work, which its next life's would meet in the same file. Nodes run `python -m homing.journal.sealing DIRECTORY` now
and then (homing.node.sealer), people `homing journal seal`: never the node's own process, as it
would cost the event loop a core's worth of interpreter time.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from homing.errors import CorruptSegment
from homing.journal.columns import SCHEMA, batch, parquet_options
from homing.journal.events import Event, Unknown
from homing.journal.reader import OnDamage, Segment, blocks, events_of, segments, strict

# Events in a row group: large enough to compress and scan well, small enough for a reader's
# memory and for the minimum and maximum of `at` and `number` to be worth something.
ROW_GROUP = 131_072
NICENESS = 19  # only when nobody else wants the processor
_OPTIONS = {"write_page_index": True, "write_page_checksum": True}
# Parquet checks its pages, and not its footer. Between the two there is room for what no reader looks at.
_FOOTER_MARK = b"homing footer crc32 "
_TAIL = 8  # the footer's length, and Parquet's own mark
_COPY = re.compile(r"[0-9]{20}\.parquet")
_HALF = re.compile(r"[0-9]{20}\.partial")
LOCK = "sealing.lock"
_log = logging.getLogger(__name__)


def unsealed(directory: Path, on_damage: OnDamage = strict) -> list[Segment]:
    """The finished segments that have no Parquet file yet."""
    return [
        segment
        for segment in segments(directory, on_damage)
        if segment.sealed and not segment.parquet.exists()
    ]


def seal(segment: Segment, on_damage: OnDamage = strict) -> Path:
    """Write one segment's Parquet file."""
    target = segment.parquet
    partial = target.with_suffix(".partial")
    schema = SCHEMA.with_metadata({"homing.node": segment.header.node, "homing.format": "1"})
    try:
        with pq.ParquetWriter(partial, schema, **_OPTIONS, **parquet_options(schema)) as writer:
            for rows in _row_groups(segment, on_damage):
                writer.write_batch(rows.replace_schema_metadata(schema.metadata))
        with partial.open("r+b") as file:
            _sign_footer(file)
            os.fsync(file.fileno())
        partial.rename(target)
    except BaseException:
        partial.unlink(missing_ok=True)  # a full disk has better use for it
        raise
    return target


def _sign_footer(file: BinaryIO) -> None:
    """Put the footer's checksum before it."""
    start, footer = _footer(file)
    file.seek(start)
    file.write(_FOOTER_MARK + zlib.crc32(footer).to_bytes(4, "big") + footer)
    file.flush()


def check_footer(path: Path) -> None:
    """ArrowInvalid if a copy's footer is not what was written; copies of earlier versions say nothing of theirs.

    To be asked before Arrow reads it: a flipped bit may end the process there, or give other rows.
    """
    with path.open("rb") as file:
        start, footer = _footer(file)
        file.seek(max(0, start - len(_FOOTER_MARK) - 4))
        signed = file.read(len(_FOOTER_MARK) + 4)
    if signed.startswith(_FOOTER_MARK) and signed[-4:] != zlib.crc32(footer).to_bytes(4, "big"):
        raise pa.ArrowInvalid("its footer is damaged")


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Where it begins, and it with its length and mark."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL))
    length = int.from_bytes(file.read(4), "little")
    start = size - _TAIL - length
    if start < 0:
        raise pa.ArrowInvalid("its footer is damaged")
    file.seek(start)
    return start, file.read()


def seal_all(directory: Path, on_damage: OnDamage = strict) -> Iterator[Path]:
    """Seal what can be, oldest first; then let go of copies whose segment is gone. Waits for who is at it."""
    with _alone(directory):
        for path in directory.glob("*.partial"):
            if _HALF.fullmatch(path.name):  # who was killed over it will not come back to it
                path.unlink(missing_ok=True)
        for segment in unsealed(directory, on_damage):
            yield seal(segment, on_damage)
        for path in directory.glob("*.parquet"):
            if _COPY.fullmatch(path.name) and not path.with_suffix(".hj").exists():
                path.unlink(missing_ok=True)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with (directory / LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_copies(directory: Path, on_damage: OnDamage = strict) -> None:
    """Read every copy whole; where pages have checksums, by them."""
    for path in sorted(directory.glob("*.parquet")):
        if _COPY.fullmatch(path.name):
            try:
                _read(path)
            except FileNotFoundError:  # retention took it
                continue
            except (pa.ArrowException, OSError) as error:
                on_damage(unreadable(path, error))


def _read(path: Path) -> None:
    check_footer(path)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        rows = sum(batch.num_rows for batch in file.iter_batches())
        if rows != file.metadata.num_rows:
            raise pa.ArrowInvalid(f"{file.metadata.num_rows - rows} rows are missing")


def unreadable(path: Path, error: Exception) -> CorruptSegment:
    """What to report of a copy that is damaged; its segment need not be."""
    reason = str(error).partition("\n")[0].rstrip(".")
    told = f"this copy of a segment cannot be read ({reason}); remove it, it is made anew"
    return CorruptSegment(str(path), 0, told)


def _row_groups(segment: Segment, on_damage: OnDamage) -> Iterator[pa.RecordBatch]:
    """Whole blocks, gathered to about ROW_GROUP events."""
    gathered: list[tuple[int, int, Sequence[Event | Unknown]]] = []
    size = 0
    node, role = segment.header.node, segment.header.role
    for block in blocks(segment, on_damage):
        gathered.append((block.first, block.skew, events_of(segment, block, on_damage)))
        size += block.count
        if size >= ROW_GROUP:
            yield batch(node, gathered, role=role)
            gathered, size = [], 0
    if gathered:
        yield batch(node, gathered, role=role)


def main(directory: str) -> None:
    """What a node's child does: seal everything that can be, at the lowest priority."""
    os.nice(NICENESS)
    for path in seal_all(Path(directory), lambda damage: _log.warning("%s", damage)):
        _log.info("sealed %s", path)


if __name__ == "__main__":
    main(sys.argv[1])
