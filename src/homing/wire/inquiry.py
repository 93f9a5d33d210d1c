"""Matcher ↔ matcher: whom does this publication concern, as far as you hold the answer?

A publication lies in one tile of every tree of the placement plan. The matcher that took it asks
an owner of each tile that it does not hold itself; the owner answers with places, in several
messages where they do not fit into one, or refuses with a nak. On these links command 3 (push)
is the question and command 4 (ack) the answer; items 15 to 18 are homing's own.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from homing.errors import Malformed
from homing.wire import packet, relay
from homing.wire.assembly import MAX_MESSAGE
from homing.wire.packet import Message

PLAN: Final = 15
TILES: Final = 16
COUNT: Final = 17
LEFT: Final = 18

PLAN_BYTES: Final = 16
TILE_BYTES: Final = 4
COUNT_BYTES: Final = 4
ANSWER_PLACES: Final = (MAX_MESSAGE - (16 << 10)) // relay.PLACE_BYTES
"""Places in one answer: the rest of a message is room for item headers."""

Tile = tuple[int, int]
_TILES = Layout(">HH")


def encode_tiles(tiles: list[Tile]) -> bytes:
    """Tree and tile numbers, two bytes each."""
    return b"".join([_TILES.pack(*tile) for tile in tiles])


def decode_tiles(data: bytes) -> list[Tile]:
    """The same back; raises Malformed."""
    if len(data) % TILE_BYTES:
        raise Malformed(f"tiles are {TILE_BYTES} bytes each, got {len(data)}")
    return list(_TILES.iter_unpack(data))


class Question(Struct, frozen=True):
    """Which places concern a publication with these attributes, in these tiles of this plan?"""

    question_id: bytes
    plan: bytes
    tiles: list[Tile]
    attributes: bytes

    def encode(self) -> bytes:
        items = [
            (PLAN, self.plan),
            (TILES, encode_tiles(self.tiles)),
            (relay.ATTRIBUTES, self.attributes),
        ]
        return packet.encode(packet.PUSH, items, key=(relay.MESSAGE_ID, self.question_id))


class Answer(Struct, frozen=True):
    """Some of the places; `left` further answers follow. `count`: subscriptions that matched."""

    question_id: bytes
    count: int
    places: bytes = b""
    left: int = 0

    def encode(self) -> bytes:
        items = [
            (COUNT, self.count.to_bytes(COUNT_BYTES, "big")),
            (LEFT, self.left.to_bytes(COUNT_BYTES, "big")),
            (relay.CLIENTS, self.places),
        ]
        return packet.encode(packet.ACK, items, key=(relay.MESSAGE_ID, self.question_id))


def answers(question_id: bytes, count: int, places: bytes) -> list[Answer]:
    """All places, in as many answers as they need."""
    most = ANSWER_PLACES * relay.PLACE_BYTES
    parts = [places[at : at + most] for at in range(0, len(places), most)] or [b""]
    last = len(parts) - 1
    return [Answer(question_id, count, part, last - n) for n, part in enumerate(parts)]


def decode_question(message: Message) -> Question:
    """What another matcher asks; raises Malformed."""
    items = message.items
    plan = items.get(PLAN, b"")
    tiles = decode_tiles(items.get(TILES, b""))
    if len(plan) != PLAN_BYTES or not tiles:
        raise Malformed("a question names a plan and at least one tile")
    return Question(relay.id_of(items), plan, tiles, items.get(relay.ATTRIBUTES, b"{}"))


def decode_answer(message: Message) -> Answer:
    """What another matcher answers; raises Malformed."""
    items = message.items
    places = items.get(relay.CLIENTS, b"")
    if len(places) % relay.PLACE_BYTES:
        raise Malformed(f"places are {relay.PLACE_BYTES} bytes each, got {len(places)}")
    count, left = items.get(COUNT, b""), items.get(LEFT, b"")
    if len(count) != COUNT_BYTES or len(left) != COUNT_BYTES:
        raise Malformed(f"counts are {COUNT_BYTES} bytes")
    identity = relay.id_of(items)
    return Answer(identity, int.from_bytes(count, "big"), places, int.from_bytes(left, "big"))
