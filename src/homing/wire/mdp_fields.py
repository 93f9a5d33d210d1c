"""The single frames that Majordomo messages are made of, and their limits."""

from __future__ import annotations

from typing import Final

from homing.errors import RemoteProtocolError
from homing.wire.frames import MORE, head

ADDRESS_MAX: Final = 1024
"""Longest `[client]` frame: a routing id and an envelope of 255 bytes each, with room."""
NAME_MAX: Final = 255
"""Longest service or broker name: one short frame."""
CREDIT_MAX: Final = 65536
"""Most requests one worker may hold: more says nothing but that there is no limit."""
INTERVAL_MAX: Final = 3_600_000
"""Most milliseconds between heartbeats, an hour: who is silent for longer might as well be gone."""
ENVELOPE_MAX: Final = 255
"""Longest envelope: one short frame, far more than an id and a few options need."""

EMPTY: Final = b"\x01\x00"


def read_frame(image: bytes, at: int) -> tuple[bytes, int]:
    """A frame that another one must follow, and where that one starts."""
    size = len(image)
    if at + 1 < size and image[at] == 1:
        end = at + 2 + image[at + 1]
        if end < size:
            return image[at + 2 : end], end
    frames, end = head(image, 1, at)
    if not image[at] & 1 or end >= size:
        raise RemoteProtocolError("message ends before its data", end)
    return frames[0], end


def read_last(image: bytes, at: int, what: str) -> bytes:
    """The frame at `at`, which must be the message's last."""
    frames, end = head(image, 1, at)
    if end != len(image):
        raise RemoteProtocolError(f"frames after the {what}", end)
    return frames[0]


def read_gap(image: bytes, at: int) -> int:
    """Skip the empty delimiter."""
    if not image.startswith(EMPTY, at):
        raise RemoteProtocolError("an empty frame is missing", at)
    return at + 2


def read_address(image: bytes, at: int) -> tuple[bytes, int]:
    """The `[client]` frame and the empty one after it."""
    end = at + 2 + image[at + 1] if at + 1 < len(image) and image[at] == 1 else 0
    if end > at + 2 and image.startswith(EMPTY, end):
        return image[at + 2 : end], end + 2
    address, end = read_frame(image, at)
    if len(address) > ADDRESS_MAX or not address:
        raise RemoteProtocolError(f"a client address has 1 to {ADDRESS_MAX} bytes", at)
    return address, read_gap(image, end)


def read_service(image: bytes, at: int) -> tuple[bytes, int]:
    """A service's name, and where what follows it starts."""
    end = at + 2 + image[at + 1] if at + 1 < len(image) and image[at] == 1 else 0
    if at + 2 < end < len(image):
        return image[at + 2 : end], end
    name, end = read_frame(image, at)
    if len(name) > NAME_MAX or not name:
        raise RemoteProtocolError(f"a service name has 1 to {NAME_MAX} bytes", at)
    return name, end


def read_command(image: bytes, at: int) -> tuple[bytes, int]:
    """The command byte, and where the next frame starts (the image's end: there is none)."""
    frames, end = head(image, 1, at)
    if len(frames[0]) != 1:
        raise RemoteProtocolError("a command is one byte", at)
    return frames[0], end


def read_decimal(text: bytes, most: int, what: str, at: int) -> int:
    """A count from 1 to `most`, as digits."""
    if not (text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise RemoteProtocolError(f"{what} is a decimal from 1 to {most}", at)
    return int(text)


def chained(data: bytes) -> bytes:
    """Data whose last frame says that more follow: to be put before other data."""
    at = 0
    while (end := _end(data, at)) < len(data):
        at = end
    return data[:at] + bytes((data[at] | MORE,)) + data[at + 1 :]


def _end(data: bytes, at: int) -> int:
    """Where the frame at `at` ends."""
    return head(data, 1, at)[1]
