"""The role of a router process: tickets in, decisions out, no state that could be lost."""

from __future__ import annotations

from collections.abc import Hashable

from homing.errors import RemoteProtocolError
from homing.ports import Link, Port
from homing.service.decisions import HELLO, decide, read_ticket, write_decision
from homing.service.router import Router


class RouterProcess:
    """Connects to its broker's `tasks` (DEALER) and `decisions` (PUB)."""

    def __init__(self, port: Port, router: Router, name: bytes, tasks: str, decisions: str) -> None:
        """`name` is the routing id it has at the broker's `tasks`."""
        self._router = router
        self._name = name
        self._out: Link | None = None
        port.connect("decisions", decisions)
        port.connect("tasks", tasks)

    def opened(self, link: Link, now: float) -> None:
        if link.plug == "decisions":
            self._out = link

    def receive(self, link: Link, message: bytes, now: float) -> None:
        """One ticket. Without a way out it is dropped: the broker keeps it and sends it again."""
        out = self._out
        if link.plug != "tasks" or out is None:
            return
        try:
            ticket, side, user, image = read_ticket(message)
        except RemoteProtocolError:
            return
        decision = None if side == HELLO else decide(self._router, side, user, image)
        out.send(write_decision(self._name, ticket, decision))

    def closed(self, link: Link, now: float) -> None:
        if link is self._out:
            self._out = None

    def wake(self, key: Hashable, now: float) -> None:
        """No timers here."""

    def journaled(self, number: int, now: float) -> None:
        """No journal here."""
