"""What one node still owes one connector: parcels in order, kept until acknowledged.

A matcher and a dispatcher both keep one Outbox per connector. A parcel leaves at once over
the outbox's link; when the link is lost, or the next node refuses, everything that was not
acknowledged is sent again, in order, over the link that comes next. The receiver drops what it
has by message id and client, so order holds and nothing arrives twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from homing.ids import ID_BYTES
from homing.ports import Link
from homing.push.eras import Era

MAX_BYTES: Final = 64 << 20
"""Owed to one connector: minutes of a busy one's traffic while it restarts."""
MOVED: Final = b"m"
MAX_PARCELS: Final = 100_000
"""Small ones cost about 500 bytes each beside their content."""


class Parcel:
    """One publication for clients of one connector: what is acknowledged as a whole."""

    __slots__ = (
        "attributes",
        "clients",
        "era",
        "message_id",
        "moved",
        "payload",
        "size",
        "sources",
    )

    def __init__(
        self,
        message_id: bytes,
        payload: bytes,
        attributes: bytes,
        clients: bytes,
        source: Link | None = None,
        moved: int = 0,
        era: Era | None = None,
    ) -> None:
        self.message_id = message_id
        self.payload = payload
        self.attributes = attributes
        self.clients = clients  # bare ids
        self.moved = moved
        self.era = era  # when a matcher took it; a dispatcher need not know
        self.size = len(payload) + len(attributes) + len(clients)
        # Who is told of the ack: two matchers may send the same publication, after a failover.
        self.sources: list[Link] = [] if source is None else [source]


class Outbox:
    """The parcels owed to one connector, oldest first, and the link they go over."""

    __slots__ = ("_ends", "_last", "_parcels", "connector", "gone", "held", "link", "stalled")

    def __init__(self, connector: bytes) -> None:
        self.connector = connector
        self.link: Link | None = None
        self.stalled = False  # the next node refused: wait, then send all again
        self.gone = -1  # while stalled: the last era of which all was sent, by its place
        self.held = 0
        self._parcels: dict[bytes, Parcel] = {}
        self._last: Parcel | None = None  # ever
        self._ends: deque[Parcel] = deque()  # the last of each era but the newest

    def __len__(self) -> int:
        return len(self._parcels)

    def __iter__(self) -> Iterator[Parcel]:
        return iter(self._parcels.values())

    @property
    def full(self) -> bool:
        return self.held >= MAX_BYTES or len(self._parcels) >= MAX_PARCELS

    def find(self, message_id: bytes, clients: bytes, moved: int = 0) -> Parcel | None:
        """The same parcel, if it is owed already."""
        return self._parcels.get(_key(message_id, clients, moved))

    def owes(self, message_id: bytes) -> bool:
        """Whether any part of a publication is owed."""
        return any(parcel.message_id == message_id for parcel in self._parcels.values())

    @property
    def newest(self) -> Parcel | None:
        return next(reversed(self._parcels.values()), None)

    def has(self, parcel: Parcel) -> bool:
        """Whether this very one is owed."""
        return self.find(parcel.message_id, parcel.clients, parcel.moved) is parcel

    def add(self, parcel: Parcel) -> None:
        """Owe one more; the caller has looked at `full` and `find`."""
        last, self._last = self._last, parcel
        if last is not None and last.era is not parcel.era:
            self._forget_ends()
            self._ends.append(last)
        self._parcels[_key(parcel.message_id, parcel.clients, parcel.moved)] = parcel
        self.held += parcel.size

    def acked(self, message_id: bytes, clients: bytes, moved: int = 0) -> Parcel | None:
        """The connector has it: owed no more. None if it was not, or not for these clients, or in another move."""
        parcel = self.find(message_id, clients, moved)
        if (
            parcel is None and not moved
        ):  # a node that does not number its moves, nor name them in acks
            parcel, moved = self.find(message_id, clients, 1), 1
        if parcel is None or len(parcel.clients) != len(clients) or parcel.moved != moved:
            return None
        self.remove(parcel)
        return parcel

    @property
    def lowest(self) -> Era | None:
        """The oldest era of which something is owed."""
        self._forget_ends()
        oldest = self._ends[0] if self._ends else self._last
        return oldest.era if oldest is not None else None

    def _forget_ends(self) -> None:
        """Of eras of which nothing is owed any more."""
        while self._ends and not self.has(self._ends[0]):
            self._ends.popleft()

    def remove(self, parcel: Parcel) -> None:
        """Owe it no more."""
        del self._parcels[_key(parcel.message_id, parcel.clients, parcel.moved)]
        self.held -= parcel.size


def _key(message_id: bytes, clients: bytes, moved: int) -> bytes:
    # A client is in one parcel of a publication only, so the first one names the parcel; what
    # its former connector sends it may be another.
    key = message_id + clients[:ID_BYTES]
    return key + MOVED if moved else key


class Turnstile:
    """Keeps order across refusals.

    Once something was refused, all behind it is refused too, until it comes again, or until
    the sender says that it owes nothing older than what comes now.
    """

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[bytes, bytes] = {}

    def blocks(self, way: bytes, key: bytes) -> bool:
        """Whether `key` must be refused because another was on this way; its own return opens."""
        first = self._refused.get(way)
        if first is None:
            return False
        if first == key:
            del self._refused[way]
            return False
        return True

    def open(self, way: bytes) -> None:
        """The sender begins anew on this way."""
        self._refused.pop(way, None)

    def refuse(self, way: bytes, key: bytes) -> None:
        """Remember the first one refused on this way."""
        self._refused.setdefault(way, key)
