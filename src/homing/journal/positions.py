"""How far a reader has come in each journal, and the block ranges between two such positions.

An offset of the stream is a plain dict, as Spark keeps it in its checkpoint:

    {"broker-1": {"segment": 1, "at": 9204, "next": 7, "salt": 4711}, "matcher-1": {"segment": 500, …}}

by journal (its path below the root): everything before byte `at` of the segment that begins
with number `segment` has been read, and event `next` comes next; `salt` is that segment's own (offsets of
earlier versions do not say these two).
Positions lie between blocks, and bytes of a segment never change once written, so two offsets always
enclose the same events.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import SEEK_END, FileIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

from homing.errors import CorruptSegment, JournalError
from homing.journal.body import decode
from homing.journal.log import first_of, segment_name, segment_names
from homing.journal.reader import (
    OnDamage,
    Segment,
    begins_run,
    blocks,
    journals,
    missing,
    segments,
    strict,
)
from homing.journal.segment import BLOCKS_AT, read_header, walk

Position: TypeAlias = dict[str, int]
Offset: TypeAlias = dict[str, Position]

BEGINNING: Position = {"segment": 0, "at": BLOCKS_AT}
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


class _Piece(NamedTuple):
    """A segment's blocks from byte `at` on, up to `end` or its own."""

    segment: Segment
    at: int
    end: int | None


class _Block(NamedTuple):
    start: int
    end: int
    first: int
    events: int


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
        position = offset.get(name) or BEGINNING
        _check_same(name, directory, offset)
        target = None if until is None else until[name]
        pieces = _pieces(directory, position, target, on_damage)
        if left is None:
            position = _end(pieces, on_damage) or position
        elif left > 0:
            position, left = _step(pieces, position, left, on_damage)
        if position["segment"]:
            reached[name] = position
    return {**offset, **reached}


def _end(pieces: list[_Piece], on_damage: OnDamage) -> Position | None:
    """Behind the last block of all: only the last segments are looked at."""
    for piece in reversed(pieces):
        if found := _blocks(piece, on_damage):
            return _behind(piece, found[-1])
    return None


def _step(
    pieces: list[_Piece], position: Position, left: int, on_damage: OnDamage
) -> tuple[Position, int]:
    """Behind the block with which so many events are reached, and what is left of them."""
    for piece in pieces:
        for block in _blocks(piece, on_damage):
            if left <= 0:
                return position, left
            position = _behind(piece, block)
            left -= block.events
    return position, left


def between(root: Path, start: Offset, end: Offset, on_damage: OnDamage = strict) -> list[Range]:
    """The ranges to read, gathered to about RANGE_BYTES each, half as much again at most."""
    found: list[Range] = []
    for name, until in end.items():
        position = start.get(name) or BEGINNING
        if position == until:
            continue  # its node may be gone, and its journal with it
        if not (root / name).is_dir():
            on_damage(
                CorruptSegment(str(root / name), position["at"], "removed before it was read")
            )
            continue
        for piece in _pieces(root / name, position, until, on_damage):
            found += _gathered(name, piece, on_damage)
    found = _without_tails(found)
    _tell_missing(found, start, on_damage)
    return found


def _tell_missing(found: list[Range], start: Offset, on_damage: OnDamage) -> None:
    """Of events between ranges: their segment is gone, or their block's header is broken."""
    following = {name: position["next"] for name, position in start.items() if "next" in position}
    for each in found:
        due = following.get(each.journal, each.first)
        if each.first > due and not _begins_run(each):
            on_damage(missing(Path(each.path), each.start, due, each.first))
        following[each.journal] = each.last + 1


def _begins_run(found: Range) -> bool:
    path = Path(found.path)
    for segment in segments(path.parent, _unheard, int(path.stem)):
        if segment.path == path:
            block = next(blocks(segment, _unheard, found.start, found.end), None)
            return block is not None and begins_run(decode(block.body))
    return False


def _unheard(damage: CorruptSegment) -> None:
    """Whoever reads the range reports it."""


def _check_same(name: str, directory: Path, offset: Offset) -> None:
    """JournalError if a journal is not the one that was read under this name, or is one that was under another."""
    position = offset.get(name)
    if position is not None:
        names = segment_names([path.name for path in directory.iterdir()])
        ended = bool(names) and first_of(names[-1]) < position["segment"]
        if ended or _holds(directory, position) is False:
            raise JournalError(
                f"{directory} was made anew: its segment {position['segment']} was another one when it was read",
                hint="its numbers begin again: read it into other tables, with another checkpoint",
            )
        return
    for other, known in offset.items():
        if _holds(directory, known):
            raise JournalError(
                f"{directory} was read before, as {other}",
                hint="name the directory that was named then, or all of it is read twice",
            )


def _holds(directory: Path, position: Position) -> bool | None:
    """Whether a journal has the very segment of a position; None if there is none of its number, or nobody knows."""
    try:
        with (directory / segment_name(position["segment"])).open("rb") as file:
            salt = read_header(file.read(BLOCKS_AT)).salt
    except (OSError, ValueError):
        return None
    return salt == position["salt"] if "salt" in position else None


def _gathered(name: str, piece: _Piece, on_damage: OnDamage) -> Iterator[Range]:
    """A segment's blocks by RANGE_BYTES; damage between two goes with them, for the reader to report."""
    path = str(piece.segment.path)
    run: list[_Block] = []
    for block in _blocks(piece, on_damage):
        if run and block.end - run[0].start > RANGE_BYTES:
            yield _range(name, path, run)
            run = []
        run.append(block)
    if run:
        yield _range(name, path, run)


def _range(name: str, path: str, run: list[_Block]) -> Range:
    last = run[-1]
    return Range(name, path, run[0].start, last.end, run[0].first, last.first + last.events - 1)


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


def _behind(piece: _Piece, block: _Block) -> Position:
    following = block.first + block.events
    header = piece.segment.header
    return {"segment": header.first, "at": block.end, "next": following, "salt": header.salt}


def _pieces(
    directory: Path, position: Position, until: Position | None, on_damage: OnDamage
) -> list[_Piece]:
    """The segments from a position to another or to the end."""
    found: list[_Piece] = []
    for segment in segments(directory, on_damage, position["segment"]):
        first = segment.header.first
        if first < position["segment"] or (until is not None and first > until["segment"]):
            continue
        at = position["at"] if first == position["segment"] else BLOCKS_AT
        end = until["at"] if until is not None and first == until["segment"] else None
        found.append(_Piece(segment, at, end))
    return found


def _blocks(piece: _Piece, on_damage: OnDamage) -> list[_Block]:
    """The blocks of a segment's piece, by their headers."""
    segment, at, end = piece
    try:
        with segment.path.open("rb", buffering=0) as file:
            # Headers lie far apart: two calls for each take less than the page faults of a mapped file.
            size, take = file.seek(0, SEEK_END), partial(_take, file)
            found = [_Block(*each) for each in walk(take, size, segment.header.salt, at)]
    except FileNotFoundError:
        on_damage(CorruptSegment(str(segment.path), at, "removed before it was read"))
        return []
    return [
        block
        for block in found
        if (end is None or block.end <= end)
        and (segment.until is None or block.first < segment.until)
    ]


def _take(file: FileIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)
