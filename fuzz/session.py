"""The subscriber's wire: any bytes, in two chunkings, give the same commands and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from homing.errors import Malformed, WireError
from homing.wire import pushed, session
from homing.wire.session import AnswerStream, CommandStream

T = TypeVar("T")

SEEDS = (
    session.HEARTBEAT + session.command([b"sub", b"price", b'{"use":2,"low":1}']),
    session.command([b"auth", b'{"client_id":"00","timestamp":1,"token":"00","ack":true}']),
    session.status(True, "authsuccess") + pushed.push(bytes(12), b"hi\xff", b"{}", ["default"]),
    pushed.gap(3, bytes(12), bytes(12)) + session.status(False, "replaced"),
)


def target(data: bytes) -> None:
    _commands(data)
    _answers(data)


def _commands(data: bytes) -> None:
    whole = _received(CommandStream().receive, [data])
    trickled = _received(CommandStream().receive, _pieces(data))
    assert trickled[: len(whole)] == whole
    for frame in trickled:
        try:
            parts = session.elements(frame)
        except WireError:
            continue
        # Numbers may have leading zeros; what they say is the same.
        assert session.elements(session.command(parts)) == parts
        for part in parts:
            _quietly(pushed.decode_auth, part)


def _answers(data: bytes) -> None:
    for answer in _received(AnswerStream().receive, _pieces(data)):
        if isinstance(answer, bytes):
            _quietly(pushed.decode, answer)


def _received(receive: Callable[[bytes], list[T]], chunks: list[bytes]) -> list[T]:
    found: list[T] = []
    try:
        for chunk in chunks:
            found += receive(chunk)
    except WireError:
        pass
    return found


def _pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def _quietly(decode: Callable[[bytes], object], body: bytes) -> None:
    try:
        decode(body)
    except Malformed:
        return
