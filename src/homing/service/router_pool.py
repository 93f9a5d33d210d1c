"""The broker's side of its router processes: tickets out, decisions back, nothing lost.

A link's messages go to one router, so that they are decided in the order they came. A ticket is kept
until its decision is there; when a router is lost its tickets and links go to another one, in
order, or wait until there is one. One that decides nothing for too long counts as lost too, and is ended.
A decision that comes twice, or late, finds no ticket; a ticket that nobody decides is given back when
its time is up.

Which of its tickets a router was lost over nobody knows: each of them is a suspect, and handed to the next
one alone, once that has said that it lives: one that is dead already, which nobody has noticed, would be a death over
a message it never had. One that is lost over a suspect shows that it was this: it is given back, or it would take one router
after the other, and with them everybody's requests.

A router counts as there once it has answered a HELLO: only then is its PUB known to reach our SUB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from homing.errors import RemoteProtocolError
from homing.ports import Link, Port
from homing.service.decisions import HELLO, Decision, read_decision, write_ticket
from homing.wire.frames import frame

MAX_WAITING: Final = 100_000
"""Messages kept while no router is there: seconds of traffic, until one has started again."""
HELLO_EVERY: Final = 0.05
PATIENCE: Final = 1.0
"""Seconds that a router may sit over a message however short heartbeats are: to start another takes half of it."""
LOST_OVER: Final = 2
"""Routers that may be lost over a message: the first one may have died of anything."""
UNDECIDED: Final = b"timeout no router decided"
HOPELESS: Final = b"malformed the route died or hung over it"
"""What a route cannot stand is refused as what it raises an error over, and not worth another try."""


class Ticket:
    """A message that is to be decided."""

    __slots__ = ("came", "image", "link", "lost", "side", "told")

    def __init__(self, link: Link, side: bytes, image: bytes, came: float) -> None:
        self.link = link
        self.side = side
        self.image = image
        self.came = came
        self.lost = 0  # routers that had it when they were lost
        self.told = (
            False  # its sender has been told that nobody decided; a router may still sit over it
        )


class RouterLink:
    """One router process, as long as its `tasks` link stands."""

    __slots__ = ("first", "line", "link", "lives", "ready", "since", "tickets")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.ready = False
        self.lives = False  # it answered a question, and has had nothing since
        self.tickets: dict[int, Ticket] = {}  # that it was sent
        self.line: deque[Ticket] = deque()  # a suspect, and what comes behind it
        self.first = 0  # the ticket that is next, and since when it has been
        self.since = 0.0

    @property
    def load(self) -> int:
        """Messages it has to decide."""
        return len(self.tickets) + len(self.line)

    @property
    def next(self) -> Ticket | None:
        """What it may be sent now: a suspect is with it alone, after a question that it answered."""
        if not self.line:
            return None
        first, suspect = next(iter(self.tickets.values()), None), self.line[0].lost > 0
        if first is not None and (suspect or first.lost):
            return None
        lives, self.lives = self.lives, False
        return self.line.popleft() if lives or not suspect else _question(self.link)

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
        self._waiting: deque[Ticket] = deque()
        self._hopeless: list[Ticket] = []
        self._ticket = 0
        self.hung: Callable[[bytes, float], None] = _nobody_s
        """Told of a router that sits over one message, and for how long: what loops comes back by no other way."""

    @property
    def ready(self) -> int:
        """Routers that have answered."""
        return sum(one.ready for one in self._routers.values())

    @property
    def open(self) -> int:
        """Messages that have no decision yet."""
        return len(self._waiting) + sum(one.load for one in self._routers.values())

    # --- messages and decisions ---------------------------------------------------------------

    def put(self, link: Link, side: bytes, image: bytes, now: float) -> bool:
        """Have a message decided; False: too many wait already."""
        return self._place(Ticket(link, side, image, now))

    def _place(self, ticket: Ticket) -> bool:
        link = ticket.link
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
        return min(ready, key=lambda one: one.load) if ready and not self._waiting else None

    def _send(self, router: RouterLink, ticket: Ticket) -> None:
        router.line.append(ticket)
        self._go_on(router)

    def _go_on(self, router: RouterLink) -> None:
        while (following := router.next) is not None:
            self._ticket += 1
            router.tickets[self._ticket] = following
            user = following.link.user
            router.link.send(write_ticket(self._ticket, following.side, user, following.image))

    def decided(self, link: Link, image: bytes) -> tuple[Link, bytes, Decision] | None:
        """A decision came: whose message it was about, the message, and what to do."""
        try:
            name, number, decision = read_decision(image)
        except RemoteProtocolError:
            return None
        router = self._routers.get(name)
        if router is None:
            return None
        found = router.tickets.pop(number, None)
        if decision is None:
            self._outlets[link] = name
            self._is_there(router)
            router.lives = found is not None
        if router.line:
            self._go_on(router)
        if found is None or found.told or decision is None:
            return None
        return found.link, found.image, decision

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
                if ticket.link.state is not None:
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
            ticket.lost += 1
        if len(router.tickets) == 1 and ticket.lost >= LOST_OVER and not ticket.told:
            self._hopeless.append(ticket)
            ticket.told = True
        for ticket in (*router.tickets.values(), *router.line):
            one = ticket.link
            if one.state is not None and not ticket.told and not self._place(ticket):
                one.close("no router")

    # --- time ---------------------------------------------------------------------------------

    def tick(self, now: float, patience: float, timeout: float) -> list[tuple[Link, bytes, bytes]]:
        """End routers that hang for `patience`; messages that nobody decided: whose, and why not.

        `timeout`: how long a message may wait for its decision.
        """
        for name, router in list(self._routers.items()):
            if router.hangs(now, patience):
                self.closed(router.link)
                router.link.close("it decides nothing")
                self.hung(name, now - router.since)
        hopeless, self._hopeless = self._hopeless, []
        late = self._overdue(now - timeout)
        return [(one.link, one.image, HOPELESS) for one in hopeless] + [
            (one.link, one.image, UNDECIDED) for one in late
        ]

    def _overdue(self, before: float) -> list[Ticket]:
        late: list[Ticket] = []
        for line in (self._waiting, *(router.line for router in self._routers.values())):
            while line and line[0].came < before:
                late.append(line.popleft())
        for router in self._routers.values():
            late += [one for one in router.tickets.values() if one.came < before and not one.told]
        for ticket in late:
            ticket.told = True
        return late


def _question(router: Link) -> Ticket:
    """A HELLO in a suspect's place, which is nobody's to be told of."""
    question = Ticket(router, HELLO, frame(b"", False), 0.0)
    question.told, question.lost = True, 1
    return question


def _nobody_s(router: bytes, seconds: float) -> None:
    """It runs where nobody can end it."""
