"""The JSON inside the subscriber's wire: auth, push and gap (protocol §5.2, §5.4), and wait."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from homing.errors import Malformed
from homing.wire.session import framed

Scalar = bool | int | float | str
Attributes = dict[str, Scalar]

MAX_WAIT: Final = 600.0
"""Seconds a session may ask to wait: ten minutes of a machine that starts anew. A client that hears
nothing for longer is of more use with what there is."""


class Auth(Struct, frozen=True):
    """What a subscriber says of itself.

    `ack` makes its session durable, `resume` replays what it missed, `slow` chooses what
    happens when it does not keep up. `wait`: seconds that a durable session waits for a connector that
    is away and may hold something older, counted from when it went; who says it is told of waiting.
    """

    client_id: str
    timestamp: int
    token: str
    ack: bool = False
    resume: bool = False
    slow: Literal["spill", "drop-oldest", "disconnect"] | None = None
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] | None = None


class Push(Struct, frozen=True, tag="push"):
    """A publication as a subscriber sees it; `body` gives the payload's bytes."""

    id: str
    payload: str
    attrs: Attributes
    subs: list[str]
    encoding: Literal["base64"] | None = None
    redelivered: bool = False

    @property
    def body(self) -> bytes:
        if not self.encoding:
            return self.payload.encode()
        try:
            return b64decode(self.payload, validate=True)
        except ValueError as error:
            raise Malformed(f"the payload is not base64: {error}") from error


class Gap(Struct, frozen=True, tag="gap"):
    """`dropped` publications between `first` and `last` did not fit this client's buffer."""

    dropped: int
    first: str
    last: str


class Wait(Struct, frozen=True, tag="wait"):
    """Nothing is pushed for up to so many seconds: these connectors are away, and may hold something older."""

    seconds: float
    connectors: list[str]


class _Outgoing(Struct, tag="push", omit_defaults=True):
    """Push with its attributes as the JSON they came in."""

    id: str
    payload: str
    attrs: Raw
    subs: Sequence[str]
    encoding: str = ""
    redelivered: bool = False


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode
_pushes: msgspec.json.Decoder[Push | Gap | Wait] = msgspec.json.Decoder(Push | Gap | Wait)
_auths = msgspec.json.Decoder(Auth)


def push(
    message_id: bytes,
    payload: bytes,
    attributes: bytes,
    subscriptions: Sequence[str],
    redelivered: bool = False,
) -> bytes:
    """A push as it travels: made once for a fan-out, the same object for every link."""
    try:
        text, encoding = payload.decode(), ""
    except UnicodeDecodeError:
        text, encoding = b64encode(payload).decode(), "base64"
    return framed(
        _encode(
            _Outgoing(message_id.hex(), text, Raw(attributes), subscriptions, encoding, redelivered)
        )
    )


def gap(dropped: int, first: bytes, last: bytes) -> bytes:
    """A gap as it travels."""
    return framed(_encode(Gap(dropped, first.hex(), last.hex())))


def wait(seconds: float, connectors: Iterable[bytes]) -> bytes:
    """A wait as it travels."""
    return framed(_encode(Wait(round(seconds, 3), [one.hex() for one in connectors])))


def decode(json: bytes) -> Push | Gap | Wait:
    """What a connector pushed; Malformed if it is neither a push, a gap nor a wait."""
    try:
        return _pushes.decode(json)
    except _UNREADABLE as error:
        raise Malformed(f"not a push: {error}") from error


def decode_auth(json: bytes) -> Auth:
    """The second element of `auth`."""
    try:
        return _auths.decode(json)
    except _UNREADABLE as error:
        raise Malformed(f"not an auth: {error}") from error
