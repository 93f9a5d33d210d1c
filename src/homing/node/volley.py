"""A volley: bytes to many sockets with one system call, through Linux's io_uring.

What the kernel does to send costs the same; the way into it and back, and the loop's own way of
writing, are paid once for a thousand sockets. Nothing is left under way between calls: every
send is told not to wait, so it has ended, in whole, in part or not at all, when the call
returns. Whoever did not take everything is named, and is written to as ever. Where the kernel has
no io_uring, or lets us have none, `OneByOne` does the same, a call a socket.

    entries   [send, fd, ──┐ , size, …] × ENTRIES     code and flags are written once
    bytes     [ data ] ◄───┘                          what they point to, mostly the same
    results   [which entry, bytes taken] × 2·ENTRIES
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

# Sockets a system call: sixty bytes each, and a thousandth of the call is little enough.
ENTRIES: Final = 1024
# The most bytes that are sent this way; where more go to each, the way is a small part of the cost.
ROOM: Final = 256 << 10

_SETUP, _ENTER = 425, 426  # system calls, the same number on every machine since they are new
_SUBMIT_ALL = 1 << 7  # an entry that cannot be begun does not hold up those behind it
_ENTRIES_AT = 0x1000_0000
_SEND = 26
_QUIETLY = 0x40 | 0x4000  # MSG_DONTWAIT, MSG_NOSIGNAL
_ENTRY = struct.Struct("<BBHiQQIIQ24x")  # code, flags, priority, fd, offset, bytes, size, how, name
_PARAMETERS = struct.Struct("<10I 10I 10I")  # ours and its answer, the entries' ring, the results'

_log = logging.getLogger("homing.node")
_libc = ctypes.CDLL(None, use_errno=True)


class Volley:
    """One io_uring; OSError where the kernel has none, or lets us have none."""

    def __init__(self) -> None:
        parameters = bytearray(_PARAMETERS.size)
        struct.pack_into("<3I", parameters, 0, 0, 0, _SUBMIT_ALL)
        self._fd = _call(_SETUP, ENTRIES, (ctypes.c_char * len(parameters)).from_buffer(parameters))
        told = _PARAMETERS.unpack(parameters)
        ring, results = told[10:20], told[20:30]
        try:
            self._rings = mmap.mmap(
                self._fd, max(results[5] + 2 * ENTRIES * 16, ring[6] + ENTRIES * 4)
            )
            self._entries = mmap.mmap(self._fd, ENTRIES * _ENTRY.size, offset=_ENTRIES_AT)
        except OSError:
            os.close(self._fd)
            raise
        self._bytes = mmap.mmap(-1, ROOM)
        words = memoryview(self._rings).cast("I")
        self._words = words
        self._begun, self._asked = ring[0] // 4, ring[1] // 4  # the kernel's count and ours
        self._read = results[0] // 4
        order = ring[6] // 4
        words[order : order + ENTRIES] = memoryview(array("I", range(ENTRIES)))
        first = results[5] // 4
        answers = words[first : first + 2 * ENTRIES * 4].cast("B").cast("i")
        self._which = answers[0::4]
        self._taken = answers[2::4]
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._bytes))
        for at in range(ENTRIES):
            entry = (_SEND, 0, 0, -1, 0, 0, 0, _QUIETLY, at)
            _ENTRY.pack_into(self._entries, at * _ENTRY.size, *entry)
        self._places = memoryview(self._entries).cast("Q")[2 :: _ENTRY.size // 8]
        fields = memoryview(self._entries).cast("i")
        self._fds = fields[1 :: _ENTRY.size // 4]
        self._sizes = fields[6 :: _ENTRY.size // 4]

    def send(self, fds: array[int], data: bytes) -> Iterator[tuple[int, int]]:
        """Send it to all of these; which of them took less, and how much (nothing, on an error).

        To be read to its end: it sends as it is read.
        """
        self._bytes[: len(data)] = data
        at = 0
        while at < len(fds):
            first = self._words[self._asked] % ENTRIES
            portion = fds[at : at + ENTRIES - first]
            count = len(portion)
            sizes, places = array("i", (len(data),)) * count, array("Q", (self._base,)) * count
            for entry, taken in self._submit(first, portion, sizes, places):
                yield at + entry - first, max(taken, 0)
            at += count

    def send_each(self, fds: array[int], images: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """The same, to each socket its own; ROOM bytes at most. The same object is copied once in a row."""
        at = 0
        while at < len(fds):
            first = self._words[self._asked] % ENTRIES
            sizes, places = self._lay_out(images[at : at + ENTRIES - first])
            count = len(sizes)
            for entry, taken in self._submit(first, fds[at : at + count], sizes, places):
                yield at + entry - first, max(taken, 0)
            at += count

    def _lay_out(self, images: Sequence[bytes]) -> tuple[array[int], array[int]]:
        """As many as there is room for, side by side: how long each is, and where."""
        sizes, places = array("i"), array("Q")
        used = size = 0
        place = self._base
        last: bytes | None = None
        for image in images:
            if image is not last:
                size = len(image)
                if used + size > ROOM:
                    break
                self._bytes[used : used + size] = image
                place = self._base + used
                used += size
                last = image
            sizes.append(size)
            places.append(place)
        return sizes, places

    def _submit(
        self, first: int, fds: array[int], sizes: array[int], places: array[int]
    ) -> list[tuple[int, int]]:
        """Send to as many as fit behind each other; those who did not take it all."""
        count = len(fds)
        self._fds[first : first + count] = memoryview(fds)
        self._sizes[first : first + count] = memoryview(sizes)
        self._places[first : first + count] = memoryview(places)
        words = self._words
        asked = words[self._asked]
        words[self._asked] = (asked + count) & 0xFFFF_FFFF
        try:
            _call(_ENTER, self._fd, count, 0, 0, None, 0)
        except OSError as error:
            _log.debug("nothing was sent together: %s", error)
        begun = (words[self._begun] - asked) & 0xFFFF_FFFF
        words[self._asked] = words[self._begun]  # what it did not begin, it shall forget
        words[self._read] = words[self._begun]
        at = asked % (2 * ENTRIES)
        taken = self._taken[at : at + begun]
        if begun == count and taken.tobytes() == sizes.tobytes():
            return []
        ended = zip(self._which[at : at + begun], taken, strict=True)
        short = [(entry, result) for entry, result in ended if result < sizes[entry - first]]
        return short + [(first + entry, 0) for entry in range(begun, count)]

    def close(self) -> None:
        """Give the kernel its memory back."""
        os.close(self._fd)


class OneByOne:
    """What a Volley does, where there is none to be had."""

    def send(self, fds: array[int], data: bytes) -> Iterator[tuple[int, int]]:
        """As Volley's."""
        return self.send_each(fds, [data] * len(fds))

    def send_each(self, fds: array[int], images: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """As Volley's."""
        for which, fd in enumerate(fds):
            try:
                taken = os.write(fd, images[which])
            except OSError:
                taken = 0
            if taken < len(images[which]):
                yield which, taken

    def close(self) -> None:
        """Nothing is held."""


def make_volley() -> Volley | OneByOne:
    """The better way that this machine has."""
    try:
        return Volley()
    except OSError as error:
        _log.info("no io_uring (%s): every link is written to by itself", error)
        return OneByOne()


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
