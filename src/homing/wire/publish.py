"""Publisher ↔ matcher: the typed messages of that link and their items (protocol §4.3)."""

from __future__ import annotations

import struct as layout
from typing import Final

from msgspec import Struct

from homing.errors import Malformed
from homing.ids import ID_BYTES
from homing.wire import packet
from homing.wire.packet import Message

ATTRIBUTES: Final = 1
PAYLOAD: Final = 2
MESSAGE_ID: Final = 3
TOKEN: Final = 4
COUNT: Final = 5
ELSEWHERE: Final = 7

COUNT_BYTES: Final = 4

# An ack is always as long: one call packs it.
_accepted = layout.Struct(f">BHB BH{ID_BYTES}s BHI").pack
_ACCEPTED: Final = (
    packet.ACK,
    2 * packet.ITEM_HEADER_BYTES + ID_BYTES + COUNT_BYTES,
    packet.SINGLE,
)


class Hello(Struct, frozen=True):
    """The publisher's handshake; the matcher answers with one without a token.

    `elsewhere`: the endpoint of a matcher that has less to do. A later hello of a matcher says it anew, or
    no more.
    """

    token: bytes = b""
    elsewhere: str = ""

    def encode(self) -> bytes:
        items = ((TOKEN, self.token), (ELSEWHERE, self.elsewhere.encode()))
        return packet.encode(packet.HANDSHAKE, [item for item in items if item[1]])


class Publish(Struct, frozen=True):
    """A publication. `attributes` is JSON, unread here; no id: the matcher makes one."""

    attributes: bytes
    payload: bytes
    message_id: bytes = b""

    def encode(self) -> bytes:
        items = [(ATTRIBUTES, self.attributes), (PAYLOAD, self.payload)]
        key = (MESSAGE_ID, self.message_id) if self.message_id else None
        return packet.encode(packet.PUSH, items, key=key)


class Accepted(Struct, frozen=True):
    """The ack: the publication is journaled and matched this many subscriptions."""

    message_id: bytes
    matched: int

    def encode(self) -> bytes:
        identity = (MESSAGE_ID, ID_BYTES, self.message_id)
        return _accepted(*_ACCEPTED, *identity, COUNT, COUNT_BYTES, self.matched)


class Refusal(Struct, frozen=True):
    """The nak; without an id where none could be read."""

    message_id: bytes
    reason: str

    def encode(self) -> bytes:
        key = (MESSAGE_ID, self.message_id) if self.message_id else None
        return packet.encode(packet.NAK, [(packet.REASON, self.reason.encode())], key=key)


HEARTBEAT: Final = packet.encode(packet.HEARTBEAT)

FromPublisher = Hello | Publish | None
FromMatcher = Hello | Accepted | Refusal | None


def from_publisher(message: Message) -> FromPublisher:
    """What a matcher hears; None is a heartbeat. Raises Malformed, to be sent back as a nak."""
    items = message.items
    if message.command == packet.PUSH:
        return Publish(items.get(ATTRIBUTES, b"{}"), items.get(PAYLOAD, b""), message_id(message))
    if message.command == packet.HANDSHAKE:
        return Hello(items.get(TOKEN, b""))
    if message.command == packet.HEARTBEAT:
        return None
    raise Malformed(f"command {message.command} has no meaning from a publisher")


def from_matcher(message: Message) -> FromMatcher:
    """What a publisher hears; None is a heartbeat."""
    items = message.items
    if message.command == packet.ACK:
        count = items.get(COUNT, b"")
        if len(count) != COUNT_BYTES:
            raise Malformed(f"a count is {COUNT_BYTES} bytes, got {len(count)}")
        identity = message_id(message)
        if not identity:
            raise Malformed("an ack without its message id")
        return Accepted(identity, int.from_bytes(count, "big"))
    if message.command == packet.NAK:
        reason = items.get(packet.REASON, b"").decode("utf-8", "replace")
        return Refusal(message_id(message), reason)
    if message.command == packet.HANDSHAKE:
        elsewhere = items.get(ELSEWHERE, b"").decode("utf-8", "replace")
        return Hello(items.get(TOKEN, b""), elsewhere)
    if message.command == packet.HEARTBEAT:
        return None
    raise Malformed(f"command {message.command} has no meaning from a matcher")


def message_id(message: Message) -> bytes:
    """The message id, empty where there is none."""
    identity = message.items.get(MESSAGE_ID, b"")
    if identity and len(identity) != ID_BYTES:
        raise Malformed(f"a message id is {ID_BYTES} bytes, got {len(identity)}")
    return identity
