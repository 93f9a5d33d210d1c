"""ZMTP connections: any bytes, in any chunks, give messages or one of the documented errors."""

from __future__ import annotations

import hashlib

from nacl.bindings import crypto_scalarmult_base

from homing.errors import HandshakeRefused, RemoteProtocolError
from homing.wire.curve import CurveServer, KeyPair
from homing.wire.frames import command, pack, unpack
from homing.wire.mechanisms import Mechanism, Null, PlainServer
from homing.wire.zmtp import Connection, Limits

LIMITS = Limits(message=2048, frames=16, command=1024, handshake=1024)


def _keys(label: bytes = b"server") -> KeyPair:
    secret = hashlib.sha256(label).digest()
    return crypto_scalarmult_base(secret), secret


_MECHANISMS: tuple[Mechanism, ...] = (
    Null(),
    PlainServer(lambda user, _password: user),
    CurveServer(_keys(), make_keys=_keys, entropy=bytes),
)
_GREETINGS = tuple(
    Connection("DEALER", mechanism=each).take()[:32] + bytes(32) for each in _MECHANISMS
)
_READY = command(b"READY", b"\x0bSocket-Type\0\0\0\x06DEALER")
_TRAFFIC = pack([b"", b"MDPC0X", b"x" * 300]) + command(b"PING", b"\0\1abc") + pack([b"y"])
# The first byte chooses the mechanism, the second the size of the chunks.
SEEDS = (
    b"\0\x40" + _READY + _TRAFFIC,
    b"\0\x03" + _READY + command(b"SUBSCRIBE", b"a") + _TRAFFIC,
    b"\1\xff" + command(b"HELLO", b"\x01u\x01p") + command(b"INITIATE", _READY[8:]) + _TRAFFIC,
    b"\2\xff" + command(b"HELLO", b"\1\0" + bytes(192)),
)


def target(data: bytes) -> None:
    if len(data) < 2:
        return
    which, chunk = data[0] % len(_MECHANISMS), data[1] or 1
    connection = Connection("ROUTER", mechanism=_MECHANISMS[which], limits=LIMITS)
    stream = _GREETINGS[which] + data[2:]
    try:
        for at in range(0, len(stream), chunk):
            for image in connection.receive(stream[at : at + chunk]):
                assert len(unpack(image)) <= LIMITS.frames
                assert len(image) <= LIMITS.message + 9 * LIMITS.frames
            connection.take()
    except (RemoteProtocolError, HandshakeRefused):
        connection.take()
