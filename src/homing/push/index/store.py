"""Snapshots: an index as one file that is mapped into memory and shared by all who open it.

    0    8 bytes   HOMINGIX
    8    u32       version of the blocks << 8 | version of the rest
    12   u32       CRC-32 of everything from byte 64 on, and then of bytes 16 to 63
    16   u64       length of the vocabulary
    24   u64       number of blocks
    32   u64       1: something was removed while the file was written
    64             the vocabulary, in parts: u32 length, MessagePack
    …              each block, at the next multiple of 4096: its words as they are in memory

The first part of the vocabulary says how many parts of strings and of residual checks follow. Blocks
without pages are tails. A file holds the index as it was at one moment, though it is written while
subscriptions come and go: what would change is copied at that moment, save the flags in the records,
which are set right from the dead flags when the file is loaded.

Little-endian, as the machines that run this are; a file from the future is refused by version.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from homing.errors import CorruptSegment
from homing.push.index.blocks import Words, dead_of, revive
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Vocabulary
from homing.push.index.tail import Tail

MAGIC = b"HOMINGIX"
VERSION = at.VERSION << 8 | 1
_HEAD = struct.Struct("<8sII")
_COUNTS = struct.Struct("<QQQ24x")
_LENGTH = struct.Struct("<I")
_HEAD_SIZE = _HEAD.size + _COUNTS.size
_PAGE = 4096
# Bytes read at once, and bytes copied before they are written: the interpreter is kept for the
# time of one copy.
_PIECE = 1 << 24
_COPY = 1 << 20
# Strings, or residual checks, in one part.
_PART = 4096


class Restored(NamedTuple):
    """What a snapshot holds."""

    vocabulary: Vocabulary
    paged: list[Words]
    tails: list[Tail]
    silent: set[int]
    subscriptions: int


class Still(NamedTuple):
    """A paged block with what removing changes as it was at one moment."""

    words: Words
    header: Words
    dead: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, words: Words) -> Still:
        return cls(words, words[: at.HEADER].copy(), dead_of(words).copy())

    @property
    def moved(self) -> bool:
        """Whether something was removed since."""
        return bool(self.words[at.DEADCOUNT] != self.header[at.DEADCOUNT])


class Moment(NamedTuple):
    """An index at one moment. The vocabulary may grow, but must forget nothing, until it is saved."""

    vocabulary: Vocabulary
    texts: int
    residuals: Sequence[int]
    paged: Sequence[Still]
    tails: Sequence[Words]
    silent: set[int]
    subscriptions: int

    @classmethod
    def of(
        cls,
        vocabulary: Vocabulary,
        paged: Iterable[Words],
        tails: Sequence[Words],
        silent: set[int],
        subscriptions: int,
    ) -> Moment:
        """What is there now; the tails must be copies."""
        return cls(
            vocabulary,
            len(vocabulary.register.texts),
            list(vocabulary.residuals),
            [Still.of(block) for block in paged],
            tails,
            set(silent),
            subscriptions,
        )


def save(path: Path, moment: Moment, breathe: Callable[[], object]) -> None:
    """Write a snapshot beside the old one, then put it in its place in one step.

    `breathe` is called after every piece: others may want the interpreter.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            file.write(bytes(_HEAD_SIZE))
            checksum = _write(file, _vocabulary_parts(moment), 0, breathe)
            size = file.tell() - _HEAD_SIZE
            for pieces in (*map(_paged_pieces, moment.paged), *map(_pieces, moment.tails)):
                checksum = _write(file, [bytes(-file.tell() % _PAGE)], checksum, breathe)
                checksum = _write(file, pieces, checksum, breathe)
            count = len(moment.paged) + len(moment.tails)
            moved = any(still.moved for still in moment.paged)
            counts = _COUNTS.pack(size, count, moved)
            file.seek(0)
            file.write(_HEAD.pack(MAGIC, VERSION, zlib.crc32(counts, checksum)) + counts)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _write(
    file: BinaryIO, pieces: Iterable[bytes], checksum: int, breathe: Callable[[], object]
) -> int:
    for piece in pieces:
        file.write(piece)
        checksum = zlib.crc32(piece, checksum)
        breathe()
    return checksum


def _vocabulary_parts(moment: Moment) -> Iterator[bytes]:
    vocabulary = moment.vocabulary
    texts = range(0, moment.texts, _PART)
    residuals = range(0, len(moment.residuals), _PART)
    first = {
        "vocabulary": vocabulary.dump(),
        "silent": list(moment.silent),
        "count": moment.subscriptions,
        "texts": len(texts),
        "residuals": len(residuals),
    }
    yield _part(first)
    for begin in texts:
        yield _part(vocabulary.register.texts[begin : min(begin + _PART, moment.texts)])
    for begin in residuals:
        yield _part(vocabulary.described_residuals(moment.residuals[begin : begin + _PART]))


def _part(content: object) -> bytes:
    encoded = msgspec.msgpack.encode(content)
    return _LENGTH.pack(len(encoded)) + encoded


def _pieces(words: npt.NDArray[Any]) -> Iterator[bytes]:
    """Copies: what is written and what is summed up must be the same though others write."""
    octets = memoryview(words.data).cast("B")
    for begin in range(0, len(octets), _COPY):
        yield bytes(octets[begin : begin + _COPY])


def _paged_pieces(still: Still) -> Iterator[bytes]:
    octets = still.words.view(np.uint8)
    begin = 8 * int(still.header[at.DEAD])
    yield still.header.tobytes()
    yield from _pieces(octets[8 * at.HEADER : begin])
    yield from _pieces(still.dead)
    yield from _pieces(octets[begin + still.dead.size :])


def restore(path: Path, *, verify: bool = True) -> Restored:
    """Map a snapshot; with `verify` every byte is read once and held against the checksum."""
    try:
        octets = np.memmap(path, np.uint8, "c")
    except ValueError as error:  # an empty file cannot be mapped
        raise CorruptSegment(str(path), 0, str(error)) from None
    if octets.size < _HEAD_SIZE:
        raise CorruptSegment(str(path), 0, "shorter than a header")
    magic, version, checksum = _HEAD.unpack(octets[: _HEAD.size].tobytes())
    size, count, moved = _COUNTS.unpack(octets[_HEAD.size : _HEAD_SIZE].tobytes())
    if magic != MAGIC:
        raise CorruptSegment(str(path), 0, "not a snapshot of an index")
    if version != VERSION:
        raise CorruptSegment(str(path), 8, f"version {version}, this is version {VERSION}")
    if verify and _checksum(octets) != checksum:
        raise CorruptSegment(str(path), 12, "the checksum does not fit")
    if size > octets.size - _HEAD_SIZE:
        raise CorruptSegment(str(path), 16, "the file ends inside the vocabulary")
    parts = _parts(path, octets[_HEAD_SIZE : _HEAD_SIZE + size].tobytes())
    first = parts[0]
    texts = [text for part in parts[1 : 1 + first["texts"]] for text in part]
    residuals = [check for part in parts[1 + first["texts"] :] for check in part]
    blocks = _blocks(path, octets, _HEAD_SIZE + size, count)
    paged = [block for block in blocks if block[at.PAGES]]
    if moved:
        for block in paged:
            revive(block)
    return Restored(
        Vocabulary.restore(first["vocabulary"], texts, residuals),
        paged,
        [Tail.of(block) for block in blocks if not block[at.PAGES]],
        set(first["silent"]),
        first["count"],
    )


def _parts(path: Path, encoded: bytes) -> list[Any]:
    parts: list[Any] = []
    offset = 0
    while offset < len(encoded):
        begin = offset + _LENGTH.size
        if begin > len(encoded):
            raise CorruptSegment(str(path), _HEAD_SIZE + offset, "a part of the vocabulary is cut")
        offset = begin + _LENGTH.unpack_from(encoded, offset)[0]
        try:
            parts.append(msgspec.msgpack.decode(encoded[begin:offset], strict=False))
        except msgspec.DecodeError as error:
            raise CorruptSegment(str(path), _HEAD_SIZE + begin, str(error)) from None
    return parts


def _checksum(octets: np.memmap[Any, np.dtype[np.uint8]]) -> int:
    checksum = 0
    for begin in range(_HEAD_SIZE, octets.size, _PIECE):
        checksum = zlib.crc32(octets[begin : begin + _PIECE].data, checksum)
    return zlib.crc32(octets[_HEAD.size : _HEAD_SIZE].data, checksum)


def _blocks(
    path: Path, octets: np.memmap[Any, np.dtype[np.uint8]], offset: int, count: int
) -> list[Words]:
    blocks: list[Words] = []
    for _ in range(count):
        offset += -offset % _PAGE
        if offset + 8 * at.HEADER > octets.size:
            raise CorruptSegment(str(path), offset, "the file ends before a block")
        words = int(octets[offset : offset + 8 * at.HEADER].view(np.uint64)[at.WORDS])
        if offset + 8 * words > octets.size:
            raise CorruptSegment(str(path), offset, "the file ends inside a block")
        blocks.append(octets[offset : offset + 8 * words].view(np.uint64))
        offset += 8 * words
    return blocks
