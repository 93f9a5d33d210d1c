"""Clients that are pushed to together: a list that comes again costs one send, not one a client.

What many clients asked for alike comes with the same list of them time after time. From its second
time on such a list is kept as a *cohort*: the links of all whose sessions take a publication
without being asked. It stands until one of these sessions must be asked again (Session._unfit), and
for as many bytes as may go out unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from homing.ports import Link
from homing.push.places import each_id
from homing.push.popular import SHORT, Popular
from homing.push.sessions import Session, Store

ROOM: Final = 16 << 10
"""Bytes sent to a cohort before its links are asked again whether they take them: little, as a
client may be in many cohorts."""


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

    __slots__ = ("_sender", "others", "room")

    def __init__(
        self, clients: bytes, sessions: Mapping[bytes, Session], together: Together
    ) -> None:
        self.others: list[bytes] = []
        self.room = ROOM
        links: list[Link] = []
        for (client,) in each_id(clients):
            session = sessions.get(client)
            if session is not None and session.link is not None and session.is_ready():
                session.in_cohort = True
                links.append(session.link)
            else:
                self.others.append(client)
        self._sender = together(links)

    def send(self, image: bytes) -> list[bytes]:
        """To all who take it unasked; the others, in their order."""
        self.room -= len(image)
        self._sender.send(image)
        return self.others


class Cohorts:
    """Cohorts by their lists."""

    def __init__(self, store: Store, together: Together) -> None:
        self._known = store.cohorts
        self._together = together
        self._seen: Popular[bool] = Popular()  # once: most lists never come again

    def find(self, clients: bytes, sessions: Mapping[bytes, Session]) -> Cohort | None:
        """The cohort of a list that has come before."""
        if len(clients) <= SHORT:
            return None
        cohort = self._known.get(clients)
        if cohort is not None and cohort.room > 0:
            return cohort
        if cohort is None and not self._seen.get(clients):
            self._seen.keep(clients, True)
            return None
        return self._known.keep(clients, Cohort(clients, sessions, self._together))
