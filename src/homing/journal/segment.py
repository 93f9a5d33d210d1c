"""Segment files as bytes: headers, blocks, checksums, and finding one's way through damage.

    segment = header | zeros | header again | zeros | block block block …
              0                4096                   8192

    header  = "HOMINGJ\\x01" | length 4 | crc32 4 | msgpack map (see Header)
    block   = marker 4 | body length 4 | first number 8 | count 4 | skew 8 | body crc32 4
              | reserved 4 | crc32 of these 36 bytes 4 | body

All integers are big-endian. A body is one batch of events (homing.journal.events). `skew` is
wall minus monotonic clock in µs when the block was written. Both checksums of a block start
from the segment's random salt, so that neither bytes a peer sent nor a reused disk sector can
pass for a block. The header is there twice, a disk page apart, because a lost header would
make every block behind it unreadable.

Reading never stops at damage: `scan` yields every block that is whole and a Damage for every
stretch of bytes that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from mmap import mmap

    Buffer: TypeAlias = bytes | mmap
    Take: TypeAlias = Callable[[int, int], bytes]  # from byte `at` so many, or what there is

FORMAT = 2
MAGIC = b"HOMINGJ\x01"
MARKER = b"\xf0HJB"
SECOND_HEADER_AT = 4096
BLOCKS_AT = 8192
# One group commit is cut into blocks of about BLOCK_BYTES, so that damage costs little and a
# reader's memory stays small; a single event may be larger, up to what a message may be.
BLOCK_BYTES = 4 << 20
BODY_LIMIT = 256 << 20

_HEAD = Struct(">8sII")
_BLOCK = Struct(">4sIQIqII")
_CRC = Struct(">I")
BLOCK_HEADER_BYTES = _BLOCK.size + _CRC.size
_IN_HEADER, _IN_BLOCK = "ends inside a block header", "ends inside a block"


class Header(msgspec.Struct):
    """Whose segment this is. Unknown keys are skipped, new ones get a default."""

    node: bytes
    first: int
    created: int  # µs, wall clock
    salt: int
    name: str = ""  # "ROLE NAME" of the node that writes it
    format: int = FORMAT

    @property
    def role(self) -> str | None:
        """Which of a node's roles wrote this: those of a cluster's node share one id. None where it does not say."""
        role, mark, _ = self.name.partition(" ")
        return role if mark and role else None


class Block(msgspec.Struct, gc=False):
    """One whole block: events `first` … `first + count - 1`, at bytes `start` … `end`."""

    start: int
    end: int
    first: int
    count: int
    skew: int
    body: bytes


class Damage(msgspec.Struct):
    """Bytes `start` … `end` hold nothing that can be trusted."""

    start: int
    end: int
    reason: str

    @property
    def unfinished(self) -> bool:
        """Whether bytes lack and none is wrong: what one sees of a block that is being written."""
        return self.reason in (_IN_HEADER, _IN_BLOCK)


def write_header(header: Header) -> bytes:
    """Everything before the first block."""
    body = msgspec.msgpack.encode(header)
    one = (_HEAD.pack(MAGIC, len(body), crc32(body)) + body).ljust(SECOND_HEADER_AT, b"\0")
    if len(one) != SECOND_HEADER_AT:
        raise ValueError("a segment header has 4096 bytes at most; is the node's name too long?")
    return one + one


def read_header(data: Buffer) -> Header:
    """The first copy that is whole; ValueError if neither is, or if it is from the future."""
    header = _read_header_at(data, 0) or _read_header_at(data, SECOND_HEADER_AT)
    if header is None:
        raise ValueError("no whole segment header")
    if header.format > FORMAT:
        raise ValueError(f"format {header.format}, written by a newer homing; we read {FORMAT}")
    return header


def _read_header_at(data: Buffer, at: int) -> Header | None:
    start = at + _HEAD.size
    if len(data) < start:
        return None
    magic, length, crc = _HEAD.unpack(data[at:start])
    body = data[start : start + length] if length < SECOND_HEADER_AT else b""
    if magic != MAGIC or len(body) != length or crc32(body) != crc:
        return None
    try:
        return msgspec.msgpack.decode(body, type=Header)
    except msgspec.DecodeError:
        return None


def write_block(first: int, count: int, skew: int, body: bytes, salt: int) -> bytes:
    """A batch of events with its header."""
    if len(body) > BODY_LIMIT:
        raise ValueError(f"a block holds {BODY_LIMIT} bytes at most, got {len(body)}")
    head = _BLOCK.pack(MARKER, len(body), first, count, skew, crc32(body, salt), 0)
    return head + _CRC.pack(crc32(head, salt)) + body


def read_block(data: Buffer, at: int, salt: int) -> Block | str:
    """The block at `at`, or what is wrong with it."""
    start = at + BLOCK_HEADER_BYTES
    head = data[at : start - _CRC.size]
    check = data[start - _CRC.size : start]
    if len(check) < _CRC.size:
        return _IN_HEADER
    if head[:4] != MARKER or crc32(head, salt) != _CRC.unpack(check)[0]:
        return "block header broken"
    _, length, first, count, skew, crc, _ = _BLOCK.unpack(head)
    body = data[start : start + length]
    if len(body) < length:
        return _IN_BLOCK
    if crc32(body, salt) != crc:
        return f"checksum of events {first}–{first + count - 1} wrong"
    return Block(at, start + length, first, count, skew, body)


def scan(data: Buffer, salt: int, at: int = BLOCKS_AT) -> Iterator[Block | Damage]:
    """Every whole block from `at` on, and every stretch of damage between and after them."""
    size = len(data)
    bad: Damage | None = None
    while at < size:
        found = read_block(data, at, salt)
        if isinstance(found, str):
            bad = bad or Damage(at, size, found)
            at = _next_marker(data, at + 1)
            continue
        if bad is not None:
            bad.end = at
            yield bad
            bad = None
        yield found
        at = found.end
    if bad is not None:
        yield bad


def walk(
    take: Take, size: int, salt: int, at: int = BLOCKS_AT
) -> Iterator[tuple[int, int, int, int]]:
    """(start, end, first, count) of every block that is all there, by its header alone.

    For planning: whether a body is whole shows when it is read.
    """
    while at < size:
        start = at + BLOCK_HEADER_BYTES
        found = take(at, BLOCK_HEADER_BYTES)
        head, check = found[: -_CRC.size], found[-_CRC.size :]
        if start > size or head[:4] != MARKER or crc32(head, salt) != _CRC.unpack(check)[0]:
            at = _search(take, at + 1, size)
            continue
        _, length, first, count, _, _, _ = _BLOCK.unpack(head)
        if start + length <= size:
            yield at, start + length, first, count
        at = start + length


def _search(take: Take, at: int, size: int) -> int:
    """Where the next marker lies, or the end."""
    while at < size:
        found = take(at, BLOCK_BYTES).find(MARKER)
        if found >= 0:
            return at + found
        at += BLOCK_BYTES - len(MARKER) + 1  # it may lie across the end of what was taken
    return size


def _next_marker(data: Buffer, at: int) -> int:
    found = data.find(MARKER, at)
    return len(data) if found < 0 else found
