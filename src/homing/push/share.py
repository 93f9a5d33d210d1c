"""What one matcher holds of one placement plan. Pure.

A tile is *wanted* once the plan, or the ring for a matcher that is gone, gives it to us. From then
on its subscriptions are kept as connectors tell them, and when every connector that is known has
told all of its own, begun after the wish, the tile is *held*: we can answer for it. A tile that
is no longer wanted is held on until those who own it now say that they hold it.

Each tree of the plan has a table of its own, since a subscription counts in one tree only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from homing.push.leaving import Leaving
from homing.push.placement import Plan, Tile, name_of
from homing.push.places import once
from homing.push.subscription import parse_fields
from homing.push.table import Entry, Index, Table
from homing.push.values import Value

SWEEP: Final = 500
"""Subscriptions looked at in one go when a tile is given up: about 5 ms."""

WHOLE: Final[list[Tile]] = [(0, 0)]
"""The tiles that every publication lies in where the plan has no cuts."""

Tiles = set[Tile]
Connectors = Iterable[bytes]


class Gathering:
    """Tiles whose subscriptions are being told, and by whom they must still be."""

    __slots__ = ("awaited", "begun", "informed", "tiles", "trusted")

    def __init__(self, tiles: set[Tile], awaited: set[bytes], informed: bool, trusted: bool):
        """`informed`: every dispatcher has said which connectors there are.

        `trusted`: an earlier life held these tiles, and our journal has what absent ones had.
        """
        self.tiles = tiles
        self.awaited = awaited
        self.informed = informed
        self.trusted = trusted
        self.begun: set[bytes] = set()


class Share:
    """The subscriptions of a plan that are ours, by tree, and the tiles we can answer for."""

    def __init__(self, plan: Plan, make_index: Callable[[], Index]) -> None:
        self.plan = plan
        self.name = name_of(plan)
        self.tables = [Table(make_index()) for _ in plan.trees]
        self.leaving = Leaving(make_index)
        self.wanted: set[Tile] = set()
        self.held: set[Tile] = set()
        self.remembered: set[Tile] = set()  # held by an earlier life, with this journal
        self.gatherings: list[Gathering] = []
        self.whole = len(plan.trees) == 1 and not plan.trees[0].cuts  # one tile is all there is
        self._untidy = False  # there may be subscriptions of tiles that are not ours
        self._sweeping: list[tuple[int, Entry]] = []

    def __len__(self) -> int:
        return sum([len(table) for table in self.tables])

    def __iter__(self) -> Iterator[Entry]:
        for table in self.tables:
            yield from table

    # Subscriptions

    def set(self, client: bytes, connector: bytes, name: bytes, fields: bytes) -> bool:
        """A subscription is now exactly this; whether that changed what we hold."""
        if self.whole:
            return self.tables[0].set(client, connector, name, fields)
        if any(table.refresh(client, connector, name, fields) for table in self.tables):
            return False
        parsed = parse_fields(fields)
        tree, tiles = self.plan.tiles_for(parsed)
        mine = self._is_ours(tree, tiles)
        changed = False
        for number, table in enumerate(self.tables):
            left = self.leaving.remove(number, client, connector, name)
            if mine and number == tree:
                changed |= table.set(client, connector, name, fields, parsed)
                continue
            gone = table.remove(client, connector, name)
            changed |= gone
            if (gone or left) and number != tree:
                self.leaving.keep((number, client, connector, name), fields, parsed)
        return changed

    def restore(self, client: bytes, connector: bytes, name: bytes, fields: bytes) -> None:
        """One that an earlier life knew, whatever we will want."""
        self._untidy = True
        parsed = parse_fields(fields)
        tree, _ = self.plan.tiles_for(parsed)
        self.tables[tree].set(client, connector, name, fields, parsed)

    def remove(self, client: bytes, connector: bytes, name: bytes) -> bool:
        """One subscription is gone, or with no name all of a client's."""
        for number in range(len(self.tables)):
            self.leaving.remove(number, client, connector, name)
        gone = [table.remove(client, connector, name) for table in self.tables]
        return any(gone)

    def match(self, tiles: Iterable[Tile], attributes: Mapping[str, Value]) -> tuple[int, bytes]:
        """How many subscriptions match in tiles that we hold, and their places, each once."""
        if self.whole and not self.leaving:
            return self.tables[0].find(attributes)
        found = [self.tables[tree].find(attributes) for tree, _ in tiles]
        places = [listed for _, listed in found]
        if self.leaving:
            places += [self.leaving.find(tree, attributes) for tree, _ in tiles]
        return sum([count for count, _ in found]), once(places)

    # Tiles

    def want(self, wanted: Tiles, known: Connectors, there: Connectors, informed: bool) -> bool:
        """These are ours now; whether any must be told to us anew.

        `known`: all connectors; `there`: those that can be reached now.
        """
        self.wanted = wanted
        under_way = {tile for one in self.gatherings for tile in one.tiles}
        gained = wanted - self.held - under_way
        for trusted in (True, False):
            tiles = {tile for tile in gained if (tile in self.remembered) is trusted}
            if tiles:
                awaited = set(there if trusted else known)
                self.gatherings.append(Gathering(tiles, awaited, informed, trusted))
        self.remembered -= gained
        return bool(gained)

    def await_connectors(self, connectors: Iterable[bytes]) -> None:
        """These are there: what is being gathered must be told by them too."""
        for one in self.gatherings:
            one.awaited.update(connectors)

    def excuse(self, connectors: Iterable[bytes]) -> None:
        """These cannot be reached; what an earlier life knew of them must do."""
        for one in self.gatherings:
            if one.trusted:
                one.awaited.difference_update(connectors)

    def forget(self, connector: bytes) -> None:
        """This one will not come again."""
        for one in self.gatherings:
            one.awaited.discard(connector)

    def begin_sync(self, connector: bytes) -> None:
        """From here to `end_sync` the connector names everything it has."""
        for table in (*self.tables, *self.leaving.tables):
            table.begin_sync(connector)
        for one in self.gatherings:
            one.begun.add(connector)

    def abort_syncs(self, connectors: Iterable[bytes]) -> None:
        """The way to these is lost: what they were about to name is not all heard."""
        for connector in connectors:
            for table in (*self.tables, *self.leaving.tables):
                table.abort_sync(connector)
            for one in self.gatherings:
                one.begun.discard(connector)

    def end_sync(self, connector: bytes) -> list[Entry]:
        """What the connector did not name is gone; returned."""
        for one in self.gatherings:
            if connector in one.begun:
                one.awaited.discard(connector)
        for table in self.leaving.tables:
            table.end_sync(connector)
        return [entry for table in self.tables for entry in table.end_sync(connector)]

    def settle(self, informed: bool) -> bool:
        """Hold what has been told by everybody; whether there is more than before."""
        done = [one for one in self.gatherings if not one.awaited and (one.informed or informed)]
        for one in done:
            self.gatherings.remove(one)
            self.held |= one.tiles
        return bool(done)

    def release(self, tiles: Tiles) -> None:
        """Others answer for these: give them up, and then bit by bit what they held."""
        self.held -= tiles
        self._untidy = True

    def sweep(self) -> bool:
        """Drop a few subscriptions of tiles that are not ours; whether there is more to do."""
        if self._untidy:
            self._untidy = False
            self._sweeping = [(n, entry) for n, table in enumerate(self.tables) for entry in table]
        batch, self._sweeping = self._sweeping[-SWEEP:], self._sweeping[:-SWEEP]
        for number, entry in batch:
            tree, tiles = self.plan.tiles_for(parse_fields(entry.fields))
            if number != tree or not self._is_ours(tree, tiles):
                self.tables[number].remove(entry.client, entry.connector, entry.name)
        return bool(self._sweeping)

    def close(self) -> None:
        """Nothing more is asked of it."""
        self.leaving.close()
        for table in self.tables:
            table.close()

    def _is_ours(self, tree: int, tiles: Iterable[int]) -> bool:
        ours = (self.wanted, self.held, self.remembered)
        return any((tree, tile) in some for tile in tiles for some in ours)
