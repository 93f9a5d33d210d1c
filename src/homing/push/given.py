"""What callers give to a publisher or a subscriber: checked before anything of it is kept or sent. Pure.

A wrong value is a HomingError that says what would be right, a wrong type a TypeError, at the call that gave it:
what has no meaning must not wait in a queue for the next connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from homing.errors import ConfigError, Malformed, SubscriptionError
from homing.ids import ID_BYTES, parse_id
from homing.push.filters import parse_filter
from homing.push.subscription import (
    Fields,
    check_attributes,
    check_fields,
    check_name,
    parse_field,
)
from homing.push.values import Field, Value
from homing.wire.packet import ITEM_HEADER_BYTES, MAX_BODY
from homing.wire.pushed import MAX_WAIT

# A filter, or for each attribute its field, made by homing or described as PROTOCOL 5.3 has it.
Wanted: TypeAlias = str | Mapping[str, Field] | Mapping[str, Mapping[str, Any]]


# A handshake is one packet, as there is no message id that its parts could be told by.
MAX_TOKEN = MAX_BODY - ITEM_HEADER_BYTES


def seconds(timeout: object) -> float | None:
    """A timeout: more than 0 seconds, or None for ever."""
    if timeout is None or (isinstance(timeout, int | float) and timeout > 0):
        return timeout
    raise ConfigError(
        [f"timeout is a number of seconds above 0, or None to wait for ever, not {timeout!r}"],
        hint="",
    )


def window(size: object) -> int:
    """How many may be under way."""
    if not isinstance(size, int) or size < 1:
        raise ConfigError([f"window: at least 1 publication under way, not {size!r}"], hint="")
    return size


def token(text: object) -> bytes:
    """A key as the wire has it; none is empty."""
    if not isinstance(text, str):
        raise TypeError(f"a token is text, not {type(text).__name__}; none is an empty one")
    try:
        token = text.encode()
    except UnicodeEncodeError as error:
        raise Malformed(f"a token has no UTF-8: {error}") from error
    if len(token) > MAX_TOKEN:
        raise Malformed(f"a token of {len(token)} bytes, {MAX_TOKEN} at most")
    return token


def endpoints(given: tuple[object, ...], default: str) -> tuple[str, ...]:
    """One after the other, each a text; the default if there are none."""
    for one in given:
        if not isinstance(one, str):
            raise TypeError(
                f"an endpoint is text such as {default!r}, each an argument of its own, not {one!r}"
            )
    return tuple(str(one) for one in given) or (default,)


def client_id(text: object) -> str:
    """A subscriber's own id, as every connector checks it."""
    if not isinstance(text, str):
        raise TypeError(f"a client id is text, 24 hex digits, not {text!r}")
    try:
        parse_id(text)
    except Malformed as error:
        raise Malformed(
            str(error),
            hint="secrets.token_hex(12) makes one; keep it, it is this client's for good",
        ) from None
    return text


def parts(publication: object) -> Any:
    """One of several publications: two things or three."""
    if isinstance(publication, tuple | list) and 2 <= len(publication) <= 3:
        return publication
    raise TypeError(
        "a publication is (attributes, payload) or (attributes, payload, identity), "
        f"not {publication!r:.60}"
    )


def waits(seconds: float | None, told: bool) -> None:
    """How long a session waits for a connector that is away, and whether somebody wants to hear of it."""
    if seconds is not None and not 0 <= seconds <= MAX_WAIT:
        raise ConfigError([f"wait is 0 to {MAX_WAIT:g} seconds, got {seconds:g}"], hint="")
    if told and seconds is None:
        raise ConfigError(["who wants to hear of waiting says how long to wait"], hint="")


def proofs(authority: str, api_key: str, token: str, credentials: object) -> None:
    """What a subscriber proves who it is with: a token, or an authority that gives it one."""
    if authority and (token or credentials):
        raise ConfigError(["either an authority or a token, not both"], hint="")
    if api_key and not authority:
        raise ConfigError(["an api_key is for an authority, and none is named"], hint="")
    if not all(" " <= sign <= "\xff" for sign in api_key):
        raise ConfigError(["an api_key is sent in a header: printable Latin-1 alone"], hint="")
    if credentials is not None and not callable(credentials):
        raise TypeError(
            f"credentials are a function that gives (timestamp, token), not {credentials!r}"
        )


def publication(attributes: object, payload: object) -> tuple[bytes, bytes]:
    """JSON and bytes of a publication."""
    known = attributes if type(attributes) is dict else _named(attributes)
    check_attributes(known)
    try:
        json = _encode(known)
        body = payload if type(payload) is bytes else _body(payload)
    except UnicodeEncodeError as error:
        raise SubscriptionError(f"text that has no UTF-8: {error}") from error
    return json, body


def identity(given: object) -> bytes:
    """A message id of the caller's; none is empty."""
    if given and not isinstance(given, bytes):
        raise TypeError(f"a message id is {ID_BYTES} bytes, not {type(given).__name__}")
    if isinstance(given, bytes) and given and len(given) != ID_BYTES:
        raise Malformed(f"a message id is {ID_BYTES} bytes, got {len(given)}")
    return given if isinstance(given, bytes) else b""


def alternatives(wanted: object) -> list[Fields]:
    """Subscriptions of which one must be satisfied."""
    if isinstance(wanted, str):
        return parse_filter(wanted)
    if not isinstance(wanted, Mapping):
        raise TypeError(
            f"a subscription is a filter in text, or a field for each attribute, not {wanted!r:.60}"
        )
    if not wanted:
        raise Malformed(
            "a subscription without any field",
            hint="`exists(NAME)` has all that have the attribute",
        )
    return [
        check_fields(
            {
                check_name(name): field if isinstance(field, Field) else parse_field(field)
                for name, field in wanted.items()
            }
        )
    ]


def subscription_name(name: object, default: str) -> str:
    """The default one's if it is empty."""
    if name and not isinstance(name, str):
        raise TypeError(f"a subscription's name is text, not {type(name).__name__}")
    text = check_name(name or default)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SubscriptionError(f"text that has no UTF-8: {error}") from error
    return text


def _named(attributes: object) -> dict[Any, Any]:
    if not isinstance(attributes, Mapping):
        raise TypeError(
            f"attributes are a mapping: name to number, string or boolean, not {attributes!r:.60}"
        )
    return dict(attributes)


def _plain(value: object) -> Value:
    """Numbers and strings of other libraries' own classes, numpy's for example, are what they hold."""
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{type(value).__name__} is no number, string or boolean")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _body(payload: object) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise TypeError(f"a payload is bytes or text, not {type(payload).__name__}: encode it first")
