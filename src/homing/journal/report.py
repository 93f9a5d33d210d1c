"""What is in a journal, counted: for `homing journal ls`, `verify` and `stats`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from homing.journal.reader import OnDamage, Record, Segment, blocks, records_of, segments, strict


class Listed(msgspec.Struct):
    """One segment; `last` is `first - 1` where it holds no events."""

    directory: Path
    path: Path
    first: int
    last: int
    created: int  # µs, wall clock
    size: int
    state: str  # open, finished, or sealed (it has its Parquet copy)


class Stats(msgspec.Struct):
    """One journal; times in µs of the wall clock."""

    node: str = ""
    segments: int = 0
    events: int = 0
    size: int = 0
    first: int = 0
    last: int = 0
    kinds: dict[str, int] = msgspec.field(default_factory=dict)


def listing(directory: Path, on_damage: OnDamage = strict) -> list[Listed]:
    """Every segment of a journal, oldest first."""
    return [_listed(directory, each, on_damage) for each in segments(directory, on_damage)]


def _listed(directory: Path, segment: Segment, on_damage: OnDamage) -> Listed:
    last = segment.header.first - 1
    for block in blocks(segment, on_damage):
        last = block.first + block.count - 1
    state = "open" if not segment.sealed else "sealed" if segment.parquet.exists() else "finished"
    header, size = segment.header, segment.path.stat().st_size
    return Listed(directory, segment.path, header.first, last, header.created, size, state)


def stats(directory: Path, on_damage: OnDamage = strict) -> Stats:
    """Read a whole journal and count."""
    found = Stats()
    for segment in segments(directory, on_damage):
        found.node = segment.header.node.hex()
        found.segments += 1
        found.size += segment.path.stat().st_size
        for block in blocks(segment, on_damage):
            for record in records_of(segment, block, on_damage):
                _count(found, record)
    return found


def _count(found: Stats, record: Record) -> None:
    kind = type(record.event).__name__
    found.kinds[kind] = found.kinds.get(kind, 0) + 1
    found.events += 1
    found.first = min(found.first or record.wall, record.wall)
    found.last = max(found.last, record.wall)
