"""Ids: 12 bytes for messages and clients (ObjectId layout), 8 bytes for nodes.

A message or client id is 4 bytes of unix time, 5 random bytes of its maker, 3 bytes of a
counter, all big-endian: sortable by time, unique without asking anyone, shown as 24 hex
digits. A node id is 8 bytes, shown as 16 hex digits.
"""

from __future__ import annotations

from collections.abc import Callable

from homing.errors import Malformed

ID_BYTES = 12
NODE_ID_BYTES = 8
_COUNTER_MASK = 0xFFFFFF


class IdMaker:
    """Makes 12-byte ids for one process; never the same one twice within a second's 2^24."""

    __slots__ = ("_counter", "_maker", "_wall")

    def __init__(self, wall: Callable[[], float], entropy: bytes) -> None:
        """`entropy`: 8 random bytes; 5 name the maker, 3 start the counter."""
        if len(entropy) != 8:
            raise ValueError(f"entropy must be 8 bytes, got {len(entropy)}")
        self._wall = wall
        self._maker = entropy[:5]
        self._counter = int.from_bytes(entropy[5:], "big")

    def __call__(self) -> bytes:
        self._counter = (self._counter + 1) & _COUNTER_MASK
        seconds = int(self._wall()) & 0xFFFFFFFF
        return seconds.to_bytes(4, "big") + self._maker + self._counter.to_bytes(3, "big")


def id_time(identity: bytes) -> int:
    """The unix second that a 12-byte id was made in."""
    return int.from_bytes(identity[:4], "big")


def maker(identity: bytes) -> bytes:
    """Who made a 12-byte id, as far as it tells."""
    return identity[4:9]


def parse_id(text: str) -> bytes:
    """24 hex digits to a message or client id."""
    return _parse(text, ID_BYTES, "message or client id")


def parse_node_id(text: str) -> bytes:
    """16 hex digits to a node id."""
    return _parse(text, NODE_ID_BYTES, "node id")


def _parse(text: str, size: int, what: str) -> bytes:
    try:
        raw = bytes.fromhex(text) if len(text) == 2 * size else b""
    except ValueError:
        raw = b""
    if len(raw) != size:
        raise Malformed(f"a {what} is {2 * size} hex digits, got {text[:40]!r}")
    return raw
