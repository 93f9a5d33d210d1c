"""A disk that keeps only what was synced, and tears the rest, when its machine crashes.

The model is what POSIX promises and no more: bytes are safe once their file was synced, names
(create, rename, remove) once the directory was. On a crash

- of each file's unsynced bytes a random prefix survives; sometimes the rest is there but reads
  as zeros or garbage, as it does when a file system had grown the file but not yet filled it;
- of the unsynced name changes a random number survives, in order; the rest never happened.

`capacity` makes it small and `full` makes it full: writes then raise homing.errors.DiskFull.
"""

from __future__ import annotations

from random import Random

from homing.errors import DiskFull

# Room enough for any test's journal, small enough to stop a role that writes without end
# before the test machine does.
DEFAULT_CAPACITY = 256 << 20


class File:
    """The bytes of one file; reached through Disk.open, lives on through renames."""

    __slots__ = ("_disk", "data", "synced")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.data = bytearray()
        self.synced = 0  # how many leading bytes a crash cannot touch

    @property
    def size(self) -> int:
        """Bytes in it, safe or not."""
        return len(self.data)

    @property
    def there(self) -> bool:
        """Whether a name leads to it."""
        return self._disk.holds(self)

    def write(self, data: bytes) -> None:
        """Append; all or nothing."""
        self._disk.reserve(len(data))
        self.data += data

    def read(self, at: int = 0, size: int | None = None) -> bytes:
        """`size` bytes from offset `at`, or all that follow."""
        return bytes(self.data[at:] if size is None else self.data[at : at + size])

    def truncate(self, size: int) -> None:
        """Cut the file; a cut is safe at once."""
        self._disk.release(len(self.data) - size)
        del self.data[size:]
        self.synced = min(self.synced, size)

    def sync(self, upto: int | None = None) -> None:
        """Make the bytes safe: all, or those before `upto` (what a sync begun then covers)."""
        self.synced = len(self.data) if upto is None else max(self.synced, min(upto, self.size))

    def tear(self, random: Random) -> int:
        """Lose or damage unsynced bytes, as a crash does; returns how many suffered."""
        unsafe = len(self.data) - self.synced
        if unsafe == 0:
            return 0
        # Nothing lost and all lost are as likely as each, so that few seeds show both.
        kept = self.synced + random.choice((0, unsafe, *(random.randrange(unsafe + 1),) * 2))
        lost = len(self.data) - kept
        fate = random.random()
        if fate < 0.6:
            self._disk.release(lost)
            del self.data[kept:]
        elif fate < 0.8:
            self.data[kept:] = bytes(lost)
        else:
            self.data[kept:] = random.randbytes(lost)
        self.synced = len(self.data)
        return lost


class Disk:
    """One machine's files by name; one flat directory."""

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self.capacity = capacity
        self.full = 0  # how many faults say that nothing more fits
        self.used = 0
        self._files: dict[str, File] = {}
        self._safe: dict[str, File] = {}  # the names a crash cannot touch
        self._changes: list[tuple[str, File | None]] = []  # since: name -> file, None removes

    def open(self, name: str) -> File:
        """The file of that name, made empty if there is none."""
        found = self._files.get(name)
        if found is None:
            found = File(self)
            self._change(name, found)
        return found

    def read(self, name: str) -> bytes:
        """All bytes of a file; FileNotFoundError without one."""
        return self._find(name).read()

    def names(self) -> list[str]:
        """Every file there is, in order of name."""
        return sorted(self._files)

    def holds(self, file: File) -> bool:
        """Whether a file has a name."""
        return any(each is file for each in self._files.values())

    def rename(self, old: str, new: str) -> None:
        """Put `old` in the place of `new` in one step."""
        moved = self._find(old)
        self._drop(self._files.get(new), moved)
        self._change(new, moved)
        self._change(old, None)

    def remove(self, name: str) -> None:
        """Take a file away."""
        self._drop(self._find(name), None)
        self._change(name, None)

    def sync(self) -> None:
        """Make all names safe (the fsync of the directory)."""
        self._safe = dict(self._files)
        self._changes.clear()

    def crash(self, random: Random) -> int:
        """Forget what was not synced, as `random` decides; returns how many bytes suffered."""
        for name, file in self._changes[: random.randrange(len(self._changes) + 1)]:
            _put(self._safe, name, file)
        self._changes.clear()
        self._files = dict(self._safe)
        torn = sum(self._files[name].tear(random) for name in sorted(self._files))
        self.used = sum(file.size for file in self._files.values())
        return torn

    def reserve(self, size: int) -> None:
        """Take room for `size` bytes, or raise DiskFull and take none."""
        if self.full or self.used + size > self.capacity:
            raise DiskFull(f"{self.used} of {self.capacity} bytes used, {size} more do not fit")
        self.used += size

    def release(self, size: int) -> None:
        """Give room back."""
        self.used -= size

    def _find(self, name: str) -> File:
        found = self._files.get(name)
        if found is None:
            raise FileNotFoundError(name)
        return found

    def _drop(self, file: File | None, keep: File | None) -> None:
        if file is not None and file is not keep:
            self.release(file.size)

    def _change(self, name: str, file: File | None) -> None:
        _put(self._files, name, file)
        self._changes.append((name, file))


def _put(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file
