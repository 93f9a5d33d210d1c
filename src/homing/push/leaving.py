"""Subscriptions that went to another tree of a plan, kept for a while where they were. Pure.

The questions about a publication reach the matchers at different moments, and so does a change of
a subscription. One that changes trees in between would be found in neither: the new tree was
asked before the change, the old one after it. So the old one keeps what is asked for *now* until
everybody has surely heard of it. Whoever finds it twice tells its place once; it is not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from homing.push.table import Index, Table
from homing.push.values import Field, Value

MAX_LEAVING: Final = 10_000
"""Kept at once, a few MB: seconds of the changes a matcher can take, of which few change trees.
Past it the oldest goes at once."""

Key = tuple[int, bytes, bytes, bytes]
"""The tree it was in, its client, connector and name."""


class Leaving:
    """Subscriptions by the tree that they were in."""

    def __init__(self, make_index: Callable[[], Index]) -> None:
        self._make_index = make_index
        self._tables: dict[int, Table] = {}  # by tree
        # What came since the last beat, and in the one before: it stays for one to two beats.
        self._young: OrderedDict[Key, None] = OrderedDict()
        self._old: OrderedDict[Key, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def tables(self) -> list[Table]:
        return list(self._tables.values())

    def keep(self, key: Key, fields: bytes, parsed: Mapping[str, Field]) -> None:
        """It was in that tree, and asks for this now."""
        tree, client, connector, name = key
        if tree not in self._tables:
            self._tables[tree] = Table(self._make_index())
        self._tables[tree].set(client, connector, name, fields, parsed)
        self._old.pop(key, None)
        self._young.pop(key, None)
        self._young[key] = None
        if len(self) > MAX_LEAVING:
            self._drop(next(iter(self._old or self._young)))

    def remove(self, tree: int, client: bytes, connector: bytes, name: bytes) -> bool:
        """One is gone, or with no name all of a client's; whether any was here."""
        table = self._tables.get(tree)
        return table is not None and table.remove(client, connector, name)

    def find(self, tree: int, attributes: Mapping[str, Value]) -> bytes:
        """The places of those that were in a tree and match."""
        table = self._tables.get(tree)
        return table.find(attributes)[1] if table else b""

    def fade(self) -> None:
        """A beat is over: what has been here for a whole one goes."""
        for key in self._old:
            self.remove(*key)
        self._old, self._young = self._young, OrderedDict()

    def close(self) -> None:
        """Nothing more is asked of it."""
        for table in self._tables.values():
            table.close()

    def _drop(self, key: Key) -> None:
        self._old.pop(key, None)
        self._young.pop(key, None)
        self.remove(*key)
