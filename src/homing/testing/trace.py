"""What happened in a simulation: a digest of all of it, readable lines of the last of it.

Two runs of the same seed have the same digest, in any process and on any machine. The
digest covers every step with its time and its bytes, so one bit of difference shows.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator

import msgspec

# One step: virtual time, node, verb, and what it was about (a link, a key, a fault…).
Step = tuple[float, str, str, str, bytes]

# Steps hashed at once: enough to make the encoder's call cost vanish, small enough to stay
# in cache.
_BATCH = 256
# Bytes of a message shown in a line; the digest always covers the whole.
_SHOWN = 60


class Trace:
    """Appends steps, hashes them in batches, keeps the last `keep` for people (None: all)."""

    __slots__ = ("_batch", "_encode", "_hash", "_kept", "steps")

    def __init__(self, keep: int | None = 1000) -> None:
        self.steps = 0
        self._batch: list[Step] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode
        self._kept: deque[Step] = deque(maxlen=keep)

    def note(self, now: float, node: str, verb: str, about: str, data: bytes = b"") -> None:
        """Append one step."""
        self._batch.append((now, node, verb, about, data))
        if len(self._batch) >= _BATCH:
            self._settle()

    def digest(self) -> str:
        """32 hex digits over everything so far."""
        self._settle()
        return self._hash.copy().hexdigest()

    def lines(self, last: int | None = None) -> list[str]:
        """The kept steps, oldest first, one readable line each; at most the `last` of them."""
        self._settle()
        skip = 0 if last is None else max(0, len(self._kept) - last)
        return [line for at, line in enumerate(self._render()) if at >= skip]

    def _render(self) -> Iterator[str]:
        for now, node, verb, about, data in self._kept:
            shown = f"  {show(data)}" if data else ""
            yield f"{now:12.6f}  {node:<14} {verb:<10} {about}{shown}"

    def _settle(self) -> None:
        if self._batch:
            self._hash.update(self._encode(self._batch))
            self._kept.extend(self._batch)
            self.steps += len(self._batch)
            self._batch.clear()


def show(data: bytes) -> str:
    """Bytes for people: printable ASCII as it is, the rest as hex, long ones cut."""
    text = "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data[:_SHOWN])
    return f"{text}… ({len(data)} B)" if len(data) > _SHOWN else text
