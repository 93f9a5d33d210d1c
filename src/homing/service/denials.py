"""Who was turned away at the door: counted always, told in the log once.

Whoever may not do something mostly tries again and again. The same user with the same wish is one line; who
makes up ever new ones finds the log's own bound on repeated warnings.
"""

from __future__ import annotations

import logging
from typing import Final

MAX_TOLD: Final = 1024
"""Wishes remembered as told: users times services of a wrong users file; past it all may be told again."""

_log = logging.getLogger("homing.broker")

_WORKER: Final = {
    b"denied": "a worker was sent away: its user may not serve this",
    b"malformed": "a worker was sent away: no service can have that name",
    b"queue-full": "a worker was sent away: there are too many workers or services",
}


class Denials:
    """Of one broker."""

    def __init__(self) -> None:
        self.workers: dict[bytes, int] = {}  # sent away at READY, by code
        self._told: set[tuple[str | bytes, ...]] = set()

    def request(self, user: str, service: bytes) -> None:
        """A request that its user may not make; the record of refusals counts it."""
        self._tell("a request was denied: its user may not call this", user, service=service)

    def worker(self, code: bytes, user: str, service: bytes) -> None:
        """A worker that is not taken on."""
        self.workers[code] = self.workers.get(code, 0) + 1
        if code in _WORKER:
            self._tell(_WORKER[code], user, service=service or b"*")

    def peer(self, user: str, broker: bytes) -> None:
        """Somebody at cloudfe who is not the broker it says."""
        self._tell("a peer was denied: its user is no such broker", user, peer=broker)

    def watcher(self, user: str) -> None:
        """Somebody at statebe who may not know what is served here."""
        self._tell("a peer was denied: its user may not hear of capacity", user)

    def other(self, peer: bytes, found: bytes) -> None:
        """Whoever answers where the settings say that a peer is has another name, or none: no cloudfe."""
        what = "not the peer that service.peers names is found there"
        named = not found.startswith(b"\x00")  # made up for one that told none
        self._tell(what, "", peer=peer, found=found if named else b"")

    def news_of_another(self, peer: bytes, found: bytes) -> None:
        """Where the settings say that a peer's statebe is another broker publishes: nothing is sent to that peer."""
        what = "not the peer that service.peers names publishes at its statebe"
        self._tell(what, "", peer=peer, found=found)

    def too_many_of(self, peer: bytes) -> None:
        """A peer serves more than `service.max_services`: what is beyond is not asked of it."""
        self._tell(
            "a peer tells more services than service.max_services: the rest is not sent there",
            "",
            peer=peer,
        )

    def _tell(self, what: str, user: str, **named: bytes) -> None:
        wish: tuple[str | bytes, ...] = (what, user, *named.values())
        if wish in self._told:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told.add(wish)
        told = {kind: name.decode("utf-8", "backslashreplace") for kind, name in named.items()}
        _log.warning(what, extra={"user": user, **told} if user else told)
