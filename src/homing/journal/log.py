"""Segments in a directory, appended to by one thread: recovery, rotation, retention.

Numbers count the node's events from 1 and never repeat. A run always begins a new segment,
so a segment is written by one process and one monotonic clock, and what an earlier run left
is only ever cut, never appended to.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from homing.errors import DiskFull, JournalError
from homing.journal.body import encode, width
from homing.journal.disk import Disk, File
from homing.journal.events import Event
from homing.journal.segment import (
    BLOCK_BYTES,
    BLOCKS_AT,
    Block,
    Damage,
    Header,
    read_header,
    scan,
    write_block,
    write_header,
)

_log = logging.getLogger(__name__)

SUFFIX = ".hj"
_SEGMENT = re.compile(r"[0-9]{20}\.hj")  # nothing else: `1.hj`, somebody's copy, would sort last
# Half of what a block's eight bytes hold: whatever there is, a journal goes on behind it. No node comes that far.
_BEYOND = f"{1 << 62:020d}"
COPY_SUFFIX = ".parquet"  # the same in columns (homing.journal.sealing): it goes with its segment
# Of a request in a run, which a peer answered: three events in 30 bytes of times, sizes and parties. [kind, at] alone
# has 11. What is cut off may have been read by someone, so its numbers are not given out again: the next one is beyond
# any that can have been in there.
_LEAST_EVENT_BYTES = 10
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Limits(msgspec.Struct, frozen=True):
    """When segments are sealed and when they go; config.Journal gives the reasons."""

    segment_bytes: int = 64 << 20
    segment_age: float = 60.0
    retain_bytes: int = 10 << 30
    retain_age: float = 7 * 86400.0


DEFAULT_LIMITS = Limits()


class Recovery(msgspec.Struct):
    """What opening a journal found: damage is told, never passed over."""

    number: int = 0  # the last event on disk
    segments: int = 0
    torn: tuple[str, int, str] | None = None  # segment, bytes cut off its end, why
    damage: list[tuple[str, Damage]] = msgspec.field(default_factory=list)


def segment_name(first: int) -> str:
    """The file of the segment that begins with this number; names sort as numbers do."""
    return f"{first:020d}{SUFFIX}"


def first_of(name: str) -> int:
    """The number a segment's name says it begins with."""
    return int(name.removesuffix(SUFFIX))


def segment_names(names: Sequence[str]) -> list[str]:
    """Those of a directory's files that are segments, oldest first."""
    return sorted(name for name in names if name < _BEYOND and _SEGMENT.fullmatch(name))


def recover(disk: Disk) -> Recovery:
    """Cut the last segment's torn tail and find the number to go on from."""
    there = disk.names()
    names = segment_names(there)
    for name in there:
        if name >= _BEYOND and _SEGMENT.fullmatch(name):
            _log.warning("%s is no segment of a journal: none comes to that number", name)
    found = Recovery(segments=len(names))
    if not names:
        return found
    name = names[-1]
    data = disk.open(name).read()
    found.number = first_of(name) - 1
    try:
        salt = read_header(data).salt
    except ValueError as error:
        _recover_headless(disk, name, len(data), str(error), found)
        return found
    pieces = list(scan(data, salt))
    if pieces and isinstance(tail := pieces[-1], Damage):
        disk.open(name).truncate(tail.start)
        found.torn = (name, tail.end - tail.start, tail.reason)
        pieces.pop()
    for piece in pieces:
        if isinstance(piece, Block):
            found.number = piece.first + piece.count - 1
        else:
            found.damage.append((name, piece))
    if found.torn is not None:
        found.number += found.torn[1] // _LEAST_EVENT_BYTES
    return found


def _recover_headless(disk: Disk, name: str, size: int, reason: str, found: Recovery) -> None:
    """A last segment without a header: never finished, or (reported) damaged."""
    if size <= BLOCKS_AT:
        disk.remove(name)
        found.torn = (name, size, reason)
        return
    found.number += (size - BLOCKS_AT) // _LEAST_EVENT_BYTES
    found.damage.append((name, Damage(0, size, reason)))


class Log:
    """The writing end. Not thread-safe: everything happens in the caller's thread."""

    def __init__(
        self,
        disk: Disk,
        node: bytes,
        *,
        name: str = "",
        limits: Limits = DEFAULT_LIMITS,
        durable: bool = True,
        wall: Callable[[], float],
        salt: Callable[[], int],
    ) -> None:
        self.disk = disk
        self.limits = limits
        self.recovered = recover(disk)
        self.number = self.recovered.number
        self.hold: int | None = None  # retention spares this number and all after it
        self.holes = 0  # how often somebody removed what was written
        self.sealed: list[str] = []  # segments finished since the caller last looked
        self._node = node
        self.name = name
        self._durable = durable
        self._wall = wall
        self._make_salt = salt
        self._file: File | None = None
        self._file_name = ""
        self._salt = 0
        self._good = 0  # bytes of the open segment that are whole blocks
        self._opened = 0.0
        self._tells = True  # whether the disk says which name leads to the open segment
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, float] = {}  # when these began, if they say so
        self._measure()

    def append(self, events: Sequence[Event], skew: int) -> int:
        """Write a group as one or more blocks, as durable as configured; the last number.

        All or nothing: after OSError or DiskFull nothing of it is there and it may be tried
        again. Where the disk failed rather than filled up, that will be in another segment.
        """
        blocks: list[bytes] = []
        try:
            file = self._segment()
            self._cut_into_blocks(events, self.number + 1, skew, blocks)
            data = b"".join(blocks)
            file.write(data)
            if self._durable:
                file.sync()
            missing = self._tells and not file.there
        except (OSError, JournalError) as error:
            self._undo(error)
            raise
        if missing:
            self._miss()
            return self.append(events, skew)
        self._good += len(data)
        self._sizes[self._file_name] = self._good
        self.number += width(events)
        return self.number

    def _cut_into_blocks(
        self, events: Sequence[Event], first: int, skew: int, blocks: list[bytes]
    ) -> None:
        body = encode(events)
        if len(body) > BLOCK_BYTES and len(events) > 1:
            half = len(events) // 2
            self._cut_into_blocks(events[:half], first, skew, blocks)
            self._cut_into_blocks(events[half:], first + width(events[:half]), skew, blocks)
            return
        blocks.append(write_block(first, width(events), skew, body, self._salt))

    def _segment(self) -> File:
        if self._file is not None and self._good >= self.limits.segment_bytes:
            self.rotate()
        if self._file is None:
            self._begin()
        assert self._file is not None
        return self._file

    def _begin(self) -> None:
        """Open a new segment. One of the same name can only be an empty one, left by a crash."""
        if not self._file_name:
            self.retain()  # runs that are killed before their first segment is full would never get to it
        name = segment_name(self.number + 1)
        now = self._wall()
        self._salt = self._make_salt()
        header = Header(self._node, self.number + 1, int(now * 1e6), self._salt, self.name)
        self._good = 0
        file = self.disk.open(name)
        self._file, self._file_name, self._opened = file, name, now
        file.truncate(0)
        file.write(write_header(header))
        if self._durable:
            file.sync()
            self.disk.sync()
        self._good = self._sizes[name] = file.size
        self._starts[name] = now
        self._tells = file.there  # not where a file has another number by its name than open

    def _miss(self) -> None:
        """The open segment was removed, or another file has its name: what we write there nobody finds."""
        first, last = first_of(self._file_name), self.number
        _log.error(
            "somebody removed or replaced %s: of the journal of %s, events %d to %d are gone",
            self._file_name,
            self.name,
            first,
            last,
        )
        self.holes += 1
        self._forget(self._file_name)
        self._file = None

    def _undo(self, error: OSError | JournalError) -> None:
        """Take back what a failed write left.

        After a failed fsync nobody knows what the disk holds, so only a full one is trusted to
        go on in the same file.
        """
        if self._file is None:
            return
        full = isinstance(error, DiskFull) or getattr(error, "errno", None) in _NO_ROOM
        try:
            self._file.truncate(self._good)
        except OSError:
            full = False
        if not full or self._good < BLOCKS_AT:
            self._leave()

    def idle(self) -> None:
        """Seal a segment that has been open for long, so that readers of sealed ones see it."""
        age = abs(self._wall() - self._opened)  # a clock that was set back is no reason to wait
        if self._file is not None and self._good > BLOCKS_AT and age >= self.limits.segment_age:
            self.rotate()

    def rotate(self) -> None:
        """Seal the open segment and let go of what retention no longer wants."""
        self._leave()
        self.retain()

    def _leave(self) -> None:
        if self._file is not None and self._good > BLOCKS_AT:
            self.sealed.append(self._file_name)
        self._file = None

    def retain(self) -> list[str]:
        """Remove the oldest sealed segments while they are too many bytes or too old."""
        self._forget_removed()
        names = list(self._sizes)
        total = sum(self._sizes.values())
        oldest = self._wall() - self.limits.retain_age
        gone: list[str] = []
        for place, name in enumerate(names[:-1]):
            if self.hold is not None and first_of(names[place + 1]) > self.hold:
                break
            if total <= self.limits.retain_bytes and self._began(names[place + 1 :]) >= oldest:
                break
            if not self._remove(name):
                break
            total -= self._sizes[name]
            self._forget(name)
            gone.append(name)
        return gone

    def _forget_removed(self) -> None:
        """Somebody who needed room may have removed some: what is not there need not go; what was held is a hole."""
        with suppress(OSError):
            there = set(self.disk.names())
            names = list(self._sizes)
            gone = [name for name in names if name not in there]
            if gone and self.hold is not None:
                behind = names[names.index(gone[-1]) + 1 :]
                self.holes += not behind or first_of(behind[0]) > self.hold
            for name in gone:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self._sizes.pop(name, None)
        self._starts.pop(name, None)

    @property
    def crowded(self) -> bool:
        """Whether not even the oldest may go, and half of the way to a limit is behind us; any thread may ask."""
        sizes = dict(self._sizes)
        names = list(sizes)
        if self.hold is None or len(names) < 2 or first_of(names[1]) <= self.hold:
            return False
        half = self._wall() - self.limits.retain_age / 2
        return 2 * sum(sizes.values()) > self.limits.retain_bytes or self._began(names[1:]) < half

    def _remove(self, name: str) -> bool:
        """Housekeeping never stops the journal: what cannot be removed is said and stays."""
        try:
            for each in (name, name.removesuffix(SUFFIX) + COPY_SUFFIX):
                with suppress(FileNotFoundError):
                    self.disk.remove(each)
        except OSError as error:
            _log.warning("retention cannot remove %s: %s", name, error)
            return False
        return True

    def _began(self, names: Sequence[str]) -> float:
        """When the first of these segments began, which is when the one before it ended."""
        starts = map(self._starts.get, names)
        return next((start for start in starts if start is not None), self._wall())

    def _measure(self) -> None:
        """Look at each segment once: who asks later, from whatever thread, opens no file."""
        for name in segment_names(self.disk.names()):
            file = self.disk.open(name)
            self._sizes[name] = file.size
            with suppress(ValueError, OSError):
                self._starts[name] = read_header(file.read(0, BLOCKS_AT)).created / 1e6
