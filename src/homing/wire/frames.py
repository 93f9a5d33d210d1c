"""A ZeroMQ message as one piece of bytes: its *wire image*.

The image is the message exactly as ZMTP 3 puts it on a NULL or PLAIN connection: for each
frame a flags byte, a length (1 byte, or 8 for frames over 255 bytes) and the body.

    01 00 | 01 06 "MDPC0X" | 01 04 "echo" | 00 05 "hello"      [] [MDPC0X] [echo] [hello]

homing hands whole images around instead of lists of frames: a broker reads the few leading
frames it must understand and forwards the rest, untouched, as the slice it arrived in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from homing.errors import RemoteProtocolError

MORE: Final = 0x01
LONG: Final = 0x02
COMMAND: Final = 0x04

CUT: Final = 0x80
"""No flag of ZMTP's: the first byte of what is left of a message that was too large (see `cut`)."""

SHORT_MAX: Final = 255
_LONG_HEADER: Final = 9


# Headers of short frames, by length: looking one up is a third of the cost of making it.
LAST: Final = [bytes((0, size)) for size in range(SHORT_MAX + 1)]
SHORT: Final = [bytes((MORE, size)) for size in range(SHORT_MAX + 1)]  # others follow


def pack(frames: Sequence[bytes]) -> bytes:
    """The wire image of a message; at least one frame."""
    if not frames:
        raise ValueError("a ZeroMQ message has at least one frame")
    if len(frames) == 1:
        return frame(frames[0], False)
    return prefix(frames[:-1]) + frame(frames[-1], False)


def frame(body: bytes, more: bool) -> bytes:
    """One frame with its header."""
    size = len(body)
    if size <= SHORT_MAX:
        return (SHORT[size] if more else LAST[size]) + body
    return bytes(((MORE if more else 0) | LONG,)) + size.to_bytes(8, "big") + body


def command(name: bytes, body: bytes = b"") -> bytes:
    """One ZMTP command, as a frame of its own: never part of a message."""
    body = bytes((len(name),)) + name + body
    size = len(body)
    if size <= SHORT_MAX:
        return bytes((COMMAND, size)) + body
    return bytes((COMMAND | LONG,)) + size.to_bytes(8, "big") + body


def prefix(frames: Iterable[bytes]) -> bytes:
    """Leading frames, each with MORE set: to be put before an image or a tail of one."""
    out: list[bytes] = []
    for body in frames:
        size = len(body)
        if size <= SHORT_MAX:
            out.append(SHORT[size])
            out.append(body)
        else:
            out.append(frame(body, True))
    return b"".join(out)


def cut(beginning: bytes) -> bytes:
    """What is left of a message that broke a limit: CUT, its first whole frames, an empty last one.

    Nobody takes it for a message by mistake: whoever wants to tell its sender looks for the mark.
    """
    at, size = 0, len(beginning)
    while at + 2 <= size and beginning[at] & MORE:
        if beginning[at] & LONG:
            end = at + _LONG_HEADER + int.from_bytes(beginning[at + 1 : at + _LONG_HEADER], "big")
        else:
            end = at + 2 + beginning[at + 1]
        if end > size:
            break
        at = end
    return b"".join((bytes((CUT,)), beginning[:at], LAST[0]))


def unpack(image: bytes) -> list[bytes]:
    """Every frame of a message."""
    frames, rest = head(image, len(image) or 1)
    if rest != len(image):
        raise RemoteProtocolError("bytes after the last frame", rest)
    return frames


def shortest(image: bytes) -> bytes:
    """The same message with lengths as short as they can be, which nearly all are on the way.

    ZMTP lets a peer announce small frames with eight bytes too.
    """
    return image if image[0] == CUT else pack(unpack(image))


# Frames that `tail_end` goes over: bodies have one, or a handful. With what may stand before them a
# message that it has found the end of has no more than SKIMMED_FRAMES.
_TAIL_FRAMES: Final = 8
SKIMMED_FRAMES: Final = 16


def tail_end(data: bytes, at: int) -> int:
    """Where the message whose last few frames begin at `at` ends; 0 if that is not to be seen.

    A chunk's end may cut it, anything may stand there: then it is left to a reader that knows.
    """
    size = len(data)
    for _ in range(_TAIL_FRAMES):
        if at + 2 > size:
            return 0
        flags = data[at]
        if flags <= MORE:
            at += 2 + data[at + 1]
        elif flags <= LONG | MORE and at + _LONG_HEADER <= size:
            at += _LONG_HEADER + int.from_bytes(data[at + 1 : at + _LONG_HEADER], "big")
        else:
            return 0
        if not flags & MORE:
            return at if at <= size else 0
    return 0


def head(image: bytes, count: int, at: int = 0) -> tuple[list[bytes], int]:
    """Up to `count` leading frames from offset `at`, and the offset of what follows them.

    Fewer frames come back when the message ends first; then the offset is the image's end.
    """
    frames: list[bytes] = []
    size = len(image)
    more = True
    while more and len(frames) < count:
        if at >= size:
            raise RemoteProtocolError("message ends in the middle of a frame", at)
        flags = image[at]
        if flags & LONG:
            body = at + _LONG_HEADER
            end = body + int.from_bytes(image[at + 1 : body], "big")
        else:
            body = at + 2
            end = body + image[at + 1] if body <= size else size + 1
        if body > size or end > size:
            raise RemoteProtocolError("message ends in the middle of a frame", at)
        frames.append(image[body:end])
        more = bool(flags & MORE)
        at = end
    return frames, at
