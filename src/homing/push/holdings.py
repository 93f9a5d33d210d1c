"""Every subscription a matcher holds, under the placement plan it follows and the one before. Pure.

A matcher follows one plan, and two while the fabric moves from one to the next: the older
answers until every tile of the newer is held by enough matchers. When a still newer plan comes
before that, the one of the two that is less of use is given up. What connectors tell goes into
the shares of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from homing.push.placement import COPIES, EVERYWHERE, Plan, Tile, name_of
from homing.push.ring import Ring
from homing.push.share import WHOLE, Share
from homing.push.table import Entry, Index
from homing.push.values import Value

MAX_SHARES: Final = 2
"""Plans followed at once: each is a copy of what we hold."""

Told = Mapping[tuple[bytes, Tile], set[str]]
"""By plan and tile, the other matchers that say they hold it."""


class Standing(msgspec.Struct, omit_defaults=True):
    """A matcher's place in the fabric as its journal has it (RingChanged.plan)."""

    members: list[str] = []
    plans: list[Plan] = []
    held: list[list[Tile]] = []
    era: int = 0  # of what is taken from now on
    heard: int = -1  # the newest that another told


def read_standing(source: bytes) -> Standing | None:
    """The standing in a journal event; None for what another version wrote."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(source, type=Standing)
    return None


class Holdings:
    """Shares of one or two plans, the newest last; there is always one."""

    def __init__(self, me: str, make_index: Callable[[], Index], plan: Plan = EVERYWHERE) -> None:
        self._me = me
        self._make_index = make_index
        self.shares = [Share(plan, make_index)]
        self.connectors: dict[bytes, None] = {}  # all that are known, reachable or not

    def __len__(self) -> int:
        return max([len(share) for share in self.shares])

    def __iter__(self) -> Iterator[Entry]:
        """Every subscription held, once."""
        if len(self.shares) == 1:
            return iter(self.shares[0])
        return iter({(e.place, e.name): e for share in self.shares for e in share}.values())

    @property
    def index(self) -> Index:
        """Of the newest plan's first tree: all there is of the usual plan."""
        return self.shares[-1].tables[0].index

    @property
    def newest(self) -> Share:
        return self.shares[-1]

    @property
    def settled(self) -> bool:
        """Whether all that is ours under some plan can be answered for."""
        return any(share.wanted and share.wanted <= share.held for share in self.shares)

    @property
    def moving(self) -> int:
        """Tiles wanted and not yet held."""
        return sum([len(share.wanted - share.held) for share in self.shares])

    # Subscriptions

    def set(self, client: bytes, connector: bytes, name: bytes, fields: bytes) -> bool:
        """A subscription is now exactly this; whether that changed what we hold."""
        changed = [share.set(client, connector, name, fields) for share in self.shares]
        return any(changed)

    def knows(self, client: bytes, connector: bytes, name: bytes) -> bool:
        """Whether we hold a subscription, whatever it asks for."""
        tables = [table for share in self.shares for table in share.tables]
        return any(table.knows(client, connector, name) for table in tables)

    def doubt(self, client: bytes, connector: bytes, name: bytes) -> None:
        """Not its connector named it: a sync that is under way must, or it is gone."""
        for table in [table for share in self.shares for table in share.tables]:
            table.doubt(client, connector, name)

    def remove(self, client: bytes, connector: bytes, name: bytes) -> bool:
        """One subscription is gone, or with no name all of a client's."""
        changed = [share.remove(client, connector, name) for share in self.shares]
        return any(changed)

    def begin_sync(self, connector: bytes) -> None:
        """From here to `end_sync` the connector names everything it has."""
        for share in self.shares:
            share.begin_sync(connector)

    def end_sync(self, connector: bytes) -> list[Entry]:
        """What the connector did not name is gone; returned, each once."""
        gone = [entry for share in self.shares for entry in share.end_sync(connector)]
        return list({(entry.place, entry.name): entry for entry in gone}.values())

    def here(self, attributes: Mapping[str, Value]) -> tuple[int, bytes] | None:
        """Whom a publication concerns, if we hold all of the answer."""
        for share in reversed(self.shares):
            tiles = WHOLE if share.whole else share.plan.asked(attributes)
            if share.held.issuperset(tiles):
                return share.match(tiles, attributes)
        return None

    def share(self, plan: bytes) -> Share | None:
        """Ours of a plan, by the plan's name."""
        return next((share for share in self.shares if share.name == plan), None)

    # Plans and tiles

    def follow(self, plan: Plan, told: Told) -> bool:
        """Follow a plan from now on if it is newer; whether we do."""
        if name_of(plan) <= self.newest.name:
            return False
        kept = [share for share in self.shares if share.held or share.remembered]
        if len(kept) >= MAX_SHARES:
            # Who waited for one plan to be complete might wait for ever: others go on to the next.
            kept = kept[-1:] if self._is_answered(kept[-1], told) else kept[:1]
        for share in self.shares:
            if share not in kept:
                share.close()
        self.shares = [*kept, Share(plan, self._make_index)]
        return True

    def place(self, ring: Ring | None, there: Collection[bytes], informed: bool) -> bool:
        """Want what is ours: as planned, and given a ring also what we stand in for.

        `there`: the connectors that can be reached. Whether they must tell all anew.
        """
        gained = False
        for share in self.shares:
            wanted = share.plan.planned(self._me)
            if ring is not None:
                wanted = {t for t in share.plan.tiles if self._me in share.plan.owners(t, ring)}
            else:
                wanted |= share.wanted
            gained |= share.want(wanted, self.connectors, there, informed)
            if ring is not None:
                share.remembered.clear()
        return gained

    def know(self, connectors: Iterable[bytes]) -> bool:
        """There are these connectors; whether any is new to us."""
        fresh = [one for one in connectors if one not in self.connectors]
        self.connectors.update(dict.fromkeys(fresh))
        return bool(fresh)

    def forget(self, connector: bytes) -> list[Entry]:
        """A connector will not come again: nothing of it is kept. What it had."""
        self.connectors.pop(connector, None)
        for share in self.shares:
            share.forget(connector)
        self.begin_sync(connector)
        return self.end_sync(connector)

    def settle(self, informed: bool) -> bool:
        """Hold what everybody has told; whether there is more than before."""
        more = [share.settle(informed) for share in self.shares]
        return any(more)

    def review(self, ring: Ring, told: Told) -> bool:
        """Give up what others hold by now; whether that is less than before."""
        less = False
        if len(self.shares) > 1 and self._is_everywhere_held(self.newest, ring, told):
            self.shares.pop(0).close()
            less = True
        for share in self.shares:
            spare = {t for t in share.held - share.wanted if self._is_owned(share, t, ring, told)}
            if spare:
                share.release(spare)
                less = True
        return less

    def sweep(self) -> bool:
        """Drop a little of what was given up; whether there is more to do."""
        more = [share.sweep() for share in self.shares]
        return any(more)

    def beat(self) -> None:
        """What has left long enough ago is forgotten."""
        for share in self.shares:
            share.leaving.fade()

    def _is_everywhere_held(self, share: Share, ring: Ring, told: Told) -> bool:
        copies = min(COPIES, len(ring))
        return all(
            len(told.get((share.name, tile), ())) + (tile in share.held) >= copies
            for tile in share.plan.tiles
        )

    def _is_answered(self, share: Share, told: Told) -> bool:
        return all(tile in share.held or told.get((share.name, tile)) for tile in share.plan.tiles)

    def _is_owned(self, share: Share, tile: Tile, ring: Ring, told: Told) -> bool:
        holders = told.get((share.name, tile), set())
        return holders.issuperset(share.plan.owners(tile, ring))

    # The journal

    def standing(self, members: Iterable[str], era: int = 0, heard: int = -1) -> bytes:
        """What a later life must know to go on where this one was."""
        held = [sorted(share.held) for share in self.shares]
        plans = [share.plan for share in self.shares]
        return msgspec.json.encode(Standing(sorted(members), plans, held, era, heard))

    def restore(self, standing: Standing | None, entries: Iterable[Entry]) -> None:
        """Start as an earlier life ended, before anything is wanted."""
        if standing is not None and standing.plans:
            self.shares = [Share(plan, self._make_index) for plan in standing.plans[-MAX_SHARES:]]
            for share, held in zip(reversed(self.shares), reversed(standing.held), strict=False):
                share.remembered = set(held)
        for entry in entries:
            self.connectors[entry.connector] = None
            for share in self.shares:
                share.restore(entry.client, entry.connector, entry.name, entry.fields)
