"""Matcher ↔ dispatcher ↔ dispatcher ↔ connector: typed messages and their items (§4.3).

Item numbers mean the same on all of these links. Up to 10 they are the protocol's; homing
adds 11 (role), 12 (connectors owned), 13 (phase of a sync), 14 (sessions held), 19 (nothing
older is owed), 20 (part of a session that moves), 21 (connectors that are away) and 22 (more of them
may come), which others skip; 15 to 18 are matchers' among themselves (homing.wire.inquiry).

A *place* is a client id and the connector that holds it, 20 bytes. Lists are kept as the
concatenated bytes they travel in: a fan-out to 10 000 clients is one object, not 10 000.
"""

from __future__ import annotations

import struct as layout
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec import Struct

from homing.errors import Malformed
from homing.ids import ID_BYTES, NODE_ID_BYTES
from homing.wire import packet
from homing.wire.packet import Item, Message

MESSAGE_ID: Final = 1
PAYLOAD: Final = 2
CLIENTS: Final = 3
ATTRIBUTES: Final = 4
NODE: Final = 5
TIME: Final = 6
TOKEN: Final = 7
CLIENT: Final = 8
CONNECTOR: Final = 9
NAME: Final = 10
ROLE: Final = 11
CONNECTORS: Final = 12
PHASE: Final = 13
LOAD: Final = 14
FIRST: Final = 19
MOVED: Final = 20
AWAY: Final = 21
MORE: Final = 22

PLACE_BYTES: Final = ID_BYTES + NODE_ID_BYTES
TIME_BYTES: Final = 8
LOAD_BYTES: Final = 4

# What most pushes and acks begin with, packed in one call: their packet's header and their id.
_head = layout.Struct(f">BHBBH{ID_BYTES}s").pack
_item = layout.Struct(">BH").pack
_ID_ITEM: Final = packet.ITEM_HEADER_BYTES + ID_BYTES
_PUSH_BYTES: Final = _ID_ITEM + 3 * packet.ITEM_HEADER_BYTES
_ACK_BYTES: Final = _ID_ITEM + 2 * packet.ITEM_HEADER_BYTES + NODE_ID_BYTES
_AT: Final = _item(CONNECTOR, NODE_ID_BYTES)

SYNC_BEGIN: Final = b"\x00"
SYNC_END: Final = b"\x01"
CLAIM: Final = b"\x02"
VISIT: Final = b"\x03"
HANDED_OVER: Final = b"\x04"

_absence = layout.Struct(f">{NODE_ID_BYTES}sI")
MAX_AWAY_MS: Final = (1 << 32) - 1


class Absence(NamedTuple):
    """A connector that is away, and for how long."""

    connector: bytes
    milliseconds: int


class Hello(Struct, frozen=True):
    """A node's handshake, and again whenever the connectors a dispatcher owns change.

    `more`: it has started and may own connectors that it has not met yet; it says so when that is over.
    """

    node: bytes
    role: bytes = b""
    token: bytes = b""
    connectors: bytes = b""
    more: bool = False

    def encode(self) -> bytes:
        more = b"\x01" if self.more else b""
        listed = (CONNECTORS, self.connectors)
        optional = ((ROLE, self.role), (TOKEN, self.token), listed, (MORE, more))
        items = [(NODE, self.node), *[item for item in optional if item[1]]]
        # Only a dispatcher with hundreds of connectors needs several packets, and so a key.
        key = (MESSAGE_ID, self.node) if len(self.connectors) > packet.MAX_BODY // 2 else None
        return packet.encode(packet.HANDSHAKE, items, key=key)


class Heartbeat(Struct, frozen=True):
    """Still here; with the sender's unix time in µs, a connector also with its sessions."""

    time: int = 0
    load: int = 0

    def encode(self) -> bytes:
        items = [(TIME, self.time.to_bytes(TIME_BYTES, "big"))]
        if self.load:
            items.append((LOAD, self.load.to_bytes(LOAD_BYTES, "big")))
        return packet.encode(packet.HEARTBEAT, items)


class Push(Struct, frozen=True):
    """A matched publication; `clients` are places, on a connector's link bare client ids.

    `first`: the sender owes nothing older here, so whoever refused something before goes on.
    `moved`: a session's former connector sends it, so it is older than what others send. The number tells which
    claim it answers (its time in µs; 1: not told), and comes back with the ack: one of an earlier move says nothing.
    """

    message_id: bytes
    payload: bytes
    clients: bytes
    attributes: bytes = b"{}"
    redirected: bool = False
    first: bool = False
    moved: int = 0

    def encode(self) -> bytes:
        payload, clients, attributes = self.payload, self.clients, self.attributes
        size = _PUSH_BYTES + len(payload) + len(clients) + len(attributes)
        if size <= packet.MAX_BODY and not (self.first or self.moved):  # nearly all of them
            extra = packet.SINGLE | packet.REDIRECTED if self.redirected else packet.SINGLE
            head = _head(packet.PUSH, size, extra, MESSAGE_ID, ID_BYTES, self.message_id)
            parts = (head, _item(PAYLOAD, len(payload)), payload, _item(CLIENTS, len(clients)))
            return b"".join((*parts, clients, _item(ATTRIBUTES, len(attributes)), attributes))
        items = [(PAYLOAD, payload), (CLIENTS, clients), (ATTRIBUTES, attributes)]
        if self.first:
            items.append((FIRST, b"\x01"))
        if self.moved:
            items.append((MOVED, _number(self.moved)))
        key = (MESSAGE_ID, self.message_id)
        return packet.encode(packet.PUSH, items, key=key, redirected=self.redirected)


class Ack(Struct, frozen=True):
    """Done: a push for `clients` (bare ids) of `connector`, or a subscription change or a claim (none).

    `moved`: as in the push. `away`: of a claim, connectors that had the session, are away and may owe some of it.
    """

    message_id: bytes
    clients: bytes = b""
    connector: bytes = b""
    moved: int = 0
    away: tuple[Absence, ...] = ()

    def encode(self) -> bytes:
        clients, connector = self.clients, self.connector
        size = _ACK_BYTES + len(clients)
        if (
            clients and connector and size <= packet.MAX_BODY and not self.moved
        ):  # of a push: nearly all of them
            head = _head(packet.ACK, size, packet.SINGLE, MESSAGE_ID, ID_BYTES, self.message_id)
            return b"".join((head, _item(CLIENTS, len(clients)), clients, _AT, connector))
        items = _present((CLIENTS, clients), (CONNECTOR, connector))
        if self.moved:
            items.append((MOVED, _number(self.moved)))
        if self.away:
            listed = [_absence.pack(one, min(ms, MAX_AWAY_MS)) for one, ms in self.away]
            items.append((AWAY, b"".join(listed)))
        return packet.encode(packet.ACK, items, key=(MESSAGE_ID, self.message_id))


class Nak(Struct, frozen=True):
    """Refused, with a reason whose first word is the code; with `clients` for these alone, and in the move that `moved` tells."""

    message_id: bytes
    reason: str
    connector: bytes = b""
    clients: bytes = b""
    moved: int = 0

    def encode(self) -> bytes:
        named = ((CONNECTOR, self.connector), (CLIENTS, self.clients))
        items = _present((packet.REASON, self.reason.encode()), *named)
        if self.moved:
            items.append((MOVED, _number(self.moved)))
        key = (MESSAGE_ID, self.message_id) if self.message_id else None
        return packet.encode(packet.NAK, items, key=key)


class Subscribe(Struct, frozen=True):
    """A client's subscription is now exactly `fields` (JSON, unread here).

    `moved`: the dispatcher of a session's former connector says so, to matchers that the new
    connector's has not told yet; whatever they know is newer.
    """

    message_id: bytes
    client: bytes
    connector: bytes
    name: bytes
    fields: bytes
    moved: bool = False

    def encode(self) -> bytes:
        items = [
            (CLIENT, self.client),
            (CONNECTOR, self.connector),
            (NAME, self.name),
            (ATTRIBUTES, self.fields),
        ]
        if self.moved:
            items.append((MOVED, b"\x01"))
        return packet.encode(packet.SUBSCRIBE, items, key=(MESSAGE_ID, self.message_id))


class Unsubscribe(Struct, frozen=True):
    """One subscription of a client is gone; an empty name means all of them."""

    message_id: bytes
    client: bytes
    connector: bytes
    name: bytes = b""

    def encode(self) -> bytes:
        items = [(CLIENT, self.client), (CONNECTOR, self.connector), (NAME, self.name)]
        return packet.encode(packet.UNSUBSCRIBE, items, key=(MESSAGE_ID, self.message_id))


class Sync(Struct, frozen=True):
    """Between SYNC_BEGIN and SYNC_END a connector tells all its subscriptions anew."""

    message_id: bytes
    connector: bytes
    phase: bytes

    def encode(self) -> bytes:
        items = [(CONNECTOR, self.connector), (PHASE, self.phase)]
        return packet.encode(packet.STATUS, items, key=(MESSAGE_ID, self.message_id))


class Claim(Struct, frozen=True):
    """A client is at this connector since `time` (unix, µs), and its session with it if durable.

    `owing`: among dispatchers, connectors that had the session before and have not handed it over, as far as is known.
    """

    message_id: bytes
    client: bytes
    connector: bytes
    time: int
    durable: bool = True
    owing: bytes = b""

    def encode(self) -> bytes:
        items = [
            (CLIENT, self.client),
            (CONNECTOR, self.connector),
            (PHASE, CLAIM if self.durable else VISIT),
            (TIME, self.time.to_bytes(TIME_BYTES, "big")),
            *_present((CONNECTORS, self.owing)),
        ]
        return packet.encode(packet.STATUS, items, key=(MESSAGE_ID, self.message_id))

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of two claims the higher holds."""
        return self.time, self.connector


class HandedOver(Struct, frozen=True):
    """A session's former connector `node` has sent all it had to the one that claimed it (`message_id`)."""

    message_id: bytes
    client: bytes
    connector: bytes
    node: bytes

    def encode(self) -> bytes:
        items = [
            (CLIENT, self.client),
            (CONNECTOR, self.connector),
            (PHASE, HANDED_OVER),
            (NODE, self.node),
        ]
        return packet.encode(packet.STATUS, items, key=(MESSAGE_ID, self.message_id))


Relayed = Hello | Heartbeat | Push | Ack | Nak | Subscribe | Unsubscribe | Sync | Claim | HandedOver


def decode(message: Message, record: int = PLACE_BYTES) -> Relayed:
    """The typed message; `record` is the size of an entry of a push's client list here."""
    if message.command == packet.PUSH:
        return _push(message, record)
    decoder = _DECODERS.get(message.command)
    if decoder is None:
        raise Malformed(f"command {message.command} has no meaning on this link")
    return decoder(message.items)


def _push(message: Message, record: int) -> Push:
    items = message.items
    clients = items.get(CLIENTS, b"")
    if not clients or len(clients) % record:
        raise Malformed(f"a client list has {record} bytes an entry, got {len(clients)}")
    return Push(
        _sized(items, MESSAGE_ID, ID_BYTES, "message id"),
        items.get(PAYLOAD, b""),
        clients,
        items.get(ATTRIBUTES, b"{}"),
        message.redirected,
        FIRST in items,
        _moved(items),
    )


def _number(moved: int) -> bytes:
    return moved.to_bytes(TIME_BYTES if moved > 1 else 1, "big")


def _moved(items: dict[int, bytes]) -> int:
    if MOVED not in items:
        return 0
    return max(1, int.from_bytes(items[MOVED][:TIME_BYTES], "big"))


def _hello(items: dict[int, bytes]) -> Hello:
    connectors = items.get(CONNECTORS, b"")
    if len(connectors) % NODE_ID_BYTES:
        raise Malformed(f"connector ids are {NODE_ID_BYTES} bytes each, got {len(connectors)}")
    node = _sized(items, NODE, NODE_ID_BYTES, "node id")
    more = items.get(MORE) == b"\x01"
    return Hello(node, items.get(ROLE, b""), items.get(TOKEN, b""), connectors, more)


def _heartbeat(items: dict[int, bytes]) -> Heartbeat:
    time = int.from_bytes(items.get(TIME, b"")[:TIME_BYTES], "big")
    return Heartbeat(time, int.from_bytes(items.get(LOAD, b"")[:LOAD_BYTES], "big"))


def _ack(items: dict[int, bytes]) -> Ack:
    clients = _clients(items)
    identity = _sized(items, MESSAGE_ID, ID_BYTES, "message id")
    away = items.get(AWAY, b"")
    if len(away) % _absence.size:
        raise Malformed(f"absences are {_absence.size} bytes each, got {len(away)}")
    absent = tuple([Absence(*one) for one in _absence.iter_unpack(away)]) if away else ()
    return Ack(identity, clients, _optional_node(items), _moved(items), absent)


def _nak(items: dict[int, bytes]) -> Nak:
    identity = id_of(items) if MESSAGE_ID in items else b""
    reason = items.get(packet.REASON, b"").decode("utf-8", "replace")
    return Nak(identity, reason, _optional_node(items), _clients(items), _moved(items))


def _subscribe(items: dict[int, bytes]) -> Subscribe:
    return Subscribe(
        id_of(items),
        _sized(items, CLIENT, ID_BYTES, "client id"),
        _sized(items, CONNECTOR, NODE_ID_BYTES, "connector id"),
        items.get(NAME, b""),
        items.get(ATTRIBUTES, b"{}"),
        MOVED in items,
    )


def _unsubscribe(items: dict[int, bytes]) -> Unsubscribe:
    return Unsubscribe(
        id_of(items),
        _sized(items, CLIENT, ID_BYTES, "client id"),
        _sized(items, CONNECTOR, NODE_ID_BYTES, "connector id"),
        items.get(NAME, b""),
    )


def _status(items: dict[int, bytes]) -> Sync | Claim | HandedOver:
    phase = items.get(PHASE, b"")
    if phase not in (SYNC_BEGIN, SYNC_END, CLAIM, VISIT, HANDED_OVER):
        raise Malformed(
            "a status message here begins or ends a sync, claims a client or hands one over"
        )
    identity = id_of(items)
    connector = _sized(items, CONNECTOR, NODE_ID_BYTES, "connector id")
    if phase in (SYNC_BEGIN, SYNC_END):
        return Sync(identity, connector, phase)
    client = _sized(items, CLIENT, ID_BYTES, "client id")
    if phase == HANDED_OVER:
        node = _sized(items, NODE, NODE_ID_BYTES, "node id")
        return HandedOver(identity, client, connector, node)
    time = int.from_bytes(_sized(items, TIME, TIME_BYTES, "time"), "big")
    owing = items.get(CONNECTORS, b"")
    if len(owing) % NODE_ID_BYTES:
        raise Malformed(f"connector ids are {NODE_ID_BYTES} bytes each, got {len(owing)}")
    return Claim(identity, client, connector, time, phase == CLAIM, owing)


def id_of(items: dict[int, bytes]) -> bytes:
    """The message id; raises Malformed."""
    return _sized(items, MESSAGE_ID, ID_BYTES, "message id")


def _sized(items: dict[int, bytes], item: int, size: int, what: str) -> bytes:
    body = items.get(item)
    if body is None:
        raise Malformed(f"the {what} is missing")
    if len(body) != size:
        raise Malformed(f"a {what} is {size} bytes, got {len(body)}")
    return body


def _clients(items: dict[int, bytes]) -> bytes:
    clients = items.get(CLIENTS, b"")
    if len(clients) % ID_BYTES:
        raise Malformed(f"client ids are {ID_BYTES} bytes each, got {len(clients)}")
    return clients


def _optional_node(items: dict[int, bytes]) -> bytes:
    return _sized(items, CONNECTOR, NODE_ID_BYTES, "connector id") if CONNECTOR in items else b""


def _present(*items: Item) -> list[Item]:
    return [item for item in items if item[1]]


_DECODERS: dict[int, Callable[[dict[int, bytes]], Relayed]] = {
    packet.HANDSHAKE: _hello,
    packet.HEARTBEAT: _heartbeat,
    packet.ACK: _ack,
    packet.NAK: _nak,
    packet.SUBSCRIBE: _subscribe,
    packet.UNSUBSCRIBE: _unsubscribe,
    packet.STATUS: _status,
}
