"""Snapshots: an index as one file that is mapped into memory and shared by all who open it.

    0    8 bytes   HOMINGIX
    8    u32       format version
    12   u32       CRC-32 of everything from byte 64 on
    16   u64       length of the vocabulary
    24   u64       number of blocks
    64             the vocabulary, MessagePack: names, strings, residual checks
    …              each block, at the next multiple of 4096: its words as they are in memory

Little-endian, as the machines that run this are; a file from the future is refused by version.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from homing.errors import CorruptSegment
from homing.push.index.blocks import Words
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Vocabulary

MAGIC = b"HOMINGIX"
_HEAD = struct.Struct("<8sIIQQ")
_HEAD_SIZE = 64
_PAGE = 4096
_PIECE = 1 << 24


class Restored(NamedTuple):
    """What a snapshot holds."""

    vocabulary: Vocabulary
    blocks: list[Words]
    silent: set[int]
    subscriptions: int


def save(
    path: Path, vocabulary: Vocabulary, blocks: Sequence[Words], silent: set[int], count: int
) -> None:
    """Write a snapshot beside the old one, then put it in its place in one step."""
    meta = msgspec.msgpack.encode(
        {"vocabulary": vocabulary.dump(), "silent": sorted(silent), "count": count}
    )
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            file.write(bytes(_HEAD_SIZE))
            checksum = _write(file, meta, 0)
            for block in blocks:
                checksum = _write(file, bytes(-file.tell() % _PAGE), checksum)
                checksum = _write(file, memoryview(block.view(np.uint8).data), checksum)
            file.seek(0)
            file.write(_HEAD.pack(MAGIC, at.VERSION, checksum, len(meta), len(blocks)))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _write(file: Any, data: bytes | memoryview, checksum: int) -> int:
    file.write(data)
    return zlib.crc32(data, checksum)


def restore(path: Path, *, verify: bool = True) -> Restored:
    """Map a snapshot; with `verify` every byte is read once and held against the checksum."""
    try:
        octets = np.memmap(path, np.uint8, "c")
    except ValueError as error:  # an empty file cannot be mapped
        raise CorruptSegment(str(path), 0, str(error)) from None
    if octets.size < _HEAD_SIZE:
        raise CorruptSegment(str(path), 0, "shorter than a header")
    magic, version, checksum, meta_size, count = _HEAD.unpack(octets[: _HEAD.size].tobytes())
    if magic != MAGIC:
        raise CorruptSegment(str(path), 0, "not a snapshot of an index")
    if version != at.VERSION:
        raise CorruptSegment(str(path), 8, f"version {version}, this is version {at.VERSION}")
    if verify and _checksum(octets) != checksum:
        raise CorruptSegment(str(path), 12, "the checksum does not fit")
    if meta_size > octets.size - _HEAD_SIZE:
        raise CorruptSegment(str(path), 16, "the file ends inside the vocabulary")
    meta = msgspec.msgpack.decode(
        octets[_HEAD_SIZE : _HEAD_SIZE + meta_size].tobytes(), strict=False
    )
    blocks = _blocks(path, octets, _HEAD_SIZE + meta_size, count)
    return Restored(
        Vocabulary.restore(meta["vocabulary"]), blocks, set(meta["silent"]), meta["count"]
    )


def _checksum(octets: np.memmap[Any, np.dtype[np.uint8]]) -> int:
    checksum = 0
    for begin in range(_HEAD_SIZE, octets.size, _PIECE):
        checksum = zlib.crc32(octets[begin : begin + _PIECE].data, checksum)
    return checksum


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
