"""Clients that are pushed to together: a list that comes again costs one send, not one a client.

What many clients asked for alike comes with the same list of them time after time. From its second
time on such a list is kept as a *cohort*: the links of all whose sessions take a publication
without being asked. It stands until one of these sessions must be asked again (Session._unfit), and
for as many bytes as may go out unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from homing.ids import ID_BYTES
from homing.ports import Link
from homing.push.places import each_id
from homing.push.sessions import Session, Store

FEWEST: Final = 32 * ID_BYTES
"""Shorter lists are not worth remembering."""
ROOM: Final = 16 << 10
"""Bytes sent to a cohort before its links are asked again whether they take them: little, as a
client may be in many cohorts."""
MAX_COHORTS: Final = 256
"""Lists remembered: what is popular at one time."""
MAX_BYTES: Final = 4 << 20
"""Of these lists; the cohorts take about as much again."""


class Sender(Protocol):
    """Something that sends to several links at once."""

    def send(self, message: bytes) -> None: ...


Together = Callable[[Sequence[Link]], Sender]


class Each:
    """A Sender that knows no better way."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links

    def send(self, message: bytes) -> None:
        """To one after the other."""
        for link in self._links:
            link.send(message)


class Cohort:
    """Those of a list that are sent to unasked, and the others."""

    __slots__ = ("_sender", "_store", "_version", "others", "room")

    def __init__(
        self, clients: bytes, sessions: Mapping[bytes, Session], store: Store, together: Together
    ) -> None:
        self.others: list[bytes] = []
        self.room = ROOM
        self._store = store
        self._version = store.changes
        links: list[Link] = []
        for (client,) in each_id(clients):
            session = sessions.get(client)
            if session is not None and session.link is not None and session.is_ready():
                session.in_cohort = True
                links.append(session.link)
            else:
                self.others.append(client)
        self._sender = together(links)

    @property
    def stands(self) -> bool:
        """Whether it may be used as it is."""
        return self.room > 0 and self._version == self._store.changes

    def send(self, image: bytes) -> list[bytes]:
        """To all who take it unasked; the others, in their order."""
        self.room -= len(image)
        self._sender.send(image)
        return self.others


class Cohorts:
    """Cohorts by their lists, the latest used last."""

    def __init__(self, store: Store, together: Together) -> None:
        self._store = store
        self._together = together
        self._known: dict[bytes, Cohort | None] = {}  # None: seen once
        self._held = 0

    def __len__(self) -> int:
        return len(self._known)

    def find(self, clients: bytes, sessions: Mapping[bytes, Session]) -> Cohort | None:
        """The cohort of a list that has come before."""
        if clients not in self._known:
            self._remember(clients)
            return None
        cohort = self._known.pop(clients)
        if cohort is None or not cohort.stands:
            cohort = Cohort(clients, sessions, self._store, self._together)
        self._known[clients] = cohort
        return cohort

    def _remember(self, clients: bytes) -> None:
        self._known[clients] = None
        self._held += len(clients)
        while len(self._known) > MAX_COHORTS or self._held > MAX_BYTES:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._held -= len(oldest)
