"""Reading journals: whole, from a number on, or following one that is being written.

Readers need no lock and disturb no writer. What is damaged is reported to `on_damage` and
passed over; the unfinished end of the segment that is being written is simply not there yet, but
for bytes that are all there and wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from homing.errors import CorruptSegment, JournalError
from homing.journal.body import decode
from homing.journal.events import Event, NodeStarted, Unknown
from homing.journal.log import segment_names
from homing.journal.segment import BLOCKS_AT, Block, Damage, Header, read_header, scan

OnDamage = Callable[[CorruptSegment], None]


class Record(msgspec.Struct, gc=False):
    """One event with its place in the journal and the wall clock's time, in µs."""

    number: int
    wall: int
    event: Event | Unknown


class Segment(msgspec.Struct):
    """A segment file; `sealed` if a newer one exists, so that nothing is appended any more."""

    path: Path
    header: Header
    sealed: bool
    until: int | None  # the next segment's first number: later ones in here do not count

    @property
    def parquet(self) -> Path:
        """Where its copy in columns is, once made (homing.journal.sealing)."""
        return self.path.with_suffix(".parquet")


def strict(damage: CorruptSegment) -> None:
    """An `on_damage` that stops at the first."""
    raise damage


def journals(path: Path) -> list[Path]:
    """The journal directories at or below a path, one per node."""
    if not path.is_dir():
        raise JournalError(f"{path} is not a directory", hint="a journal is a directory of *.hj")
    found = {Path(root) for root, _, names in os.walk(path) if segment_names(names)}
    return sorted(found)


def segments(directory: Path, on_damage: OnDamage = strict, start: int = 0) -> list[Segment]:
    """A journal's segments, oldest first; those without a header of theirs are reported and left out.

    Only those that may hold number `start` or a later one are opened: a week of a quiet node
    is ten thousand segments.
    """
    with os.scandir(directory) as there:
        names = segment_names([entry.name for entry in there if entry.is_file()])
    paths = [directory / name for name in names]
    found: list[Segment] = []
    for path, following in pairwise([*paths, None]):
        assert path is not None
        if following is not None and int(following.stem) <= start:
            continue
        try:
            header = _header(path, newest=following is None)
        except FileNotFoundError:  # retention was quicker than we
            continue
        except ValueError as error:
            on_damage(CorruptSegment(str(path), 0, str(error)))
            continue
        if header is None:
            continue
        until = None if following is None else int(following.stem)
        found.append(Segment(path, header, following is not None, until))
    return found


def _header(path: Path, *, newest: bool) -> Header | None:
    """ValueError if it is not whole or another segment's; None if it is being written."""
    with path.open("rb") as file:
        data = file.read(BLOCKS_AT + 1)
    try:
        header = read_header(data)
    except ValueError:
        if newest and len(data) <= BLOCKS_AT:
            return None
        raise
    if header.first != int(path.stem):
        raise ValueError(f"its header is that of segment {header.first}")
    return header


def blocks(
    segment: Segment,
    on_damage: OnDamage = strict,
    start: int = BLOCKS_AT,
    end: int | None = None,
) -> Iterator[Block]:
    """The whole blocks between two byte offsets; offsets in them count from the file's start."""
    try:
        data = _bytes(segment.path, start, end)
    except FileNotFoundError:
        on_damage(CorruptSegment(str(segment.path), start, "removed before it was read"))
        return
    for piece in scan(data, segment.header.salt, 0):
        if isinstance(piece, Damage):
            # The end of what is being written is not damage, it is not there yet.
            if segment.sealed or not piece.unfinished:
                on_damage(CorruptSegment(str(segment.path), start + piece.start, piece.reason))
        elif segment.until is None or piece.first < segment.until:
            yield msgspec.structs.replace(piece, start=start + piece.start, end=start + piece.end)


def _bytes(path: Path, start: int, end: int | None) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(-1 if end is None else end - start)


def events_of(
    segment: Segment, block: Block, on_damage: OnDamage = strict
) -> Sequence[Event | Unknown]:
    """A block's events; none, and a report, if they cannot be made out."""
    try:
        return decode(block.body)
    except ValueError as error:
        on_damage(CorruptSegment(str(segment.path), block.start, str(error)))
        return []


def records_of(segment: Segment, block: Block, on_damage: OnDamage = strict) -> list[Record]:
    """A block's events with their numbers and wall time."""
    return [
        Record(number, int(event.at * 1e6) + block.skew, event)
        for number, event in enumerate(events_of(segment, block, on_damage), block.first)
    ]


def missing(path: Path, at: int, first: int, following: int) -> CorruptSegment:
    """What to report where events should be and are not, not even damaged."""
    return CorruptSegment(str(path), at, f"events {first}–{following - 1} are missing before it")


def begins_run(found: Sequence[Event | Unknown]) -> bool:
    """Whether a process began with these: numbers of what it cut off its predecessor's end are left out."""
    return bool(found) and isinstance(found[0], NodeStarted)


def read(directory: Path, start: int = 1, on_damage: OnDamage = strict) -> Iterator[Record]:
    """Every event of one node's journal from number `start` on."""
    for segment in segments(directory, on_damage, start):
        for block in blocks(segment, on_damage):
            if block.first + block.count > start:
                found = records_of(segment, block, on_damage)
                yield from (record for record in found if record.number >= start)


class Tail:
    """Follows one journal: each `poll` gives the events that came since the one before."""

    def __init__(self, directory: Path, start: int = 1, on_damage: OnDamage = strict) -> None:
        self.number = start - 1  # the last event given
        self._directory = directory
        self._tell = on_damage
        self._segment = 0  # the first number of the segment we are in
        self._at = BLOCKS_AT
        self._told: set[tuple[str, int]] = set()  # damage; the end of a journal is looked at again

    def poll(self) -> list[Record]:
        """What is new; at most one segment's worth at a time, to keep memory small."""
        for segment in segments(self._directory, self._on_damage, self.number + 1):
            first = segment.header.first
            if first < self._segment:
                continue
            if first > self._segment:
                self._segment, self._at = first, BLOCKS_AT
            found = self._read(segment)
            if found:
                return found
        return []

    def _on_damage(self, damage: CorruptSegment) -> None:
        place = (damage.path, damage.offset)
        if place not in self._told:
            self._told.add(place)
            self._tell(damage)

    def _read(self, segment: Segment) -> list[Record]:
        found: list[Record] = []
        for block in blocks(segment, self._on_damage, self._at):
            self._at = block.end
            new = records_of(segment, block, self._on_damage)
            found += [record for record in new if record.number > self.number]
        if found:
            self.number = found[-1].number
        return found
