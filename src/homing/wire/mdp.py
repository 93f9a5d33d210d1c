"""Majordomo: wire images <-> messages, in the dialects `0X`, `01` (7/MDP) and `02` (18/MDP).

Readers look at the leading frames only and hand the data on as the slice it arrived in.
Writers come in two forms: `write(message)` for everybody, and the `*_head` functions, which
give the bytes that stand before the data, for a broker that computes them once and joins.

The routing id that a ROUTER shows its application is not part of an image: on homing's own
sockets it is the link's `peer`. The other explicit addresses (rows B3 to B8 of the protocol page)
are frames like any other.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Final

from homing.errors import LocalProtocolError, RemoteProtocolError
from homing.wire.frames import MORE, SHORT, SHORT_MAX, frame, head, pack, prefix, unpack
from homing.wire.mdp_fields import (
    CREDIT_MAX,
    EMPTY,
    ENVELOPE_MAX,
    INTERVAL_MAX,
    NAME_MAX,
    read_address,
    read_command,
    read_decimal,
    read_frame,
    read_last,
    read_service,
)
from homing.wire.mdp_messages import (
    Answer,
    Dialect,
    Disconnect,
    Heartbeat,
    Kind,
    Message,
    Nak,
    Options,
    Ready,
    Report,
    Request,
    Work,
)

# Members looked up once: the attribute access of an enum class is slow.
D0X, D01, D02 = Dialect.D0X, Dialect.D01, Dialect.D02
FINAL, PARTIAL, FAILED = Kind.FINAL, Kind.PARTIAL, Kind.FAILED

_CLIENT: Final = {D0X: b"MDPC0X", D01: b"MDPC01", D02: b"MDPC02"}
_WORKER: Final = {D0X: b"MDPW0X", D01: b"MDPW01", D02: b"MDPW02"}

# Commands of `0X`; PARTIAL*, FAILED are homing's own (ADR 0011).
C_REQUEST, C_REPORT, C_NAK, C_REPOST, C_PARTIAL = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
W_READY, W_REQUEST, W_REPORT, W_HEARTBEAT, W_DISCONNECT = (
    b"\x01",
    b"\x02",
    b"\x03",
    b"\x04",
    b"\x05",
)
W_REPOST, W_REPORT_LOCAL, W_REPORT_CLOUD = b"\x06", b"\x07", b"\x08"
W_PARTIAL_LOCAL, W_PARTIAL_CLOUD, W_FAILED = b"\x09", b"\x0a", b"\x0b"
# Commands of `02`, where they differ.
C02_PARTIAL, C02_FINAL = b"\x02", b"\x03"
W02_PARTIAL, W02_FINAL, W02_HEARTBEAT, W02_DISCONNECT = b"\x03", b"\x04", b"\x05", b"\x06"

MMI: Final = b"mmi."
"""What the broker itself is asked (8/MMI) begins with this."""
_FROM_CLIENT_0X: Final = EMPTY + frame(b"MDPC0X", True)
_FROM_CLIENT_01: Final = EMPTY + frame(b"MDPC01", True)
# With the command's header, so that an envelope that happens to be `MDPC02` is not taken for it.
_FROM_CLIENT_02: Final = frame(b"MDPC02", True) + b"\x01\x01"
_FROM_REQ_02: Final = EMPTY + _FROM_CLIENT_02
_FROM_WORKER_0X: Final = EMPTY + frame(b"MDPW0X", True)
_FROM_WORKER_01: Final = EMPTY + frame(b"MDPW01", True)
_FROM_WORKER_02: Final = frame(b"MDPW02", True)
_DELIMITED_WORKER_02: Final = EMPTY + _FROM_WORKER_02
REPORT_LOCAL: Final = _FROM_WORKER_0X + frame(W_REPORT_LOCAL, True)
REPORT_CLOUD: Final = _FROM_WORKER_0X + frame(W_REPORT_CLOUD, True)
REPLY_01: Final = _FROM_WORKER_01 + frame(W_REPORT, True)
FINAL_02: Final = _FROM_WORKER_02 + frame(W02_FINAL, True)

HEADS: Final = 4096
"""Heads kept for pairs of services and origins: a few hundred bytes each, made again if need be."""

HEARTBEATS: Final = {
    D0X: _FROM_WORKER_0X + frame(W_HEARTBEAT, False),
    D01: _FROM_WORKER_01 + frame(W_HEARTBEAT, False),
    D02: _FROM_WORKER_02 + frame(W02_HEARTBEAT, False),
}
DISCONNECTS: Final = {
    D0X: _FROM_WORKER_0X + frame(W_DISCONNECT, False),
    D01: _FROM_WORKER_01 + frame(W_DISCONNECT, False),
    D02: _FROM_WORKER_02 + frame(W02_DISCONNECT, False),
}
_BEAT: Final = {image: Heartbeat(dialect) for dialect, image in HEARTBEATS.items()}
_BYE: Final = {image: Disconnect(dialect) for dialect, image in DISCONNECTS.items()}


# --- reading: clients and workers -----------------------------------------------------------


def worker_dialect(image: bytes) -> Dialect | None:
    """Whose header a message has, if a worker's; a broker asks this of a link's first message."""
    headers = (_FROM_WORKER_0X, D0X), (_FROM_WORKER_01, D01), (_FROM_WORKER_02, D02)
    return next((dialect for header, dialect in headers if image.startswith(header)), None)


def delimited_worker_02(image: bytes) -> bool:
    """Whether an `02` worker puts an empty frame before what it says, as some do that began with `01`."""
    return image.startswith(_DELIMITED_WORKER_02)


def read_from_client(image: bytes) -> Request:
    """C1/B1 in any dialect, with or without an envelope. Questions to the broker need no data."""
    try:
        return _read_request(image)
    except RemoteProtocolError:
        if MMI in image:
            with suppress(RemoteProtocolError):
                completed = _read_request(pack([*unpack(image), b""]))
                if completed.service.startswith(MMI):
                    return completed
        raise


def _read_request(image: bytes) -> Request:
    if len(image) > 2 and image[0] == MORE:
        # Whatever a broker hears most: our own dialect, after an envelope or without one.
        start = image[1] + 2 if image[1] else 0
        if image.startswith(_FROM_CLIENT_0X, start):
            service, at = read_service(image, start + 10)
            # A slice that ends before it starts is empty in Python, but breaks compiled code.
            return Request(D0X, service, image[at:], image[2:start] if start else b"")
    if image.startswith(_FROM_CLIENT_01):
        service, at = read_service(image, 10)
        return Request(D01, service, image[at:])
    if image.startswith((_FROM_CLIENT_02, _FROM_REQ_02)):
        return _read_request_02(image, 8 + (len(EMPTY) if delimited_02(image) else 0))
    return _read_enveloped(image)


def delimited_02(image: bytes) -> bool:
    """Whether it is an `02` request of a REQ, which puts an empty frame before what it sends."""
    return image.startswith(_FROM_REQ_02)


def _read_request_02(image: bytes, at: int) -> Request:
    command, after = read_command(image, at)
    if command != C_REQUEST:
        raise RemoteProtocolError(f"not a command of a client: {command!r}", at)
    service, after = read_service(image, after)
    return Request(D02, service, image[after:])


def _read_enveloped(image: bytes) -> Request:
    envelope, start = read_frame(image, 0)
    if image.startswith(_FROM_CLIENT_0X, start):
        dialect = D0X
    elif image.startswith(_FROM_CLIENT_01, start):
        dialect = D01
    else:
        raise RemoteProtocolError("no Majordomo client header", 0)
    if len(envelope) > ENVELOPE_MAX or not envelope:
        raise RemoteProtocolError(f"an envelope has 1 to {ENVELOPE_MAX} bytes", 0)
    service, at = read_service(image, start + 10)
    return Request(dialect, service, image[at:], envelope)


def read_to_client(image: bytes) -> Report | Nak:
    """C2 in any dialect: what a client receives."""
    if image.startswith(_FROM_CLIENT_02):
        command, at = read_command(image, 8)
        if command not in (C02_PARTIAL, C02_FINAL):
            raise RemoteProtocolError(f"not a command to a client: {command!r}", 8)
        service, at = read_service(image, at)
        kind = FINAL if command == C02_FINAL else PARTIAL
        return Report(D02, kind, service, image[at:])
    envelope, start = (b"", 0) if image.startswith(EMPTY) else read_frame(image, 0)
    if image.startswith(_FROM_CLIENT_01, start):
        service, at = read_service(image, start + 10)
        return Report(D01, FINAL, service, image[at:], envelope)
    if not image.startswith(_FROM_CLIENT_0X, start):
        raise RemoteProtocolError("no Majordomo client header", start)
    command, at = read_command(image, start + 10)
    if command == C_NAK:  # of an unreadable request: no service
        service, at = read_frame(image, at)
        return Nak(service, read_last(image, at, "reason"), envelope)
    service, at = read_service(image, at)
    if command == C_REPORT:
        return Report(D0X, FINAL, service, image[at:], envelope)
    if command == C_PARTIAL:
        return Report(D0X, PARTIAL, service, image[at:], envelope)
    raise RemoteProtocolError(f"not a command to a client: {command!r}", start + 10)


def read_from_worker(image: bytes) -> Ready | Answer | Heartbeat | Disconnect:
    """W1, W4, W5, W6 in any dialect."""
    if image.startswith(REPORT_LOCAL):
        address, at = read_address(image, 13)
        service, at = read_service(image, at)
        return Answer(D0X, FINAL, address, service, image[at:])
    if image.startswith(REPLY_01):
        return _read_bare_answer(image, 13, D01, FINAL)
    if image.startswith(FINAL_02):
        return _read_bare_answer(image, 11, D02, FINAL)
    fixed: Heartbeat | Disconnect | None = _BEAT.get(image) or _BYE.get(image)
    if fixed is not None:
        return fixed
    if image.startswith(_FROM_WORKER_0X):
        return _read_worker_0x(image)
    if image.startswith(_FROM_WORKER_01):
        return _read_ready(image, 10, D01)
    if image.startswith(_FROM_WORKER_02):
        if read_command(image, 8)[0] == W02_PARTIAL:
            return _read_bare_answer(image, 11, D02, PARTIAL)
        return _read_ready(image, 8, D02)
    raise RemoteProtocolError("no Majordomo worker header", 0)


def _read_bare_answer(image: bytes, at: int, dialect: Dialect, kind: Kind) -> Answer:
    address, at = read_address(image, at)
    if at >= len(image):
        raise RemoteProtocolError("message ends before its data", at)
    return Answer(dialect, kind, address, b"", image[at:])


def _read_worker_0x(image: bytes) -> Ready | Answer:
    command, at = read_command(image, 10)
    if command == W_READY:
        return _read_ready(image, 10, D0X)
    if command in (W_REPORT_CLOUD, W_PARTIAL_CLOUD):
        address, at = read_address(image, at)
        origin, at = read_frame(image, at)
        service, at = read_service(image, at)
        kind = FINAL if command == W_REPORT_CLOUD else PARTIAL
        return Answer(D0X, kind, address, service, image[at:], origin)
    if command in (W_PARTIAL_LOCAL, W_FAILED):
        address, at = read_address(image, at)
        service, at = read_service(image, at)
        if command == W_FAILED:
            return Answer(D0X, FAILED, address, service, read_last(image, at, "reason"))
        return Answer(D0X, PARTIAL, address, service, image[at:])
    raise RemoteProtocolError(f"not a command of a worker: {command!r}", 10)


def _read_ready(image: bytes, at: int, dialect: Dialect) -> Ready:
    command, end = read_command(image, at)
    if command != W_READY:
        raise RemoteProtocolError(f"not a command of a worker: {command!r}", at)
    frames, rest = head(image, 3, end) if end < len(image) else ([], end)
    if rest != len(image):
        raise RemoteProtocolError("frames after READY's", rest)
    service = frames[0] if frames else b""
    if len(service) > NAME_MAX:
        raise RemoteProtocolError(f"a service name has at most {NAME_MAX} bytes", end)
    if dialect != D0X and (len(frames) != 1 or not service):
        raise RemoteProtocolError("READY names one service", end)
    credit = read_decimal(frames[1], CREDIT_MAX, "credit", end) if len(frames) > 1 else 1
    slowest = read_decimal(frames[2], INTERVAL_MAX, "an interval", end) if len(frames) > 2 else 0
    return Ready(dialect, service, credit, slowest)


def read_to_worker(image: bytes) -> Work | Heartbeat | Disconnect:
    """W2, W3, W6 in any dialect: what a worker receives."""
    fixed: Heartbeat | Disconnect | None = _BEAT.get(image) or _BYE.get(image)
    if fixed is not None:
        return fixed
    if image.startswith(_FROM_WORKER_0X):
        return _read_work_0x(image)
    if image.startswith(_FROM_WORKER_01):
        dialect, at = D01, 10
    elif image.startswith(_FROM_WORKER_02):
        dialect, at = D02, 8
    else:
        raise RemoteProtocolError("no Majordomo worker header", 0)
    command, after = read_command(image, at)
    if command != W_REQUEST:
        raise RemoteProtocolError(f"not a command to a worker: {command!r}", at)
    answer = _read_bare_answer(image, after, dialect, FINAL)
    return Work(dialect, b"", answer.address, answer.data)


def _read_work_0x(image: bytes) -> Work | Heartbeat:
    command, at = read_command(image, 10)
    if command == W_HEARTBEAT:
        interval = read_last(image, at, "interval")
        return Heartbeat(D0X, read_decimal(interval, INTERVAL_MAX, "an interval", at))
    if command not in (W_REQUEST, W_REPOST):
        raise RemoteProtocolError(f"not a command to a worker: {command!r}", 10)
    service, at = read_service(image, at)
    origin = b""
    if command == W_REPOST:
        origin, at = read_frame(image, at)
    address, at = read_address(image, at)
    if at >= len(image):
        raise RemoteProtocolError("message ends before its data", at)
    return Work(D0X, service, address, image[at:], origin)


# --- envelope options -----------------------------------------------------------------------

OPTIONS_MAGIC: Final = b"HM"
_OPTIONS_BYTES: Final = 8
WISHES_END: Final = 2 + _OPTIONS_BYTES
"""Where the options end in the image of a request whose envelope has them: the id follows."""
PRIORITIES: Final = 10


def read_options(envelope: bytes) -> Options | None:
    """What a `0X` envelope asks for; None for one that is opaque to a broker.

    One that is too short for options has none: the four bytes that a REQ counts its requests by
    (ZMQ_REQ_CORRELATE) begin with these two letters once in 65 536 requests.
    """
    if not envelope.startswith(OPTIONS_MAGIC) or len(envelope) < _OPTIONS_BYTES:
        return None
    if envelope[2] > 1 or envelope[3] >= PRIORITIES:
        raise RemoteProtocolError("an HM envelope has flags 0-1 and priority 0-9", 2)
    timeout = int.from_bytes(envelope[4:8], "big")
    return Options(envelope[2] == 1, envelope[3], timeout, envelope[8:])


def write_options(options: Options) -> bytes:
    """The envelope frame's body."""
    if not (0 <= options.priority < PRIORITIES and 0 <= options.timeout_ms < 1 << 32):
        raise LocalProtocolError(f"priority is 0-9, timeout a 32-bit number: {options}")
    if len(options.id) > ENVELOPE_MAX - _OPTIONS_BYTES:
        raise LocalProtocolError(f"an id has at most {ENVELOPE_MAX - _OPTIONS_BYTES} bytes")
    fixed = OPTIONS_MAGIC + bytes((int(options.partials), options.priority))
    return fixed + options.timeout_ms.to_bytes(4, "big") + options.id


# --- writing: what stands before the data ---------------------------------------------------


def request_head(dialect: Dialect, service: bytes, envelope: bytes = b"") -> bytes:
    """C1 before its data."""
    if dialect == D02:
        return prefix((_CLIENT[dialect], C_REQUEST, service))
    return (frame(envelope, True) if envelope else b"") + prefix((b"", _CLIENT[dialect], service))


def report_head(dialect: Dialect, kind: Kind, service: bytes, envelope: bytes = b"") -> bytes:
    """C2/B6 before its data; a `01` client has no PARTIAL."""
    if dialect == D02:
        return prefix((b"MDPC02", C02_FINAL if kind == FINAL else C02_PARTIAL, service))
    before = frame(envelope, True) if envelope else b""
    if dialect == D01:
        if kind != FINAL:
            raise LocalProtocolError("7/MDP has no partial answer")
        return before + prefix((b"", b"MDPC01", service))
    return before + prefix((b"", b"MDPC0X", C_REPORT if kind == FINAL else C_PARTIAL, service))


def work_head(dialect: Dialect, service: bytes) -> bytes:
    """W2 before `[client] []`."""
    if dialect == D0X:
        return prefix((b"", b"MDPW0X", W_REQUEST, service))
    if dialect == D01:
        return prefix((b"", b"MDPW01", W_REQUEST))
    return prefix((b"MDPW02", W_REQUEST))


@lru_cache(HEADS)
def repost_work_head(service: bytes, origin: bytes) -> bytes:
    """W3/B5 before `[client] []`."""
    return prefix((b"", b"MDPW0X", W_REPOST, service, origin))


@lru_cache(HEADS)
def cloud_tail(origin: bytes, service: bytes) -> bytes:
    """What stands between `[client]` and the data in W5."""
    return prefix((b"", origin, service))


def address_head(address: bytes) -> bytes:
    """`[client] []`."""
    size = len(address)
    return SHORT[size] + address + EMPTY if size <= SHORT_MAX else frame(address, True) + EMPTY


# --- writing: whole messages ----------------------------------------------------------------


def write(message: Message) -> bytes:
    """The wire image of any message."""
    match message:
        case Request(dialect, service, data, envelope):
            return request_head(dialect, service, envelope) + data
        case Report(dialect, kind, service, data, envelope):
            return report_head(dialect, kind, service, envelope) + data
        case Nak(service, reason, envelope):
            before = frame(envelope, True) if envelope else b""
            return before + prefix((b"", b"MDPC0X", C_NAK, service)) + frame(reason, False)
        case Ready():
            return _write_ready(message)
        case Work(dialect, service, address, data, origin):
            start = repost_work_head(service, origin) if origin else work_head(dialect, service)
            return start + address_head(address) + data
        case Answer():
            return _write_answer(message)
        case Heartbeat(dialect, interval):
            return _write_paced(message) if interval else HEARTBEATS[dialect]
        case Disconnect(dialect):
            return DISCONNECTS[dialect]
    raise LocalProtocolError(f"not between a broker and its clients or workers: {message!r}")


def _write_ready(ready: Ready) -> bytes:
    start = [] if ready.dialect == D02 else [b""]
    frames = [*start, _WORKER[ready.dialect], W_READY]
    if ready.dialect != D0X and (ready.credit != 1 or not ready.service or ready.slowest):
        raise LocalProtocolError("only 0X workers have credit, slow heartbeats, or any service")
    if ready.slowest:
        frames += [ready.service, b"%d" % ready.credit, b"%d" % ready.slowest]
    elif ready.credit != 1:
        frames += [ready.service, b"%d" % ready.credit]
    elif ready.service:
        frames.append(ready.service)
    return pack(frames)


def _write_paced(heartbeat: Heartbeat) -> bytes:
    if heartbeat.dialect != D0X:
        raise LocalProtocolError("only 0X workers are told an interval")
    return prefix((b"", _WORKER[D0X], W_HEARTBEAT)) + frame(b"%d" % heartbeat.interval, False)


_ANSWER_0X: Final = {
    (FINAL, False): W_REPORT_LOCAL,
    (FINAL, True): W_REPORT_CLOUD,
    (PARTIAL, False): W_PARTIAL_LOCAL,
    (PARTIAL, True): W_PARTIAL_CLOUD,
}


def _write_answer(answer: Answer) -> bytes:
    address = address_head(answer.address)
    if answer.dialect == D01:
        if answer.kind != FINAL:
            raise LocalProtocolError("7/MDP has one kind of answer")
        return REPLY_01 + address + answer.data
    if answer.dialect == D02:
        if answer.kind == FAILED:
            raise LocalProtocolError("18/MDP workers cannot refuse")
        command = W02_FINAL if answer.kind == FINAL else W02_PARTIAL
        return _FROM_WORKER_02 + frame(command, True) + address + answer.data
    if answer.kind == FAILED:
        start = _FROM_WORKER_0X + frame(W_FAILED, True) + address
        return start + frame(answer.service, True) + frame(answer.data, False)
    command = _ANSWER_0X[answer.kind, bool(answer.origin)]
    origin = frame(answer.origin, True) if answer.origin else b""
    start = _FROM_WORKER_0X + frame(command, True) + address + origin
    return start + frame(answer.service, True) + answer.data
