"""Tasks: `[header JSON] [body]` images <-> messages.

What stands before the header is the ZeroMQ envelope: nothing (a bare DEALER), the empty delimiter,
or one frame and the delimiter (a REQ that correlates). It is kept as the bytes it came in and
stands before every answer. The body is never opened, except CONFIG's. A request that came in as
Majordomo may have more than one frame of data: they all follow the header.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from homing.errors import LocalProtocolError, RemoteProtocolError
from homing.wire.frames import MORE, frame, head

HEADER_MAX: Final = 4096
"""Longest header: every field is a name, an id or a number; 4 KiB is ten times the largest sane one."""
NAME_MAX: Final = 255
ID_MAX: Final = 255
ENVELOPE_MAX: Final = 255
NO_BODY: Final = b"\x00\x00"

# Whatever was sent comes back: nanoseconds are more than a float can hold, 64 bits what msgpack can.
Stamp = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | float | str | None
# JSON's own may have hundreds of digits, which no clock can add.
Count = Annotated[int, msgspec.Meta(le=2**32 - 1)]


class Connect(msgspec.Struct, frozen=True, tag=True):
    """Worker to broker: here I am."""

    service: str = ""
    worker: str = ""
    credit: int = 1


class Config(msgspec.Struct, frozen=True):
    """Broker to worker: the answer to Connect."""

    broker: str
    group: list[str]
    heartbeat_ms: Count
    liveness: Count
    max_body: int


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Are you there? Either way."""

    ts: Stamp = None


class Pong(msgspec.Struct, frozen=True, tag=True):
    """Yes, with the Ping's `ts`."""

    ts: Stamp = None


class Task(msgspec.Struct, frozen=True, tag=True):
    """Client to broker to worker. `data`: the body's frame (or frames) with headers."""

    service: str
    message_id: str
    data: bytes
    priority: int = 4
    timeout_ms: int = 0


class Response(msgspec.Struct, frozen=True, tag=True):
    """Worker to broker to client."""

    service: str
    message_id: str
    data: bytes


class Error(msgspec.Struct, frozen=True, tag=True):
    """Broker to anyone: a NAK code, and why."""

    code: str
    reason: str = ""
    message_id: str = ""


class Disconnect(msgspec.Struct, frozen=True, tag=True):
    """Either way: the last message of a conversation."""


Message = Connect | Config | Ping | Pong | Task | Response | Error | Disconnect


class _Header(msgspec.Struct, omit_defaults=True):
    """The header as JSON has it; unknown fields are skipped."""

    request: str
    type: str | None = ""  # null is how some say that they have none
    service: str = ""
    message_id: str | None = ""
    worker: str | None = ""
    credit: int = 1
    ts: Stamp = None
    code: str = ""
    reason: str = ""
    priority: int = 4
    timeout_ms: int = 0


_headers: Final = msgspec.json.Decoder(_Header)
_configs: Final = msgspec.json.Decoder(Config)
_json: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder().encode


def read(image: bytes) -> tuple[bytes, Message]:
    """The envelope (as bytes to put before an answer) and the message."""
    at, raw, end = _find_header(image)
    header = _header(raw, at)
    if len(header.service.encode()) > NAME_MAX or len(_id(header).encode()) > ID_MAX:
        raise RemoteProtocolError(f"service and message_id have at most {NAME_MAX} bytes", at)
    data = image[end:] or NO_BODY
    return image[:at], _message(header, data, at)


def _header(raw: bytes, at: int) -> _Header:
    try:
        try:
            return _headers.decode(raw)
        except msgspec.ValidationError:
            if b"null" not in raw:
                raise
            # Some write down every field they know of: what is null is not there.
            known = {name: value for name, value in _json(raw).items() if value is not None}
            return msgspec.convert(known, _Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"header: {error}", at) from error


def _find_header(image: bytes) -> tuple[int, bytes, int]:
    """Where the header's frame starts, its bytes, and where the body's frame starts."""
    at = 0
    for _ in range(3):
        frames, end = head(image, 1, at)
        body = frames[0]
        if body.startswith(b"{") or (body[:1].isspace() and body.lstrip().startswith(b"{")):
            if len(body) > HEADER_MAX:
                raise RemoteProtocolError(f"a header has at most {HEADER_MAX} bytes", at)
            return at, body, end
        if not image[at] & MORE or len(body) > ENVELOPE_MAX or (at and body):
            break
        at = end
    raise RemoteProtocolError("no header: a JSON object was expected", at)


def envelope_of(image: bytes) -> bytes:
    """What stands before the answer to something that `read` could not read.

    A REQ hears only what follows its delimiter.
    """
    at = 0
    for _ in range(2):
        try:
            frames, end = head(image, 1, at)
        except RemoteProtocolError:
            break
        if not image[at] & MORE or len(frames[0]) > ENVELOPE_MAX:
            break
        if not frames[0]:
            return image[:end]
        at = end
    return b""


def id_of(image: bytes) -> str:
    """The message id of a task that `read` could not read, where that much is known."""
    try:
        found = _json(_find_header(image)[1]).get("message_id")
    except (RemoteProtocolError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return found if isinstance(found, str) and len(found.encode()) <= ID_MAX else ""


def _id(header: _Header) -> str:
    return header.message_id or ""


def _message(header: _Header, data: bytes, at: int) -> Message:
    match header.request, header.type or "":
        case "TASK", "REQUEST":
            return _task(header, data, at)
        case "TASK", "RESPONSE":
            if not header.message_id:
                raise RemoteProtocolError("a response needs the task's message_id", at)
            return Response(header.service, header.message_id, data)
        case "PING", "":
            return Ping(header.ts)
        case "PONG", "":
            return Pong(header.ts)
        case "CONNECT", "":
            if not 1 <= header.credit <= 65536:
                raise RemoteProtocolError("credit is 1 to 65536", at)
            return Connect(header.service, header.worker or "", header.credit)
        case "CONFIG", "":
            return _config(data)
        case "ERROR", "":
            return Error(header.code, header.reason, _id(header))
        case "DISCONNECT", "":
            return Disconnect()
    raise RemoteProtocolError(f"unknown request {header.request!r} {header.type!r}"[:120], at)


def _task(header: _Header, data: bytes, at: int) -> Task:
    if not header.service:
        raise RemoteProtocolError("a task names its service", at)
    if not (0 <= header.priority <= 9 and 0 <= header.timeout_ms < 1 << 32):
        raise RemoteProtocolError("priority is 0-9, timeout_ms a 32-bit number", at)
    return Task(header.service, _id(header), data, header.priority, header.timeout_ms)


def _config(data: bytes) -> Config:
    frames, _ = head(data, 1)
    try:
        return _configs.decode(frames[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"config: {error}") from error


def write(message: Message, envelope: bytes = b"") -> bytes:
    """The wire image of a message behind an envelope."""
    match message:
        case Task(service, message_id, data, priority, timeout_ms):
            header = _Header(
                "TASK",
                "REQUEST",
                service,
                message_id,
                priority=priority,
                timeout_ms=timeout_ms,
            )
        case Response(service, message_id, data):
            header = _Header("TASK", "RESPONSE", service, message_id)
        case Connect(service, worker, credit):
            header, data = _Header("CONNECT", "", service, "", worker, credit), NO_BODY
        case Config():
            header, data = _Header("CONFIG"), frame(_encode(message), False)
        case Ping(ts):
            header, data = _Header("PING", ts=ts), NO_BODY
        case Pong(ts):
            header, data = _Header("PONG", ts=ts), NO_BODY
        case Error(code, reason, message_id):
            # A reason is always there, if only the code once more: whoever reads it need not ask.
            header = _Header("ERROR", message_id=message_id, code=code, reason=reason or code)
            data = NO_BODY
        case Disconnect():
            header, data = _Header("DISCONNECT"), NO_BODY
        case _:
            raise LocalProtocolError(f"no such message: {message!r}")
    return envelope + frame(_encode(header), True) + data
