"""Matcher ↔ matcher: what each knows of the ring, as status messages (protocol §4.3).

homing adds what a matcher holds: 7 the placement plans it follows, each with the tiles of it that
it can answer for; 8 a plan as JSON, for a matcher that has none so new; 9 the connectors of
which it knows; 10 those that it owes something for so long that publishers were told it is safe; 11
how many publications a second it takes; 12 for whom it waits at which connectors; 13 the newest era (homing.push.eras) of
what publishers were told is safe, and for each connector in 10 the oldest of what it is owed; 14 the
status's number. The RPC address is where it takes publications.
Others skip these; who knows 14 answers with an ack that has it and nothing else.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from homing.errors import Malformed
from homing.ids import NODE_ID_BYTES
from homing.wire import packet
from homing.wire.inquiry import PLAN_BYTES, TILE_BYTES, Tile, decode_tiles, encode_tiles
from homing.wire.packet import HOSTNAME, MAX_KEY, Message

BIND_ADDRESS: Final = 2
RPC_ADDRESS: Final = 3
START_HASH: Final = 4
SERF_NODE: Final = 5
VNODES: Final = 6
HOLDINGS: Final = 7
PLAN: Final = 8
CONNECTORS: Final = 9
LATE: Final = 10
LOAD: Final = 11
WAITS: Final = 12
ERAS: Final = 13
NUMBER: Final = 14

HASH_BYTES: Final = 20
"""A virtual node's place on the ring is a SHA-1."""
MAX_HOLDINGS: Final = 8
"""Plans in one status: a matcher follows two at most."""

MAX_LOAD: Final = 0xFFFFFFFF
"""Publications a second, as four bytes hold them."""

Wait = tuple[bytes, str]
"""A connector, and the name of the matcher that goes first there."""

_COUNT = Layout(">I")
_NUMBER_BYTES: Final = 8


class Status(Struct, frozen=True):
    """A matcher as the others see it: who, where, and which virtual nodes it holds."""

    hostname: bytes
    bind_address: bytes = b""
    rpc_address: bytes = b""
    start_hash: bytes = bytes(HASH_BYTES)
    serf_node: bytes = b""
    vnodes: bytes = b""
    holdings: dict[bytes, list[Tile]] = {}
    plan: bytes = b""
    connectors: bytes = b""
    late: bytes = b""
    load: int = 0
    waits: list[Wait] = []
    eras: list[int] = []  # empty: not told
    number: int = 0  # of those it has told; 0: it does not count them

    def encode(self) -> bytes:
        items = [
            (BIND_ADDRESS, self.bind_address),
            (RPC_ADDRESS, self.rpc_address),
            (START_HASH, self.start_hash),
            (SERF_NODE, self.serf_node),
            (VNODES, self.vnodes),
        ]
        if self.holdings:
            items.append((HOLDINGS, b"".join(map(_holding, self.holdings.items()))))
        load = _COUNT.pack(min(self.load, MAX_LOAD)) if self.load else b""
        waits = b"".join([connector + bytes.fromhex(name) for connector, name in self.waits])
        added = [(PLAN, self.plan), (CONNECTORS, self.connectors), (LATE, self.late)]
        added += [(LOAD, load), (WAITS, waits), (ERAS, b"".join(map(_COUNT.pack, self.eras)))]
        added.append((NUMBER, self.number.to_bytes(_NUMBER_BYTES, "big") if self.number else b""))
        items += [item for item in added if item[1]]
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
        _holdings(items.get(HOLDINGS, b"")),
        items.get(PLAN, b""),
        _connectors(items.get(CONNECTORS, b"")),
        _connectors(items.get(LATE, b"")),
        _load(items.get(LOAD, bytes(_COUNT.size))),
        _waits(items.get(WAITS, b"")),
        _eras(items.get(ERAS, b""), items.get(LATE, b"")),
        _number(items.get(NUMBER, bytes(_NUMBER_BYTES))),
    )


def confirm(number: int) -> bytes:
    """The answer to a status with this number."""
    return packet.encode(packet.ACK, [(NUMBER, number.to_bytes(_NUMBER_BYTES, "big"))])


def confirmed(message: Message) -> int | None:
    """The number of the status that an ack answers; None for one that answers something else."""
    return _number(message.items[NUMBER]) if NUMBER in message.items else None


def _holding(held: tuple[bytes, list[Tile]]) -> bytes:
    """One plan: its name, how many tiles, the tiles."""
    plan, tiles = held
    return plan + _COUNT.pack(len(tiles)) + encode_tiles(tiles)


def _holdings(data: bytes) -> dict[bytes, list[Tile]]:
    found: dict[bytes, list[Tile]] = {}
    at = 0
    while at < len(data):
        begin = at + PLAN_BYTES + _COUNT.size
        if begin > len(data) or len(found) == MAX_HOLDINGS:
            raise Malformed("holdings that end too soon, or of too many plans")
        (count,) = _COUNT.unpack_from(data, at + PLAN_BYTES)
        end = begin + count * TILE_BYTES
        if end > len(data):
            raise Malformed("holdings that end too soon")
        found[data[at : at + PLAN_BYTES]] = decode_tiles(data[begin:end])
        at = end
    return found


def _connectors(data: bytes) -> bytes:
    if len(data) % NODE_ID_BYTES:
        raise Malformed(f"connector ids are {NODE_ID_BYTES} bytes each, got {len(data)}")
    return data


def _load(data: bytes) -> int:
    if len(data) != _COUNT.size:
        raise Malformed(f"a load is {_COUNT.size} bytes, got {len(data)}")
    return int.from_bytes(data, "big")


def _number(data: bytes) -> int:
    if len(data) != _NUMBER_BYTES:
        raise Malformed(f"a status's number is {_NUMBER_BYTES} bytes, got {len(data)}")
    return int.from_bytes(data, "big")


def _eras(data: bytes, late: bytes) -> list[int]:
    if data and len(data) != _COUNT.size * (1 + len(late) // NODE_ID_BYTES):
        raise Malformed(f"eras: {_COUNT.size} bytes for the newest and for each late connector")
    return [number for (number,) in _COUNT.iter_unpack(data)]


def _waits(data: bytes) -> list[Wait]:
    """Pairs of a connector's id and a matcher's."""
    if len(data) % (2 * NODE_ID_BYTES):
        raise Malformed(f"waits are {2 * NODE_ID_BYTES} bytes each, got {len(data)}")
    ids = [data[at : at + NODE_ID_BYTES] for at in range(0, len(data), NODE_ID_BYTES)]
    return [(connector, name.hex()) for connector, name in zip(ids[::2], ids[1::2], strict=True)]
