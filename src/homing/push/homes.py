"""Where durable sessions are, and which connectors had them before and are away. Pure; a dispatcher's.

What a connector still owed a client when it went is on its disk alone. So whoever has the client now is
told which connectors that may be, and for how long each has been away: it waits for them, within limits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from homing.push.places import node_ids
from homing.wire.relay import Absence, Claim

MAX_HOMES: Final = 65_536
"""Sessions whose connector is remembered, for one that held them before and comes back."""
MAX_LOST: Final = 10_000
"""Connectors known to be away: as many as a matcher knows at all."""


class Home(NamedTuple):
    """Who claimed a session last, and who had it before and was not there to hand it over."""

    claim: Claim
    owing: frozenset[bytes] = frozenset()


class Homes:
    """Sessions by client; connectors that are away, and since when."""

    def __init__(self) -> None:
        self._homes: OrderedDict[bytes, Home] = OrderedDict()
        self._lost: dict[bytes, float] = {}

    def __iter__(self) -> Iterator[Claim]:
        """As peers are told them: with who owes."""
        homes = self._homes.values()
        return iter([replace(one.claim, owing=b"".join(sorted(one.owing))) for one in homes])

    def find(self, client: bytes) -> Claim | None:
        """The claim that holds, as far as we have heard."""
        home = self._homes.get(client)
        return home.claim if home is not None else None

    def settle(self, claim: Claim) -> None:
        """This one holds from now on; who had the session before may owe some of it."""
        before = self._homes.pop(claim.client, None)
        owing = set(node_ids(claim.owing))
        if before is not None:
            owing |= {*before.owing, before.claim.connector}
        claim = replace(claim, owing=b"")
        self._homes[claim.client] = Home(claim, frozenset(owing - {claim.connector}))
        if len(self._homes) > MAX_HOMES:
            self._homes.popitem(last=False)

    def answered(self, claim: Claim, reaches: Callable[[bytes], bool]) -> None:
        """All that can be asked have answered a claim: they owe nothing more."""
        home = self._homes.get(claim.client)
        if home is not None and home.claim.rank == claim.rank:
            owing = frozenset(one for one in home.owing if not reaches(one))
            self._homes[claim.client] = home._replace(owing=owing)

    def away(
        self, claim: Claim, reaches: Callable[[bytes], bool], now: float
    ) -> dict[bytes, float]:
        """Those that may owe something and cannot be asked, and for how long."""
        home = self._homes.get(claim.client)
        if home is None or home.claim.rank != claim.rank:
            return {}
        owing = sorted(one for one in home.owing if not reaches(one))
        for one in owing:  # gone before we came: nobody knows since when
            self.lost(one, now)
        return {one: now - self._lost[one] for one in owing if one in self._lost}

    def handed_over(self, client: bytes, connector: bytes) -> None:
        """It owes the client nothing more."""
        home = self._homes.get(client)
        if home is not None:
            self._homes[client] = home._replace(owing=home.owing - {connector})

    def lost(self, connector: bytes, now: float) -> None:
        """There is no way to it from now on."""
        if len(self._lost) < MAX_LOST:
            self._lost.setdefault(connector, now)

    def found(self, connector: bytes) -> None:
        """It is there."""
        self._lost.pop(connector, None)


def absences(away: dict[bytes, float]) -> tuple[Absence, ...]:
    """As they are told."""
    return tuple(Absence(one, int(seconds * 1000)) for one, seconds in away.items())
