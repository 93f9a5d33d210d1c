"""Task reader: a message or a typed error; what was read survives being written."""

from __future__ import annotations

from homing.errors import RemoteProtocolError
from homing.wire import tasks


def target(data: bytes) -> None:
    for start in (b"", b'\x01\x20{"request":"'):
        try:
            envelope, message = tasks.read(start + data)
        except RemoteProtocolError as error:
            inside(error, len(start + data))
            continue
        assert tasks.read(tasks.write(message, envelope)) == (envelope, message)


def inside(error: RemoteProtocolError, size: int) -> None:
    """An offset points into what was read."""
    assert 0 <= error.offset <= size
