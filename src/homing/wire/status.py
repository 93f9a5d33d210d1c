"""Matcher ↔ matcher: what each knows of the ring, as status messages (protocol §4.3)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from homing.errors import Malformed
from homing.wire import packet
from homing.wire.packet import HOSTNAME, MAX_KEY, Message

BIND_ADDRESS: Final = 2
RPC_ADDRESS: Final = 3
START_HASH: Final = 4
SERF_NODE: Final = 5
VNODES: Final = 6

HASH_BYTES: Final = 20
"""A virtual node's place on the ring is a SHA-1."""


class Status(Struct, frozen=True):
    """A matcher as the others see it: who, where, and which virtual nodes it holds."""

    hostname: bytes
    bind_address: bytes = b""
    rpc_address: bytes = b""
    start_hash: bytes = bytes(HASH_BYTES)
    serf_node: bytes = b""
    vnodes: bytes = b""

    def encode(self) -> bytes:
        items = [
            (BIND_ADDRESS, self.bind_address),
            (RPC_ADDRESS, self.rpc_address),
            (START_HASH, self.start_hash),
            (SERF_NODE, self.serf_node),
            (VNODES, self.vnodes),
        ]
        return packet.encode(packet.STATUS, items, key=(HOSTNAME, self.hostname))


def decode(message: Message) -> Status:
    """The status in a message; raises Malformed, to be sent back as a nak."""
    if message.command != packet.STATUS:
        raise Malformed(f"command {message.command} is not a status")
    items = message.items
    hostname = items.get(HOSTNAME, b"")
    start = items.get(START_HASH, bytes(HASH_BYTES))
    vnodes = items.get(VNODES, b"")
    if not hostname or len(hostname) > MAX_KEY:
        raise Malformed(f"a host name has 1 to {MAX_KEY} bytes, got {len(hostname)}")
    if len(start) != HASH_BYTES or len(vnodes) % HASH_BYTES:
        raise Malformed(f"a ring hash is {HASH_BYTES} bytes")
    return Status(
        hostname,
        items.get(BIND_ADDRESS, b""),
        items.get(RPC_ADDRESS, b""),
        start,
        items.get(SERF_NODE, b""),
        vnodes,
    )
