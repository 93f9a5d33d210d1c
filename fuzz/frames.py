"""Wire images: any bytes unpack into frames that pack back to a message, or give a WireError."""

from __future__ import annotations

from homing.errors import WireError
from homing.wire.frames import pack, unpack

SEEDS = (pack([b"", b"MDPC0X", b"echo", b"x" * 300]), pack([b""]))


def target(data: bytes) -> None:
    try:
        frames = unpack(data)
    except WireError:
        return
    assert unpack(pack(frames)) == frames
