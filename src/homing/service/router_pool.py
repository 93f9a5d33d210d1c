"""The broker's side of its router processes: tickets out, decisions back, nothing lost.

A link's messages go to one router, so that they are decided in the order they came. A ticket is kept
until its decision is there; when a router is lost its tickets and links go to another one, in
order, or wait until there is one. One that decides nothing for as long as a silent worker may be
silent counts as lost too. A decision that comes twice, or late, finds no ticket; a ticket that nobody decides
is given back when its time is up.

A router counts as there once it has answered a HELLO: only then is its PUB known to reach our SUB.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from homing.errors import RemoteProtocolError
from homing.ports import Link, Port
from homing.service.decisions import HELLO, Decision, read_decision, write_ticket
from homing.wire.frames import frame

MAX_WAITING: Final = 100_000
"""Messages kept while no router is there: seconds of traffic, until one has started again."""
HELLO_EVERY: Final = 0.05

_Ticket = tuple[Link, bytes, bytes, float]  # link, side, message, when it came


class RouterLink:
    """One router process, as long as its `tasks` link stands."""

    __slots__ = ("first", "link", "ready", "since", "tickets")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.ready = False
        self.tickets: dict[int, _Ticket] = {}
        self.first = 0  # the ticket that is next, and since when it has been
        self.since = 0.0

    def hangs(self, now: float, patience: float) -> bool:
        """Whether it has sat over the same message for too long."""
        first = next(iter(self.tickets), 0)
        if first != self.first:
            self.first, self.since = first, now
        return bool(first) and now - self.since > patience


class RouterPool:
    """All routers of one broker."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._routers: dict[bytes, RouterLink] = {}  # by routing id, which its decisions begin with
        self._outlets: dict[Link, bytes] = {}  # whose `decisions` link it is, once it has spoken
        self._homes: dict[Link, RouterLink] = {}
        self._waiting: deque[_Ticket] = deque()
        self._ticket = 0

    @property
    def ready(self) -> int:
        """Routers that have answered."""
        return sum(one.ready for one in self._routers.values())

    @property
    def open(self) -> int:
        """Messages that have no decision yet."""
        return len(self._waiting) + sum(len(one.tickets) for one in self._routers.values())

    # --- messages and decisions ---------------------------------------------------------------

    def put(self, link: Link, side: bytes, image: bytes, now: float) -> bool:
        """Have a message decided; False: too many wait already."""
        return self._place((link, side, image, now))

    def _place(self, ticket: _Ticket) -> bool:
        link = ticket[0]
        home = self._homes.get(link)
        if home is None:
            home = self._choose()
            if home is None:
                if len(self._waiting) >= MAX_WAITING:
                    return False
                self._waiting.append(ticket)
                return True
            self._homes[link] = home
        self._send(home, ticket)
        return True

    def _choose(self) -> RouterLink | None:
        ready = [one for one in self._routers.values() if one.ready]
        return min(ready, key=lambda one: len(one.tickets)) if ready and not self._waiting else None

    def _send(self, router: RouterLink, ticket: _Ticket) -> None:
        self._ticket += 1
        router.tickets[self._ticket] = ticket
        link, side, image, _ = ticket
        router.link.send(write_ticket(self._ticket, side, link.user, image))

    def decided(self, link: Link, image: bytes) -> tuple[Link, bytes, Decision] | None:
        """A decision came: whose message it was about, the message, and what to do."""
        try:
            name, number, decision = read_decision(image)
        except RemoteProtocolError:
            return None
        router = self._routers.get(name)
        if router is None:
            return None
        if decision is None:
            self._outlets[link] = name
            self._is_there(router)
            return None
        found = router.tickets.pop(number, None)
        return None if found is None else (found[0], found[2], decision)

    def forget(self, link: Link) -> None:
        """A client or worker is gone."""
        self._homes.pop(link, None)

    # --- routers come and go ------------------------------------------------------------------

    def opened(self, link: Link, now: float) -> None:
        """A router's `tasks` link."""
        self._routers[link.peer] = RouterLink(link)
        self.greet(now)

    def greet(self, now: float) -> None:
        """Ask those that have not answered yet."""
        for router in self._routers.values():
            if not router.ready:
                router.link.send(write_ticket(0, HELLO, "", frame(b"", False)))
                self._port.later(now + HELLO_EVERY, "greet")

    def _is_there(self, router: RouterLink) -> None:
        if not router.ready:
            router.ready = True
            waiting, self._waiting = self._waiting, deque()
            for ticket in waiting:
                if ticket[0].state is not None:
                    self._place(ticket)

    def closed(self, link: Link) -> None:
        """Either of a router's links broke: what it has not decided goes elsewhere."""
        router = self._routers.pop(self._outlets.pop(link, link.peer), None)
        if router is None:
            return
        self._homes = {one: home for one, home in self._homes.items() if home is not router}
        if router.link is not link:
            router.link.close("its decisions cannot reach us")
        for ticket in router.tickets.values():
            one = ticket[0]
            if one.state is not None and not self._place(ticket):
                one.close("no router")

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float, patience: float, timeout: float) -> list[tuple[Link, bytes]]:
        """Leave routers that hang for `patience`; messages that found no decision within `timeout`."""
        for router in list(self._routers.values()):
            if router.hangs(now, patience):
                self.closed(router.link)
                router.link.close("it decides nothing")
        return self._overdue(now - timeout)

    def _overdue(self, before: float) -> list[tuple[Link, bytes]]:
        late: list[_Ticket] = []
        while self._waiting and self._waiting[0][3] < before:
            late.append(self._waiting.popleft())
        for router in self._routers.values():
            overdue = [number for number, one in router.tickets.items() if one[3] < before]
            late += [router.tickets.pop(number) for number in overdue]
        return [(link, image) for link, _, image, _ in late]
