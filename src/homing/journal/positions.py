"""How far a reader has come in each journal, and the block ranges between two such positions.

An offset of the stream is a plain dict, as Spark keeps it in its checkpoint:

    {"broker-1": {"segment": 1, "at": 8192}, "matcher-1": {"segment": 500, "at": 91204}}

by journal (its path below the root): everything before byte `at` of the segment that begins
with number `segment` has been read. Positions lie between blocks, and bytes of a segment
never change once written, so two offsets always enclose the same events.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from homing.errors import CorruptSegment
from homing.journal.reader import OnDamage, Segment, journals, segments, strict
from homing.journal.segment import BLOCKS_AT, walk

Position: TypeAlias = dict[str, int]
Offset: TypeAlias = dict[str, Position]

# What one task reads: large enough to pay for a Python worker, small enough that a 64 MiB
# segment keeps several cores busy.
RANGE_BYTES = 8 << 20


class Range(NamedTuple):
    """Bytes `start` … `end` of one segment, whole blocks with events `first` … `last`."""

    journal: str
    path: str
    start: int
    end: int
    first: int
    last: int


def advance(
    root: Path,
    offset: Offset,
    most: int | None = None,
    on_damage: OnDamage = strict,
    until: Offset | None = None,
) -> Offset:
    """As far as the journals (or `until`) go, or until about `most` events lie in between.

    At least one block is taken where there is one, or a large block would never be.
    """
    reached: Offset = {}
    left = most
    for directory in journals(root):
        name = str(directory.relative_to(root))
        if until is not None and name not in until:
            continue
        position = offset.get(name) or {"segment": 0, "at": BLOCKS_AT}
        target = None if until is None else until[name]
        for each in _ranges(directory, name, position, target, on_damage):
            if left is not None and left <= 0:
                break
            position = {"segment": _first(each), "at": each.end}
            if left is not None:
                left -= each.last - each.first + 1
        if position["segment"]:
            reached[name] = position
    return {**offset, **reached}


def between(root: Path, start: Offset, end: Offset, on_damage: OnDamage = strict) -> list[Range]:
    """The ranges to read, gathered to about RANGE_BYTES each, half as much again at most."""
    found: list[Range] = []
    for name, until in end.items():
        position = start.get(name) or {"segment": 0, "at": BLOCKS_AT}
        for each in _ranges(root / name, name, position, until, on_damage):
            if found and _joins(found[-1], each):
                found[-1] = found[-1]._replace(end=each.end, last=each.last)
            else:
                found.append(each)
    return _without_tails(found)


def _without_tails(found: list[Range]) -> list[Range]:
    """A range that is small for a task of its own goes with the one before it."""
    gathered: list[Range] = []
    for each in found:
        small = each.end - each.start <= RANGE_BYTES // 2
        if gathered and small and gathered[-1].path == each.path:
            gathered[-1] = gathered[-1]._replace(end=each.end, last=each.last)
        else:
            gathered.append(each)
    return gathered


def _joins(one: Range, other: Range) -> bool:
    """Damage between two blocks goes with them, for the reader to report."""
    return one.path == other.path and other.end - one.start <= RANGE_BYTES


def _first(each: Range) -> int:
    return int(Path(each.path).stem)


def _ranges(
    directory: Path,
    name: str,
    position: Position,
    until: Position | None,
    on_damage: OnDamage,
) -> Iterator[Range]:
    """One range a block, from a position to another or to the end."""
    for segment in segments(directory, on_damage, position["segment"]):
        first = segment.header.first
        if first < position["segment"] or (until is not None and first > until["segment"]):
            continue
        at = position["at"] if first == position["segment"] else BLOCKS_AT
        end = until["at"] if until is not None and first == until["segment"] else None
        yield from _blocks(segment, name, at, end, on_damage)


def _blocks(
    segment: Segment, name: str, at: int, end: int | None, on_damage: OnDamage
) -> Iterator[Range]:
    try:
        with (
            segment.path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found = list(walk(data, segment.header.salt, at))
    except FileNotFoundError:
        on_damage(CorruptSegment(str(segment.path), at, "removed before it was read"))
        return
    for start, stop, first, count in found:
        if end is not None and stop > end:
            return
        if segment.until is None or first < segment.until:
            yield Range(name, str(segment.path), start, stop, first, first + count - 1)
