"""Push plane packets: cut them off a stream, split long messages, put them together again.

    cmd 1 B | length 2 B | extra 1 B | items, `length` bytes in all
                                       item = id 1 B | length 2 B | body

A message that fits is one packet. A longer one is a head, middles and a tail; every packet
repeats the *key item* (the message id, or the host name of a status message) and the
receiver joins, per item id, the other bodies in the order they came. Packets of different
messages may interleave.

Two steps, so that a role sees the same thing from a socket and from a simulated network:
`PacketStream` cuts a byte stream into runs of whole packets, homing.wire.assembly turns runs
into `Message`s. A length that cannot be is a RemoteProtocolError and ends the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec

from homing.errors import RemoteProtocolError

HANDSHAKE: Final = 1
HEARTBEAT: Final = 2
PUSH: Final = 3
ACK: Final = 4
NAK: Final = 5
SUBSCRIBE: Final = 6
UNSUBSCRIBE: Final = 7
STATUS: Final = 8

NONE: Final = 0x00
SINGLE: Final = 0x01
HEAD: Final = 0x02
MIDDLE: Final = 0x04
TAIL: Final = 0x08
REDIRECTED: Final = 0x10

REASON: Final = 6
"""The item of a nak that says why; the same on every link."""
HOSTNAME: Final = 1
"""The key item of a status message."""

MAX_BODY: Final = 2000
HEADER_BYTES: Final = 4
ITEM_HEADER_BYTES: Final = 3
MAX_KEY: Final = 255
"""A key item is repeated in every packet: room must be left for what it is the key of."""

_PACKET = Struct(">BHB")
_ITEM = Struct(">BH")

Item = tuple[int, bytes]


class Message(msgspec.Struct):
    """One whole message: a command, whether a dispatcher redirected it, and its items by id."""

    command: int
    items: dict[int, bytes]
    redirected: bool = False


def encode(
    command: int,
    items: Sequence[Item] = (),
    *,
    key: Item | None = None,
    redirected: bool = False,
) -> bytes:
    """A message as one packet, or as head, middles and tail where it does not fit in one."""
    parts = [b""] if key is None else [b"", _ITEM.pack(key[0], len(key[1])), key[1]]
    for identity, body in items:
        if len(body) > MAX_BODY:
            return _encode_long(command, items, key, REDIRECTED if redirected else 0)
        parts.append(_ITEM.pack(identity, len(body)))
        parts.append(body)
    size = len(b"".join(parts))
    if size > MAX_BODY:
        return _encode_long(command, items, key, REDIRECTED if redirected else 0)
    parts[0] = _PACKET.pack(command, size, SINGLE | REDIRECTED if redirected else SINGLE)
    return b"".join(parts)


def _encode_long(command: int, items: Sequence[Item], key: Item | None, flags: int) -> bytes:
    if key is None or len(key[1]) > MAX_KEY:
        raise ValueError(f"a message over {MAX_BODY} bytes needs a key of at most {MAX_KEY} bytes")
    head = _ITEM.pack(key[0], len(key[1])) + key[1]
    full = _PACKET.pack(command, MAX_BODY, MIDDLE | flags) + head
    packets = _fill(items, MAX_BODY - len(head))
    last = len(packets) - 1
    parts: list[bytes | memoryview] = []
    for number, (size, body) in enumerate(packets):
        if 0 < number < last and size + len(head) == MAX_BODY:
            parts.append(full)
        else:
            extra = HEAD if number == 0 else TAIL if number == last else MIDDLE
            parts.append(_PACKET.pack(command, size + len(head), extra | flags))
            parts.append(head)
        parts += body
    return b"".join(parts)


def _fill(items: Sequence[Item], room: int) -> list[tuple[int, Sequence[bytes | memoryview]]]:
    """Item pieces for each packet, every packet but the last as full as it gets."""
    packets: list[tuple[int, Sequence[bytes | memoryview]]] = []
    pieces: list[bytes | memoryview] = []
    used = 0
    whole = room - ITEM_HEADER_BYTES
    for identity, body in items:
        view = memoryview(body)
        at = 0
        while True:
            if not used and len(body) - at > whole:  # most of a long item: packets of nothing else
                header = _ITEM.pack(identity, whole)
                end = at + (len(body) - at - 1) // whole * whole
                packets += [(room, (header, view[i : i + whole])) for i in range(at, end, whole)]
                at = end
            space = room - used - ITEM_HEADER_BYTES
            if space <= 0 and (used or at < len(body)):
                packets.append((used, pieces))
                pieces, used = [], 0
                continue
            piece = view[at : at + space]
            pieces.append(_ITEM.pack(identity, len(piece)))
            pieces.append(piece)
            used += ITEM_HEADER_BYTES + len(piece)
            at += len(piece)
            if at >= len(body):
                break
    packets.append((used, pieces))
    return packets


class PacketStream:
    """Cuts a byte stream into runs of whole packets; holds at most one unfinished packet."""

    __slots__ = ("_offset", "_partial")

    def __init__(self) -> None:
        self._partial = bytearray()
        self._offset = 0

    def receive(self, data: bytes) -> list[bytes]:
        """Runs of whole packets, in order: nothing is copied where `data` ends on a boundary."""
        runs: list[bytes] = []
        start = self._complete_partial(data, runs) if self._partial else 0
        end = self._whole(data, start)
        if start == 0 and end == len(data):
            if data:
                runs.append(data)
        else:
            if end > start:
                runs.append(data[start:end])
            self._partial += data[end:]
        self._offset += len(data)
        return runs

    def _complete_partial(self, data: bytes, runs: list[bytes]) -> int:
        """Finish the packet that the last chunk began; the offset in `data` where it ends."""
        partial = self._partial
        held = len(partial)
        if held < HEADER_BYTES:
            partial += data[: HEADER_BYTES - held]
            if len(partial) < HEADER_BYTES:
                return len(data)
        size = body_size(partial, 0, self._offset - held) + HEADER_BYTES
        partial += data[len(partial) - held : size - held]
        if len(partial) == size:
            runs.append(bytes(partial))
            self._partial = bytearray()
        return min(size - held, len(data))

    def _whole(self, data: bytes, at: int) -> int:
        """The offset after the last whole packet."""
        size = len(data)
        while at + HEADER_BYTES <= size:
            end = at + HEADER_BYTES + body_size(data, at, self._offset)
            if end > size:
                break
            at = end
        return at


def body_size(data: bytes | bytearray, at: int, offset: int = 0) -> int:
    """The length that the packet at `at` announces, checked; `offset` is for the error."""
    size = data[at + 1] << 8 | data[at + 2]
    if size > MAX_BODY:
        raise RemoteProtocolError(f"packet of {size} bytes, {MAX_BODY} at most", offset + at + 1)
    return size


def items_of(run: bytes, at: int, end: int) -> list[Item]:
    """The items of one packet; a length that leaves the packet ends the link."""
    items: list[Item] = []
    while at < end:
        body = at + ITEM_HEADER_BYTES
        if body > end:
            raise RemoteProtocolError("packet ends inside an item header", at)
        after = body + (run[at + 1] << 8 | run[at + 2])
        if after > end:
            raise RemoteProtocolError("item is longer than its packet", at + 1)
        items.append((run[at], run[body:after]))
        at = after
    return items


def joined_items(run: bytes, at: int, end: int) -> dict[int, bytes]:
    """The same by id; one that comes twice is joined, as it would be over two packets."""
    items: dict[int, bytes] = {}
    while at < end:
        body = at + ITEM_HEADER_BYTES
        if body > end:
            raise RemoteProtocolError("packet ends inside an item header", at)
        after = body + (run[at + 1] << 8 | run[at + 2])
        if after > end:
            raise RemoteProtocolError("item is longer than its packet", at + 1)
        identity = run[at]
        if identity in items:
            items[identity] += run[body:after]
        else:
            items[identity] = run[body:after]
        at = after
    return items
