"""Who may do what: allow-lists by authenticated user (a PLAIN name or a CURVE key in hex or Z85).

A rule is a service name, a name ending in `*` (every service that starts so), or `*`. Without any list
everybody may do everything; with one, who is not on it may do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

WATCHED: Final = b"mmi.services"
"""Tells whoever asks what state publications tell peers."""

Rules = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Access:
    """Allow-lists; None: no list, everybody."""

    clients: Rules | None = None
    """user -> services it may call."""
    workers: Rules | None = None
    """user -> services it may serve; `*` for a worker that serves any."""
    peers: Mapping[str, str] | None = None
    """user -> the broker name it may use."""
    _calls: dict[tuple[str, bytes], bool] = field(default_factory=dict, repr=False)

    def may_call(self, user: str, service: bytes) -> bool:
        """Asked for every request, so the answers are kept."""
        if self.clients is None:
            return True
        known = self._calls.get((user, service))
        if known is None:
            if len(self._calls) >= _KEPT:
                self._calls.clear()
            known = self._calls[user, service] = _allows(self.clients.get(user), service)
        return known

    def may_serve(self, user: str, service: bytes) -> bool:
        """`service` empty: any service."""
        if self.workers is None:
            return True
        rules = self.workers.get(user)
        return _allows(rules, service) if service else rules is not None and "*" in rules

    def may_peer(self, user: str, broker: bytes) -> bool:
        """Whether this user may act as that broker."""
        return self.peers is None or self.peers.get(user, "").encode() == broker

    def may_watch(self, user: str) -> bool:
        """Whether this user may hear of services and capacity: peers, and who may ask for as much."""
        return self.peers is None or user in self.peers or self.may_call(user, WATCHED)


_KEPT = 65536
"""Answers kept: users times services of a busy broker; more are asked for again."""


def _allows(rules: Sequence[str] | None, service: bytes) -> bool:
    for rule in rules or ():
        raw = rule.encode()
        if raw == service or (raw.endswith(b"*") and service.startswith(raw[:-1])):
            return True
    return False
