"""Majordomo readers: a message or a typed error; what was read writes back to the same bytes."""

from __future__ import annotations

from collections.abc import Callable

from homing.errors import RemoteProtocolError
from homing.wire import mdp, mdp_peers
from homing.wire.mdp_messages import Message, State

_READERS: tuple[tuple[Callable[[bytes], Message], Callable[[Message], bytes]], ...] = (
    (mdp.read_from_client, mdp.write),
    (mdp.read_to_client, mdp.write),
    (mdp.read_from_worker, mdp.write),
    (mdp.read_to_worker, mdp.write),
    (mdp_peers.read_at_cloudfe, mdp_peers.write),
    (mdp_peers.read_at_cloudbe, mdp_peers.write),
    (mdp_peers.read_state, mdp_peers.write),
)


def target(data: bytes) -> None:
    """The first byte chooses a head that is otherwise hard to guess."""
    image = _HEADS[data[0] % len(_HEADS)] + data[1:] if data else data
    for read, write in _READERS:
        try:
            message = read(image)
        except RemoteProtocolError as error:
            inside(error, len(image))
            continue
        if not isinstance(message, State):  # its JSON and decimal may be spelled otherwise
            assert read(write(message)) == message
    try:
        mdp.read_options(data)
    except RemoteProtocolError:
        return


_HEADS = (
    b"",
    b"\x01\x00\x01\x06MDPC0X",
    b"\x01\x00\x01\x06MDPC01",
    b"\x01\x06MDPC02\x01\x01",
    b"\x01\x00\x01\x06MDPW0X\x01\x01",
    b"\x01\x00\x01\x06MDPW0X\x01\x01\x04",
    b"\x01\x00\x01\x06MDPW01\x01\x01",
    b"\x01\x06MDPW02\x01\x01",
    b"\x01\x06MDPC0X\x01\x01\x04",
    b"\x01\x01c\x01\x00\x01\x06MDPW0X\x01\x01",
)


def inside(error: RemoteProtocolError, size: int) -> None:
    """An offset points into what was read."""
    assert 0 <= error.offset <= size
