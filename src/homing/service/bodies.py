"""Bodies: what applications hand over and get back, and the frames in between.

What a type says of a body, for a worker's annotation and for a client's `returns`:

    bytes          the body as it is; several frames are joined
    list[bytes]    every frame
    str            UTF-8 text
    anything else  decoded (and checked) by msgspec, from JSON or MessagePack

and the other way: bytes, lists of bytes and str go out as they are, None as one empty frame,
anything else is encoded.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any

import msgspec

from homing.errors import Malformed
from homing.wire.frames import LAST, LONG, MORE, SHORT_MAX, frame, pack, unpack

EMPTY = frame(b"", False)

Read = Callable[[bytes], Any]


class Codec:
    """One way of writing values: JSON or MessagePack."""

    def __init__(
        self, name: str, encode: Callable[[Any], bytes], decoder: Callable[[Any], Any]
    ) -> None:
        self.name = name
        self._encode = encode
        self._decoder = decoder
        self._readers: dict[Any, Read] = dict(_PLAIN)

    def write(self, body: Any) -> bytes:
        """The data frames of a body."""
        if type(body) is bytes:
            return LAST[len(body)] + body if len(body) <= SHORT_MAX else frame(body, False)
        if isinstance(body, str):
            try:
                return frame(body.encode(), False)
            except UnicodeEncodeError as error:
                raise Malformed(f"text that has no UTF-8: {error}") from None
        if body is None:
            return EMPTY
        if isinstance(body, bytearray | memoryview):
            return frame(bytes(body), False)
        if isinstance(body, list) and body and all(type(part) is bytes for part in body):
            return pack(body)
        try:
            return frame(self._encode(body), False)
        except (TypeError, ValueError, OverflowError) as error:
            raise Malformed(f"cannot write this body as {self.name}: {error}") from None

    def reader(self, kind: Any) -> Read:
        """The function that turns data frames into a value of this type."""
        try:
            read = self._readers.get(kind)
        except TypeError:  # an annotation that cannot be hashed
            return self._typed(kind)
        if read is None:
            # One entry for each type that a program names, so it does not grow with traffic.
            read = self._readers[kind] = self._typed(kind)
        return read

    def _typed(self, kind: Any) -> Read:
        decode = self._decoder(kind).decode

        def read(data: bytes) -> Any:
            try:
                return decode(body_of(data))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Malformed(f"not the {self.name} that was expected: {error}") from None

        return read


def body_of(data: bytes) -> bytes:
    """The one body in these data frames; several are joined."""
    flags = data[0]
    if flags & MORE:
        return b"".join(unpack(data))
    return data[9:] if flags & LONG else data[2:]


def _text(data: bytes) -> str:
    try:
        return body_of(data).decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 text: {error}") from None


def _nothing(data: bytes) -> None:
    return None


_PLAIN: dict[Any, Read] = {
    bytes: body_of,
    list[bytes]: unpack,
    str: _text,
    type(None): _nothing,
    None: _nothing,
}

JSON = Codec("json", msgspec.json.encode, msgspec.json.Decoder)
MSGPACK = Codec("msgpack", msgspec.msgpack.encode, msgspec.msgpack.Decoder)
_BY_NAME = {codec.name: codec for codec in (JSON, MSGPACK)}


def codec_named(name: str) -> Codec:
    """JSON or MessagePack by name."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ValueError(f"no codec {name!r}; there are: {', '.join(_BY_NAME)}") from None


Bodies = Iterable[Any] | AsyncIterable[Any]
