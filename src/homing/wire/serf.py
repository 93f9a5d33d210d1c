"""Serf's RPC: MessagePack values on a stream, each a header and, for some, a body.

    we send     {"Command": c, "Seq": n}  and, for most commands, a body
    it answers  {"Seq": n, "Error": ""}   and, for `BODIES` and every stream record, a body

Serf writes MessagePack's first edition, which has one type for text and bytes, and addresses
are raw bytes in it. A decoder of today's edition refuses those as text that is not UTF-8, so
the values are read here: text keeps stray bytes as surrogates.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from homing.errors import RemoteProtocolError, TooLargeOnWire

VERSION = 1

BODIES = frozenset({"members", "members-filtered", "join", "get-coordinate", "stats"})
"""Commands whose answer is followed by a body; a body never follows an error."""

MAX_VALUE = 4 << 20
"""A members list of 10 000 nodes with full tags is under 4 MiB: more is not Serf."""

MAX_DEPTH = 16
"""Serf nests four deep; deeper is an attack on the stack."""

_SCALARS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_TEXT_WIDTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LIST_WIDTHS = {0xDC: 2, 0xDD: 4}
_MAP_WIDTHS = {0xDE: 2, 0xDF: 4}

Value = None | bool | int | float | str | list[Any] | dict[str, Any]


class _Short(Exception):
    """The value is not there in full yet."""


def decode(data: bytes | bytearray, at: int = 0) -> tuple[Value, int] | None:
    """The value at `at` and the offset after it; None while it is incomplete."""
    try:
        return _value(data, at, 0)
    except _Short:
        return None


def _value(data: bytes | bytearray, at: int, depth: int) -> tuple[Value, int]:
    if depth > MAX_DEPTH:
        raise RemoteProtocolError("MessagePack nested too deep", at)
    if at >= len(data):
        raise _Short
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first < 0x90:
        return _map(data, at, first & 0x0F, depth)
    if first < 0xA0:
        return _list(data, at, first & 0x0F, depth)
    if first < 0xC0:
        return _text(data, at, first & 0x1F)
    return _wide(data, at, first, depth)


def _wide(data: bytes | bytearray, at: int, first: int, depth: int) -> tuple[Value, int]:
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _SCALARS:
        form = _SCALARS[first]
        end = at + struct.calcsize(form)
        if end > len(data):
            raise _Short
        return struct.unpack_from(form, data, at)[0], end
    if first in _TEXT_WIDTHS:
        width = _TEXT_WIDTHS[first]
        return _text(data, at + width, _length(data, at, width))
    if first in _LIST_WIDTHS:
        width = _LIST_WIDTHS[first]
        return _list(data, at + width, _length(data, at, width), depth)
    if first in _MAP_WIDTHS:
        width = _MAP_WIDTHS[first]
        return _map(data, at + width, _length(data, at, width), depth)
    raise RemoteProtocolError(f"a MessagePack type that Serf never sends: {first:#x}", at - 1)


def _length(data: bytes | bytearray, at: int, width: int) -> int:
    if at + width > len(data):
        raise _Short
    size = int.from_bytes(data[at : at + width], "big")
    if size > MAX_VALUE:
        raise TooLargeOnWire(f"a value of {size} bytes or items", at)
    return size


def _text(data: bytes | bytearray, at: int, size: int) -> tuple[str, int]:
    if at + size > len(data):
        raise _Short
    return data[at : at + size].decode("utf-8", "surrogateescape"), at + size


def _list(data: bytes | bytearray, at: int, count: int, depth: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, at = _value(data, at, depth + 1)
        items.append(item)
    return items, at


def _map(data: bytes | bytearray, at: int, count: int, depth: int) -> tuple[dict[str, Any], int]:
    items: dict[str, Any] = {}
    for _ in range(count):
        key, at = _value(data, at, depth + 1)
        value, at = _value(data, at, depth + 1)
        if not isinstance(key, str):
            raise RemoteProtocolError("a map key that is no text", at)
        items[key] = value
    return items, at


def encode(command: str, seq: int, body: dict[str, Any] | None = None) -> bytes:
    """One request."""
    header = msgspec.msgpack.encode({"Command": command, "Seq": seq})
    return header if body is None else header + msgspec.msgpack.encode(body)


class Answer(msgspec.Struct, frozen=True):
    """One answer or stream record: `body` is empty where none belongs to it."""

    seq: int
    error: str
    body: dict[str, Any]


class Decoder:
    """Turns the agent's bytes into answers; told which commands are under way."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._commands: dict[int, str] = {}
        self._streams: set[int] = set()
        self._header: tuple[int, str] | None = None

    def expect(self, seq: int, command: str) -> None:
        """An answer to this command will come under this number."""
        self._commands[seq] = command

    def receive(self, data: bytes) -> list[Answer]:
        """The answers that are now there in full."""
        self._buffer += data
        answers: list[Answer] = []
        at = 0
        while (found := decode(self._buffer, at)) is not None:
            value, end = found
            if not isinstance(value, dict):
                raise RemoteProtocolError("expected a map", at)
            answer = self._value(value)
            at = end
            if answer is not None:
                answers.append(answer)
        del self._buffer[:at]
        if len(self._buffer) > MAX_VALUE:
            raise TooLargeOnWire("a value over the limit", len(self._buffer))
        return answers

    def _value(self, value: dict[str, Any]) -> Answer | None:
        if self._header is not None:
            header, self._header = self._header, None
            return Answer(*header, value)
        seq: Any = value.get("Seq")
        error: Any = value.get("Error", "")
        if not isinstance(seq, int) or not isinstance(error, str):
            raise RemoteProtocolError("an answer without Seq and Error", 0)
        if self._has_body(seq, error):
            self._header = (seq, error)
            return None
        return Answer(seq, error, {})

    def _has_body(self, seq: int, error: str) -> bool:
        if seq in self._streams:
            return True
        command = self._commands.pop(seq, "")
        if command == "stream" and not error:
            self._streams.add(seq)
        return command in BODIES and not error
