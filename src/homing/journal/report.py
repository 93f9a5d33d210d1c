"""What is in a journal, counted: for `homing journal ls`, `verify` and `stats`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from homing.errors import CorruptSegment
from homing.journal.reader import (
    OnDamage,
    Record,
    Segment,
    begins_run,
    blocks,
    missing,
    records_of,
    segments,
    strict,
)
from homing.journal.segment import Block


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
    header, size = segment.header, _size(segment)
    return Listed(directory, segment.path, header.first, last, header.created, size, state)


def stats(directory: Path, on_damage: OnDamage = strict) -> Stats:
    """Read a whole journal and count; what is missing between its blocks is damage too."""
    found = Stats()
    numbers = _Numbers(on_damage)
    for segment in segments(directory, on_damage):
        found.node = segment.header.node.hex()
        found.segments += 1
        found.size += _size(segment)
        for block in blocks(segment, numbers.tell):
            records = records_of(segment, block, numbers.tell)
            numbers.follow(segment, block, records)
            for record in records:
                _count(found, record)
    return found


class _Numbers:
    """Follows blocks by their numbers, and tells of a gap of which no damage told."""

    def __init__(self, on_damage: OnDamage) -> None:
        self._on_damage = on_damage
        self._next: int | None = None
        self._told = False

    def tell(self, damage: CorruptSegment) -> None:
        self._told = True
        self._on_damage(damage)

    def follow(self, segment: Segment, block: Block, records: list[Record]) -> None:
        due, found = self._next, [record.event for record in records]
        if due is not None and block.first > due and not (self._told or begins_run(found)):
            self._on_damage(missing(segment.path, block.start, due, block.first))
        self._next = block.first + block.count
        self._told = False


def _size(segment: Segment) -> int:
    """Its bytes; none if retention took it meanwhile."""
    try:
        return segment.path.stat().st_size
    except FileNotFoundError:
        return 0


def _count(found: Stats, record: Record) -> None:
    kind = type(record.event).__name__
    found.kinds[kind] = found.kinds.get(kind, 0) + 1
    found.events += 1
    found.first = min(found.first or record.wall, record.wall)
    found.last = max(found.last, record.wall)
