"""The few things a journal asks of a disk, and the real one.

A seam: homing.testing.Disk, which fills up, tears writes and forgets what was not synced,
fits in the same place.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Protocol

from homing.errors import JournalError

LOCK = "lock"


class File(Protocol):
    """A file that is only appended to, synced and cut; closed when it is let go of."""

    @property
    def size(self) -> int: ...

    @property
    def there(self) -> bool:
        """Whether its name still leads to it: somebody may have removed or replaced it."""
        ...

    def read(self, at: int = 0, size: int | None = None) -> bytes: ...

    def write(self, data: bytes) -> None:
        """Append all of it; OSError or DiskFull if it cannot, a part may be written then."""
        ...

    def sync(self) -> None:
        """Return when everything written survives a power cut."""
        ...

    def truncate(self, size: int) -> None: ...


class Disk(Protocol):
    """One flat directory."""

    def names(self) -> list[str]:
        """Every file there is, in order of name."""
        ...

    def open(self, name: str) -> File:
        """The file of that name, made empty if there is none."""
        ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Make new and removed names survive a power cut."""
        ...


class Directory:
    """A real directory, locked while it is open: one writer per journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _locked(path)

    def names(self) -> list[str]:
        with os.scandir(self.path) as there:
            return sorted(entry.name for entry in there if entry.is_file())

    def open(self, name: str) -> OpenFile:
        self.keep()
        return OpenFile(self.path / name)

    def keep(self) -> None:
        """Make it anew, and lock it, if somebody removed it."""
        if not _leads_to(self.path / LOCK, self._lock):
            before, self._lock = self._lock, _locked(self.path)
            os.close(before)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._lock)


def _locked(path: Path) -> int:
    """The descriptor of a directory's lock; JournalError if another process has it."""
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        raise JournalError(
            f"{path} is written by another process", hint="give each node its own --data"
        ) from error
    return lock


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether a path is that of an open file."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(found, os.fstat(descriptor))


class OpenFile:
    """A real file, opened for appending."""

    _descriptor = -1  # until it is open

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        self._path = path

    @property
    def there(self) -> bool:
        return _leads_to(self._path, self._descriptor)

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, at: int = 0, size: int | None = None) -> bytes:
        left = self.size - at if size is None else size
        parts: list[bytes] = []
        while left > 0 and (part := os.pread(self._descriptor, left, at)):
            parts.append(part)  # the kernel gives 2 GiB at most
            at += len(part)
            left -= len(part)
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        while written < len(data):  # only near a full disk, where the next call says so
            written += os.write(self._descriptor, memoryview(data)[written:])

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
