"""Long messages put together again from their packets, within limits, one Assembler a link.

What makes no sense but keeps its lengths is refused with a nak and the link stays up; the
naks wait in `Assembler.take`. A length that cannot be raises RemoteProtocolError: close.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from homing.errors import RemoteProtocolError
from homing.wire.packet import (
    ACK,
    HANDSHAKE,
    HEAD,
    HEADER_BYTES,
    HOSTNAME,
    ITEM_HEADER_BYTES,
    MAX_KEY,
    MIDDLE,
    NAK,
    NONE,
    REASON,
    REDIRECTED,
    SINGLE,
    STATUS,
    TAIL,
    Item,
    Message,
    body_size,
    encode,
    items_of,
    joined_items,
)

MAX_MESSAGE: Final = 1 << 20
"""Bytes of items held for one message: a payload of a megabyte is a file, not a push."""
MAX_UNFINISHED: Final = 64
"""Messages under way on one connection: bounds its memory to 64 times MAX_MESSAGE."""
UNFINISHED_SECONDS: Final = 30.0
"""A sender that pauses this long inside a message has forgotten it."""

_PARTS: Final = frozenset((NONE, SINGLE, HEAD, MIDDLE, TAIL))
_PART_MASK: Final = 0xFF ^ REDIRECTED


class _Unfinished:
    """A long message of which the tail has not come."""

    __slots__ = ("command", "parts", "redirected", "size", "touched")

    def __init__(self, command: int, redirected: bool) -> None:
        self.command = command
        self.redirected = redirected
        self.touched = 0.0
        self.size = 0
        # Joined as they come, so that many tiny items cost no more memory than one long one.
        self.parts: dict[int, bytearray] = {}


class Assembler:
    """Turns runs of packets into messages, for one link; refusals wait in `take`."""

    __slots__ = (
        "_key",
        "_max_message",
        "_max_unfinished",
        "_naks",
        "_patience",
        "_refused",
        "_unfinished",
    )

    def __init__(
        self,
        key: int,
        *,
        max_message: int = MAX_MESSAGE,
        max_unfinished: int = MAX_UNFINISHED,
        patience: float = UNFINISHED_SECONDS,
    ) -> None:
        """`key`: the item id that carries the message id on this link."""
        self._key = key
        self._max_message = max_message
        self._max_unfinished = max_unfinished
        self._patience = patience
        # Both in order of the last packet. What was refused is remembered (as many as may be
        # under way) so that the rest of its packets is dropped without a nak for each.
        self._unfinished: dict[bytes, _Unfinished] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._naks: list[bytes] = []

    def __len__(self) -> int:
        return len(self._unfinished)

    @property
    def held(self) -> int:
        """Bytes held for unfinished messages."""
        return sum([waiting.size for waiting in self._unfinished.values()])

    def take(self) -> bytes:
        """The naks that the messages received so far have earned; empty mostly."""
        if not self._naks:
            return b""
        naks = b"".join(self._naks)
        self._naks.clear()
        return naks

    def receive(self, run: bytes, now: float) -> list[Message]:
        """The messages that `run`, one or more whole packets, brings to an end."""
        if self._unfinished:
            self.expire(now)
        messages: list[Message] = []
        at = 0
        size = len(run)
        while at < size:
            if at + HEADER_BYTES > size:
                raise RemoteProtocolError("run ends inside a packet header", at)
            end = at + HEADER_BYTES + body_size(run, at)
            if end > size:
                raise RemoteProtocolError("run ends inside a packet", at)
            if run[at + 3] == SINGLE and HANDSHAKE <= run[at] <= STATUS:  # nearly all of them
                messages.append(Message(run[at], joined_items(run, at + HEADER_BYTES, end)))
                at = end
            else:
                goes_on = self._packet(run, at, end, now, messages)
                at = self._alike(run, at, end) if goes_on else end
        return messages

    def _alike(self, run: bytes, at: int, end: int) -> int:
        """The end of the packets that go on just as the middle before them: most of a long message.

        They differ from it in nothing but what they bring of one item, so that is all that is read.
        """
        key_item = HOSTNAME if run[at] == STATUS else self._key
        key_at = at + HEADER_BYTES + ITEM_HEADER_BYTES
        body_at = key_at + run[key_at - 1] + ITEM_HEADER_BYTES
        if run[key_at - 3] != key_item or body_at > end:
            return end  # the key is not the first item, or the only one
        identity, size = run[body_at - 3], run[body_at - 2] << 8 | run[body_at - 1]
        if identity == key_item or body_at + size != end:
            return end
        waiting = self._unfinished[run[key_at : body_at - ITEM_HEADER_BYTES]]
        before, part, step = run[at:body_at], waiting.parts[identity], end - at
        room = self._max_message - waiting.size
        while run.startswith(before, end) and end + step <= len(run):
            room -= size + ITEM_HEADER_BYTES
            if room < 0:
                break  # refused as any other that is too large
            part += run[end + len(before) : end + step]
            end += step
            waiting.size += size + ITEM_HEADER_BYTES
        return end

    def expire(self, now: float) -> None:
        """Drop messages that have waited too long for their next packet."""
        for key, waiting in list(self._unfinished.items()):
            if now - waiting.touched < self._patience:
                return
            del self._unfinished[key]
            self._refuse(waiting.command, key, "timeout no packet for too long")

    def _packet(self, run: bytes, at: int, end: int, now: float, done: list[Message]) -> bool:
        """Take one packet; whether it was the middle of a long message that goes on."""
        command = run[at]
        extra = run[at + 3]
        items = items_of(run, at + HEADER_BYTES, end)
        part = extra & _PART_MASK
        if command < HANDSHAKE or command > STATUS or part not in _PARTS:
            what = "extra" if HANDSHAKE <= command <= STATUS else f"command {command}"
            self._refuse(command, _find(items, self._key), f"malformed unknown {what}")
        elif part <= SINGLE:
            whole = joined_items(run, at + HEADER_BYTES, end)
            done.append(Message(command, whole, extra & REDIRECTED != 0))
        else:
            return self._long(command, extra, items, now, done) and part == MIDDLE
        return False

    def _long(
        self, command: int, extra: int, items: list[Item], now: float, done: list[Message]
    ) -> bool:
        """One packet of a long message; whether more of it is awaited."""
        key_item = HOSTNAME if command == STATUS else self._key
        key = _find(items, key_item)
        if key is None or len(key) > MAX_KEY:
            self._refuse(command, None, "malformed part of a message without its id")
            return False
        waiting = self._place(command, extra, key)
        if waiting is None or not self._add(waiting, key, key_item, items):
            if extra & TAIL:
                self._refused.pop(key, None)
        elif extra & TAIL:
            whole = {identity: bytes(body) for identity, body in waiting.parts.items()}
            whole[key_item] = key
            done.append(Message(waiting.command, whole, waiting.redirected))
        else:
            waiting.touched = now
            self._unfinished[key] = waiting
            return True
        return False

    def _place(self, command: int, extra: int, key: bytes) -> _Unfinished | None:
        """The message this packet belongs to, taken out of the table; None: drop the packet."""
        waiting = self._unfinished.pop(key, None)
        if extra & HEAD:  # the same message again is a sender that starts over
            self._refused.pop(key, None)
            if len(self._unfinished) < self._max_unfinished:
                return _Unfinished(command, extra & REDIRECTED != 0)
            self._drop(command, key, f"too-large {self._max_unfinished} messages under way")
        elif waiting is None and key not in self._refused:
            self._drop(command, key, "malformed middle or tail of an unknown message")
        return waiting

    def _add(self, waiting: _Unfinished, key: bytes, key_item: int, items: list[Item]) -> bool:
        """Join what a packet brings to its message; False when that makes it too large."""
        for identity, body in items:
            if identity != key_item:
                # The header counts too: empty items must not be free.
                waiting.size += len(body) + ITEM_HEADER_BYTES
                part = waiting.parts.get(identity)
                if part is None:
                    part = waiting.parts[identity] = bytearray()
                part += body
        if waiting.size <= self._max_message:
            return True
        self._drop(waiting.command, key, f"too-large over {self._max_message} bytes")
        return False

    def _drop(self, command: int, key: bytes, reason: str) -> None:
        """Refuse a long message, once."""
        if len(self._refused) >= self._max_unfinished:
            self._refused.popitem(last=False)
        self._refused[key] = None
        self._refuse(command, key, reason)

    def _refuse(self, command: int, key: bytes | None, reason: str) -> None:
        if command in (ACK, NAK):
            return  # an answer is never answered: two confused nodes would not stop
        known = (self._key, key) if key is not None and len(key) <= MAX_KEY else None
        self._naks.append(encode(NAK, [(REASON, reason.encode())], key=known))


def _find(items: Iterable[Item], wanted: int) -> bytes | None:
    for identity, body in items:
        if identity == wanted:
            return body
    return None
