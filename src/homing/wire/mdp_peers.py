"""Majordomo between the brokers of a federation: reposts, their answers, and state."""

from __future__ import annotations

from typing import Final

import msgspec

from homing.errors import LocalProtocolError, RemoteProtocolError
from homing.wire.frames import frame, head, prefix
from homing.wire.mdp import (
    C_NAK,
    C_REPOST,
    W_PARTIAL_CLOUD,
    W_REPORT_CLOUD,
    address_head,
)
from homing.wire.mdp_fields import (
    NAME_MAX,
    read_address,
    read_command,
    read_frame,
    read_last,
    read_service,
)
from homing.wire.mdp_messages import Kind, Message, PeerAnswer, PeerNak, Repost, State

IDLE_MAX: Final = 999_999_999
"""What is read of a peer's idle places: with the largest credits twenty thousand workers have more."""
_REPOST: Final = frame(b"MDPC0X", True) + frame(C_REPOST, True)


def read_at_cloudfe(image: bytes) -> Repost:
    """B4: what a peer's cloudbe sends us."""
    if not image.startswith(_REPOST):
        raise RemoteProtocolError("only a REPOST comes this way", 0)
    service, at = read_service(image, len(_REPOST))
    origin, at = read_frame(image, at)
    address, at = read_address(image, at)
    if at >= len(image):
        raise RemoteProtocolError("message ends before its data", at)
    return Repost(service, origin, address, image[at:])


def read_at_cloudbe(image: bytes) -> PeerAnswer | PeerNak:
    """B8, B10: what a peer's cloudfe answers."""
    address, at = read_address(image, 0)
    header, end = read_frame(image, at)
    command, end = read_command(image, end)
    service, end = read_service(image, end)
    if header == b"MDPW0X" and command in (W_REPORT_CLOUD, W_PARTIAL_CLOUD):
        kind = Kind.FINAL if command == W_REPORT_CLOUD else Kind.PARTIAL
        return PeerAnswer(kind, address, service, image[end:])
    if header == b"MDPC0X" and command == C_NAK:
        return PeerNak(address, service, read_last(image, end, "reason"))
    raise RemoteProtocolError("neither REPORT_CLOUD nor NAK", at)


_services: Final = msgspec.json.Decoder(dict[str, int])


def read_state(image: bytes) -> State:
    """S1: what a peer's statebe publishes."""
    frames, end = head(image, 3)
    if len(frames) != 3 or end != len(image):
        raise RemoteProtocolError("a state has three frames", end)
    broker, idle, services = frames
    if not (1 <= len(broker) <= NAME_MAX):
        raise RemoteProtocolError(f"a broker name has 1 to {NAME_MAX} bytes", 0)
    if not (idle.isdigit() and len(idle) <= len(str(IDLE_MAX))):
        raise RemoteProtocolError("idle workers are a decimal", len(broker) + 2)
    try:
        by_service = _services.decode(services)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"state: {error}", end - len(services)) from error
    if any(free < 0 for free in by_service.values()):
        raise RemoteProtocolError("state: idle below 0", end - len(services))
    return State(broker, int(idle), by_service)


def repost_head(service: bytes, origin: bytes) -> bytes:
    """B3 before `[client] []`."""
    return _REPOST + prefix((service, origin))


def peer_answer_head(kind: Kind, service: bytes) -> bytes:
    """B7 between `[client] []` and its data."""
    command = W_REPORT_CLOUD if kind == Kind.FINAL else W_PARTIAL_CLOUD
    return prefix((b"MDPW0X", command, service))


def write(message: Message) -> bytes:
    """The wire image of any message between brokers."""
    match message:
        case Repost(service, origin, address, data):
            return repost_head(service, origin) + address_head(address) + data
        case PeerAnswer(kind, address, service, data):
            return address_head(address) + peer_answer_head(kind, service) + data
        case PeerNak(address, service, reason):
            start = address_head(address) + prefix((b"MDPC0X", C_NAK, service))
            return start + frame(reason, False)
        case State(broker, idle, services):
            listed = msgspec.json.encode(services)
            return prefix((broker, b"%d" % min(idle, IDLE_MAX))) + frame(listed, False)
    raise LocalProtocolError(f"no such message: {message!r}")
