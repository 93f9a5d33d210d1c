"""Every subscription the dispatchers tell of, numbered, with what changed since it was last asked.

What a matcher's table is to its index, this is to an index in Spark's executors: those hold a
copy of some moment, and learn of changes by the numbers that are no longer what they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from homing.push.subscription import parse_fields


class Entry(NamedTuple):
    """One subscription: `place` is client id + connector id, `fields` its JSON."""

    place: bytes
    name: bytes
    fields: bytes


class Register:
    """Subscriptions by number. A number is given out once; a change of fields keeps it."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._names: dict[bytes, dict[bytes, int]] = {}  # place -> name -> number
        self._stale: dict[bytes, set[int]] = {}  # connector -> not named in this sync
        self._changed: set[int] = set()
        self._last = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def entries(self) -> Mapping[int, Entry]:
        """By number, in the order of numbers."""
        return self._entries

    def put(self, place: bytes, connector: bytes, name: bytes, fields: bytes) -> bool:
        """A subscription is now exactly this; False if it was already. SubscriptionError."""
        number = self._names.get(place, {}).get(name)
        if number is not None:
            self._stale.get(connector, set()).discard(number)
            if self._entries[number].fields == fields:
                return False
        parse_fields(fields)
        if number is None:
            self._last = number = self._last + 1
            self._names.setdefault(place, {})[name] = number
        self._entries[number] = Entry(place, name, fields)
        self._changed.add(number)
        return True

    def remove(self, place: bytes, name: bytes) -> list[Entry]:
        """One subscription is gone, or with no name all of a client's; those that were there."""
        names = self._names.get(place, {})
        numbers = list(names.values()) if not name else [names[name]] if name in names else []
        return [self._drop(number) for number in numbers]

    def begin_sync(self, connector: bytes) -> None:
        """From here to `end_sync` the connector names everything it has."""
        self._stale[connector] = {
            number for number, entry in self._entries.items() if entry.place.endswith(connector)
        }

    def end_sync(self, connector: bytes) -> list[Entry]:
        """What the connector did not name is gone; returned."""
        return [
            self._drop(number)
            for number in self._stale.pop(connector, ())
            if number in self._entries
        ]

    def take_changes(self) -> set[int]:
        """The numbers set or removed since the last time."""
        changed, self._changed = self._changed, set()
        return changed

    def _drop(self, number: int) -> Entry:
        entry = self._entries.pop(number)
        names = self._names[entry.place]
        del names[entry.name]
        if not names:
            del self._names[entry.place]
        self._changed.add(number)
        return entry
