"""Every subscription a matcher knows: whose it is, where that client is held, what it asks.

The connector that holds a session is the source of its subscriptions; this is a copy. A
connector that comes back tells all of them anew between the beginning and the end of a sync:
what it does not name in between is gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from homing.ids import ID_BYTES
from homing.push.places import by_connector
from homing.push.popular import SHORT, Popular
from homing.push.subscription import parse_fields
from homing.push.values import Field, Value


class Index(Protocol):
    """What a matcher asks of homing.push.index."""

    def replace(self, subscription: int, fields: Mapping[str, Field]) -> None: ...

    def remove(self, subscription: int) -> None: ...

    def match(self, attributes: Mapping[str, Value]) -> Sequence[int]: ...

    def close(self) -> None: ...


class Entry(msgspec.Struct, gc=False):
    """One subscription: `place` is client id + connector id, `fields` its JSON."""

    place: bytes
    name: bytes
    fields: bytes

    @property
    def client(self) -> bytes:
        return self.place[:ID_BYTES]

    @property
    def connector(self) -> bytes:
        return self.place[ID_BYTES:]


class Table:
    """Subscriptions by number (for the index), by client and by connector."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._last = 0
        self._entries: dict[int, Entry] = {}
        self._names: dict[bytes, dict[bytes, int]] = {}  # place -> name -> number
        self._places: dict[bytes, dict[bytes, None]] = {}  # connector -> its places
        self._lists: Popular[bytes] = Popular()  # numbers -> their places
        self._stale: dict[bytes, dict[int, None]] = {}  # connector -> not named in this sync

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def connectors(self) -> list[bytes]:
        """Those that hold at least one subscriber."""
        return list(self._places)

    def knows(self, client: bytes, connector: bytes, name: bytes) -> bool:
        """Whether a subscription is here, whatever it asks for."""
        return name in self._names.get(client + connector, {})

    def refresh(self, client: bytes, connector: bytes, name: bytes, fields: bytes) -> bool:
        """The connector names one: whether it is here and exactly this."""
        number = self._names.get(client + connector, {}).get(name)
        if number is None or self._entries[number].fields != fields:
            return False
        self._refresh(connector, number)
        return True

    def set(
        self,
        client: bytes,
        connector: bytes,
        name: bytes,
        fields: bytes,
        parsed: Mapping[str, Field] | None = None,
    ) -> bool:
        """A subscription is now exactly this; False if it was already. SubscriptionError."""
        if self.refresh(client, connector, name, fields):
            return False
        if parsed is None:
            parsed = parse_fields(fields)
        place = client + connector
        number = self._names.get(place, {}).get(name)
        if number is not None:
            self._refresh(connector, number)
        else:
            number = self._add(place, connector, name)
        self.index.replace(number, parsed)
        self._entries[number] = Entry(place, name, fields)
        return True

    def remove(self, client: bytes, connector: bytes, name: bytes) -> bool:
        """One subscription is gone, or with no name all of a client's; False: there was none."""
        names = self._names.get(client + connector, {})
        numbers = list(names.values()) if not name else [names[name]] if name in names else []
        for number in numbers:
            self._drop(number)
        return bool(numbers)

    def begin_sync(self, connector: bytes) -> None:
        """From here to `end_sync` the connector names everything it has."""
        self._stale[connector] = {
            number: None
            for place in self._places.get(connector, ())
            for number in self._names[place].values()
        }

    def doubt(self, client: bytes, connector: bytes, name: bytes) -> None:
        """Somebody else named one: it is gone with this sync unless the connector names it too."""
        number = self._names.get(client + connector, {}).get(name)
        if number is not None and connector in self._stale:
            self._stale[connector][number] = None

    def abort_sync(self, connector: bytes) -> None:
        """The sync will not come to its end: nothing is gone for not being named."""
        self._stale.pop(connector, None)

    def end_sync(self, connector: bytes) -> list[Entry]:
        """What the connector did not name is gone; returned."""
        stale = self._stale.pop(connector, {})
        gone = [self._entries[number] for number in stale]
        for number in stale:
            self._drop(number)
        return gone

    def match(self, attributes: Mapping[str, Value]) -> tuple[int, Mapping[bytes, bytes]]:
        """How many subscriptions match, and the clients concerned per connector, each once."""
        count, listed = self.find(attributes)
        return count, by_connector(listed)

    def find(self, attributes: Mapping[str, Value]) -> tuple[int, bytes]:
        """The same with one list of places, each once, those of a connector together."""
        numbers = self.index.match(attributes)
        if len(numbers) <= SHORT // ID_BYTES:
            return len(numbers), self._list(numbers)
        # A number is never given to another place, so what was found once holds for ever.
        key = array("Q", numbers).tobytes()
        listed = self._lists.get(key) or self._lists.keep(key, self._list(numbers))
        return len(numbers), listed

    def _list(self, numbers: Sequence[int]) -> bytes:
        entries = self._entries
        found = dict.fromkeys([entries[number].place for number in numbers])
        listed = sorted(found, key=_connector_of) if len(self._places) > 1 else found
        return b"".join(listed)

    def close(self) -> None:
        """Nothing more is asked of it."""
        self.index.close()

    def _add(self, place: bytes, connector: bytes, name: bytes) -> int:
        self._last += 1
        self._names.setdefault(place, {})[name] = self._last
        self._places.setdefault(connector, {})[place] = None
        return self._last

    def _refresh(self, connector: bytes, number: int) -> None:
        stale = self._stale.get(connector)
        if stale is not None:
            stale.pop(number, None)

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self.index.remove(number)
        self._refresh(entry.connector, number)
        names = self._names[entry.place]
        del names[entry.name]
        if not names:
            del self._names[entry.place]
            places = self._places[entry.connector]
            del places[entry.place]
            if not places:
                del self._places[entry.connector]


def _connector_of(place: bytes) -> bytes:
    return place[ID_BYTES:]
