"""The matchers' hash ring: virtual nodes at SHA-1 places, told in status messages (§4.3). Pure.

Every matcher holds some virtual nodes; a key belongs to the matcher of the first one at or
after the key's hash. A matcher that comes takes its share from the others and gives it back
when it goes: nothing moves between those that stay. Every change that moves something makes
a new *epoch*.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha1
from typing import Final

from homing.errors import Malformed
from homing.wire.status import HASH_BYTES, Status

VIRTUAL_NODES: Final = 64
"""Per matcher: shares stay within a few per cent of each other."""
MAX_VIRTUAL_NODES: Final = 4096
"""What one matcher may claim: a status message stays below 100 KB."""
MAX_MATCHERS: Final = 1024
"""On one ring: each is known to all."""


@lru_cache(maxsize=MAX_MATCHERS)
def vnode_hashes(name: bytes, count: int = VIRTUAL_NODES) -> bytes:
    """The places of a matcher's virtual nodes, concatenated as a status message has them."""
    return b"".join([sha1(b"%b/%d" % (name, number)).digest() for number in range(count)])


class Ring:
    """Matchers by name with their virtual nodes; who owns which key."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names`: matchers with the usual number of virtual nodes."""
        self.epoch = 0
        self._members: dict[bytes, Status] = {}
        self._hashes: list[bytes] = []
        self._owners: list[bytes] = []
        for name in names:
            self.learn(Status(name.encode(), vnodes=vnode_hashes(name.encode())))

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name.encode() in self._members

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all matchers, in order."""
        return tuple(name.decode() for name in sorted(self._members))

    @property
    def members(self) -> list[Status]:
        """All matchers, by name."""
        return [self._members[name] for name in sorted(self._members)]

    def learn(self, status: Status) -> bool:
        """A matcher told of itself; whether anything moves. Malformed past the limits."""
        count = len(status.vnodes) // HASH_BYTES
        if not 1 <= count <= MAX_VIRTUAL_NODES:
            raise Malformed(f"1 to {MAX_VIRTUAL_NODES} virtual nodes, got {count}")
        known = self._members.get(status.hostname)
        if known is None and len(self._members) >= MAX_MATCHERS:
            raise Malformed(f"a ring has at most {MAX_MATCHERS} matchers")
        self._members[status.hostname] = status
        if known is not None and known.vnodes == status.vnodes:
            return False
        self._lay()
        return True

    def forget(self, name: bytes) -> bool:
        """A matcher left or died; False if it was not there."""
        if self._members.pop(name, None) is None:
            return False
        self._lay()
        return True

    def owners(self, key: bytes, copies: int = 1) -> list[bytes]:
        """The matchers that a key belongs to, each once: the owner, then who takes over."""
        found: dict[bytes, None] = {}
        start = bisect_left(self._hashes, sha1(key).digest())
        for step in range(len(self._hashes)):
            found[self._owners[(start + step) % len(self._owners)]] = None
            if len(found) >= min(copies, len(self._members)):
                break
        return list(found)

    def shares(self) -> dict[bytes, float]:
        """How much of the ring each matcher owns; together 1."""
        shares = dict.fromkeys(self._members, 0.0)
        whole = float(1 << (8 * HASH_BYTES))
        places = [int.from_bytes(one, "big") for one in self._hashes]
        for number, owner in enumerate(self._owners):
            width = places[number] - places[number - 1]
            shares[owner] += (width % (1 << (8 * HASH_BYTES)) or whole) / whole
        return shares

    def _lay(self) -> None:
        """Put all virtual nodes in order. Of two at one place the lower name's counts."""
        laid: dict[bytes, bytes] = {}
        for name in sorted(self._members, reverse=True):
            vnodes = self._members[name].vnodes
            for at in range(0, len(vnodes), HASH_BYTES):
                laid[vnodes[at : at + HASH_BYTES]] = name
        self._hashes = sorted(laid)
        self._owners = [laid[place] for place in self._hashes]
        self.epoch += 1
