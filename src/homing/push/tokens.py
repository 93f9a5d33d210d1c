"""Subscriber tokens: hex HMAC-SHA256 over client id and timestamp (protocol §5.5).

Issued by the authority, checked by every connector on its own: both hold the same keys. The
first signs and all are accepted. So keys change without anyone noticing, node by node, in three
rounds: `old,new`, then `new,old`, then, after a token's lifetime, `new`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from homing.errors import Denied

TOKEN_TTL: Final = 300.0
"""Seconds a token is good for: long enough to connect, too short to be worth stealing."""
CLOCK_SKEW: Final = 60.0
"""How far ahead an authority's clock may be of a connector's."""


class Keyring:
    """The keys in force: the first signs, each of them is accepted."""

    def __init__(self, keys: Sequence[bytes], ttl: float = TOKEN_TTL) -> None:
        if not keys or not all(keys):
            raise ValueError("at least one key, and none of them empty")
        self._keys = tuple(keys)
        self._ttl = ttl

    def issue(self, client_id: str, timestamp: int) -> str:
        """The token of a client, in force from `timestamp` (unix seconds)."""
        return _sign(self._keys[0], client_id, timestamp)

    def check(self, client_id: str, timestamp: int, token: str, wall: float) -> None:
        """Denied, saying why, unless the token was issued to this client and is in force."""
        given = token.encode()
        good = [
            hmac.compare_digest(_sign(key, client_id, timestamp).encode(), given)
            for key in self._keys
        ]
        if not any(good):
            raise Denied("the token is not this client's")
        if timestamp < wall - self._ttl:
            raise Denied("the token is too old: ask the authority for another")
        if timestamp > wall + CLOCK_SKEW:
            raise Denied("the token is from the future: whose clock is wrong?")


def _sign(key: bytes, client_id: str, timestamp: int) -> str:
    return hmac.new(key, f"{client_id}.{timestamp}".encode(), hashlib.sha256).hexdigest()
