"""The JSON inside the subscriber's wire: auth, push and gap (protocol §5.2, §5.4)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from homing.errors import Malformed
from homing.wire.session import framed

Scalar = bool | int | float | str
Attributes = dict[str, Scalar]


class Auth(Struct, frozen=True):
    """What a subscriber says of itself.

    `ack` makes its session durable, `resume` replays what it missed, `slow` chooses what
    happens when it does not keep up.
    """

    client_id: str
    timestamp: int
    token: str
    ack: bool = False
    resume: bool = False
    slow: Literal["spill", "drop-oldest", "disconnect"] | None = None


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
_pushes: msgspec.json.Decoder[Push | Gap] = msgspec.json.Decoder(Push | Gap)
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


def decode(json: bytes) -> Push | Gap:
    """What a connector pushed; Malformed if it is neither a push nor a gap."""
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
