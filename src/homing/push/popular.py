"""What was worked out for lists that come again and again, bounded in number and bytes.

Publications that the same clients asked for come with the same list of them, byte by byte.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

SHORT: Final = 384
"""Bytes of a list, 32 clients: working on a shorter one is cheaper than remembering it."""
MAX_LISTS: Final = 256
"""Lists remembered: what is popular at one time."""
MAX_BYTES: Final = 4 << 20
"""Of these lists; what is kept for them is about as long."""

Value = TypeVar("Value")


class Popular(Generic[Value]):
    """Values by lists, the list that was not asked for longest forgotten first."""

    __slots__ = ("_held", "_values")

    def __init__(self) -> None:
        self._values: OrderedDict[bytes, Value] = OrderedDict()
        self._held = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, listed: bytes) -> Value | None:
        """What is kept for a list."""
        value = self._values.pop(listed, None)
        if value is not None:
            self._values[listed] = value
        return value

    def clear(self) -> None:
        """Forget all."""
        self._values.clear()
        self._held = 0

    def keep(self, listed: bytes, value: Value) -> Value:
        """Keep a value for a list, instead of what was kept for it."""
        if self._values.pop(listed, None) is None:
            self._held += len(listed)
        self._values[listed] = value
        while len(self._values) > MAX_LISTS or self._held > MAX_BYTES:
            oldest, _ = self._values.popitem(last=False)
            self._held -= len(oldest)
        return value
