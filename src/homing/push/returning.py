"""Sessions that are back at a connector where matchers may owe them something from before they went. Pure.

Their subscriptions had ended there, and not all matchers had said so: what one that is away had found before comes when
it is back. Or they have not ended, as the connector was away. All are asked once more, with the end of nothing: a matcher answers that behind all that it owes
the connector, as it does with every end, and who is away is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from homing.ports import Link
from homing.push.awaiting import Awaiting
from homing.push.move import Move
from homing.wire import relay


class Returning:
    """Clients that are back, since when they may be owed something, and who is asked."""

    def __init__(self, node: bytes, new_id: Callable[[], bytes]) -> None:
        self._node = node
        self._new_id = new_id
        self._since: dict[bytes, float] = {}  # client -> since when the last matcher is away
        self._asked: dict[bytes, dict[bytes, float]] = {}  # a question -> these, as they were then

    def back(self, move: Move, now: float) -> None:
        """A client is back that was going elsewhere."""
        if move.ending:
            self.note(move.session.client, now if move.owing is None else move.owing)

    def note(self, client: bytes, since: float) -> bool:
        """It may be owed something; whether that is news."""
        known = client in self._since
        self._since.setdefault(client, since)
        return not known

    def wait(self, awaiting: Awaiting, links: Sequence[Link], now: float) -> None:
        """What one that may be owed something is sent is awaited; it may be older than what waits."""
        client = awaiting.session.client
        if client in self._since:
            awaiting.miss(self._node, self._since[client], now)
            awaiting.session.mixed = True
            self.ask(links, client)

    def forget(self, client: bytes) -> bool:
        """It has gone again, or for good; whether it may be owed something."""
        return self._since.pop(client, None) is not None

    def ask(self, links: Sequence[Link], client: bytes = b"") -> None:
        """Ask for one client, or for all of them: what was asked before counts no more then."""
        if not client:
            self._asked.clear()
        about = {c: since for c, since in self._since.items() if client in (b"", c)}
        if about and links:
            identity = self._new_id()
            self._asked[identity] = about
            nothing = relay.Unsubscribe(identity, identity, self._node).encode()
            for link in links:
                link.send(nothing)

    def answered(self, identity: bytes, sure: bool) -> list[bytes]:
        """Those that were asked about and are still as they were; `sure`: they are owed nothing any more."""
        about = self._asked.pop(identity, {})
        clients = [client for client, since in about.items() if self._since.get(client) == since]
        if sure:
            for client in clients:
                del self._since[client]
        return clients
