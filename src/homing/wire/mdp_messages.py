"""What Majordomo peers say to each other, as values: one class a message, whatever the dialect.

`data` is never opened: it is the tail of the wire image (homing.wire.frames), one or more whole
frames with their headers, exactly as they arrived. `address` is the `[client]` frame of the
worker's side: opaque, echoed by whoever answers.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Dialect(IntEnum):
    """Which Majordomo a peer speaks; each is answered in the one it arrived with."""

    D0X = 0
    D01 = 1
    D02 = 2


class Kind(IntEnum):
    """What an answer is."""

    FINAL = 0
    PARTIAL = 1
    FAILED = 2


class Message(msgspec.Struct, frozen=True, gc=False):
    """The root of all messages below."""


class Request(Message, frozen=True, gc=False):
    """Client to broker (C1, B1). `envelope`: the frame before the delimiter, or empty."""

    dialect: Dialect
    service: bytes
    data: bytes
    envelope: bytes = b""


class Report(Message, frozen=True, gc=False):
    """Broker to client (C2, B6): an answer or a part of one (never FAILED: that is a Nak)."""

    dialect: Dialect
    kind: Kind
    service: bytes
    data: bytes
    envelope: bytes = b""


class Nak(Message, frozen=True, gc=False):
    """Broker to client (B9); `0X` only, the other dialects have no refusal."""

    service: bytes
    reason: bytes
    envelope: bytes = b""


class Ready(Message, frozen=True, gc=False):
    """Worker to broker (W1). No service: any service. Credit above 1: `0X` only.

    `slowest`, `0X` only: milliseconds between heartbeats that it can keep to while it is idle; 0: it does not say.
    """

    dialect: Dialect
    service: bytes = b""
    credit: int = 1
    slowest: int = 0


class Work(Message, frozen=True, gc=False):
    """Broker to worker (W2, and W3 with the `origin` peer's cloudbe id).

    `01` and `02` workers serve one service and are not told its name: theirs is empty.
    """

    dialect: Dialect
    service: bytes
    address: bytes
    data: bytes
    origin: bytes = b""


class Answer(Message, frozen=True, gc=False):
    """Worker to broker (W4, and W5 with the `origin`); FAILED carries its reason as data."""

    dialect: Dialect
    kind: Kind
    address: bytes
    service: bytes
    data: bytes
    origin: bytes = b""


class Heartbeat(Message, frozen=True, gc=False):
    """Either way between broker and worker (W6).

    `interval`, only to a `0X` worker that said its `slowest`: milliseconds between heartbeats from now on, while it is idle.
    """

    dialect: Dialect
    interval: int = 0


class Disconnect(Message, frozen=True, gc=False):
    """Either way between broker and worker (W6): the last message of a conversation."""

    dialect: Dialect


class Repost(Message, frozen=True, gc=False):
    """Broker to peer (B3, B4): a request that the origin has no free worker for."""

    service: bytes
    origin: bytes
    address: bytes
    data: bytes


class PeerAnswer(Message, frozen=True, gc=False):
    """Peer back to the origin (B7, B8): an answer or a part of one."""

    kind: Kind
    address: bytes
    service: bytes
    data: bytes


class PeerNak(Message, frozen=True, gc=False):
    """Peer back to the origin (B10): it cannot serve this."""

    address: bytes
    service: bytes
    reason: bytes


class State(Message, frozen=True, gc=False):
    """Broker to all peers (S1): free capacity in all, and by service; `*` is any service."""

    broker: bytes
    idle: int
    services: dict[str, int]


class Options(msgspec.Struct, frozen=True, gc=False):
    """What a `0X` envelope that starts with `HM` asks for (ADR 0010)."""

    partials: bool = False
    priority: int = 4
    timeout_ms: int = 0
    id: bytes = b""
