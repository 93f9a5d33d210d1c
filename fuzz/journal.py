"""Any bytes as a segment: read without a crash, and every byte is either a block's or reported."""

from __future__ import annotations

from contextlib import suppress

from homing.journal.body import decode, encode
from homing.journal.events import NodeStopped, RequestAccepted
from homing.journal.segment import (
    BLOCKS_AT,
    Block,
    Header,
    read_header,
    scan,
    write_block,
    write_header,
)

_HEADER = write_header(Header(b"node0001", 1, 0, 7))


def target(data: bytes) -> None:
    """As a whole file, as blocks behind a good header, and as a batch of events."""
    with suppress(ValueError):
        read_header(data)
    at = BLOCKS_AT
    for piece in scan(_HEADER + data, 7):
        assert piece.start == at
        assert piece.end > at
        at = piece.end
        if isinstance(piece, Block):
            with suppress(ValueError):
                decode(piece.body)
    assert at == BLOCKS_AT + len(data)
    with suppress(ValueError):
        decode(data)


SEEDS = (
    write_block(1, 1, 5, encode([NodeStopped(1.0)]), 7),
    encode([RequestAccepted(1.0, b"echo", b"c", 64), NodeStopped(2.0)]),
    _HEADER,
)
