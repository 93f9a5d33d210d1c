"""A node's journal in simulation: records on the simulated disk, one sync for many.

Each record is length, checksum and body; recovery takes the records up to the first that is
cut or damaged, which is what a torn last write leaves.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from homing.errors import DiskFull
from homing.journal.body import decode, encode, expand
from homing.journal.events import PROMISES, Event, RequestRun

if TYPE_CHECKING:
    from homing.testing.host import SimHost

FILE = "journal"
_HEADER = Struct(">IIB")  # bytes of the body, its CRC-32, what it is
_EVENT, _OTHER = 0, 1


class SimJournal:
    """Appends events, syncs in groups, tells the role how far it is safe."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._file = host.disk.open(FILE)
        host.disk.sync()
        self.recovered, end = recover(self._file.read())
        self._file.truncate(end)
        self._file.sync()
        self._last = len(self.recovered)
        self._syncing = False

    def append(self, event: object) -> int:
        """Write one event; its number comes back in `journaled`.

        On a full disk, work taken on is refused and what merely tells is left out (number 0),
        as the real journal does.
        """
        events: list[object] = [event]
        if isinstance(event, RequestRun):
            event.first = self._last + 1
            events = [*expand(event)]
        try:
            self._file.write(b"".join([record(each) for each in events]))
        except DiskFull:
            if isinstance(event, Event) and type(event) not in PROMISES:
                return 0
            raise
        for each in events:
            self._last += 1
            self._host.trace("journal", f"#{self._last} {type(each).__name__}")
        if not self._syncing:
            self._syncing = True
            self._host.sim.push(self._host.now, self._host, self._sync)
        return self._last

    def _sync(self, *_: Any) -> None:
        """Begin a sync of what is there now; it ends after the disk's delay."""
        host = self._host
        delay = host.sim.conditions.sync * (1 + host.random.random()) + host.node.sync_delay
        host.sim.push(host.now + delay, host, self._synced, self._file.size, self._last)

    def _synced(self, size: int, number: int) -> None:
        self._file.sync(size)
        self._syncing = number < self._last
        if self._syncing:
            self._sync()
        self._host.trace("journaled", f"#{number}")
        self._host.role.journaled(number, self._host.now)


def record(event: object) -> bytes:
    """One event as it lies on the disk; anything msgspec can pack is an event here."""
    if isinstance(event, Event):
        kind, body = _EVENT, encode([event])
    else:
        kind, body = _OTHER, msgspec.msgpack.encode(event)
    return _HEADER.pack(len(body), zlib.crc32(body), kind) + body


def recover(data: bytes) -> tuple[list[object], int]:
    """The events of all whole records from the start, and where they end."""
    events: list[object] = []
    at = 0
    while at + _HEADER.size <= len(data):
        size, checksum, kind = _HEADER.unpack_from(data, at)
        body = data[at + _HEADER.size : at + _HEADER.size + size]
        if len(body) < size or zlib.crc32(body) != checksum or size == 0:
            break
        events.append(decode(body)[0] if kind == _EVENT else msgspec.msgpack.decode(body))
        at += _HEADER.size + size
    return events, at
