"""Which matcher goes first at a connector, so that order holds when publishers change matchers. Pure.

A matcher tells the others which connectors are *late*: owed publications that their publishers believe
safe. If it is lost its publishers go on elsewhere; whoever owes such a connector something then waits
until the lost one is back and has caught up, or GRACE seconds.

A publisher may also leave a matcher that lives: its link broke. So whoever is come to lets those go first that are
late then, until they have caught up, or GRACE seconds from when the connector can be reached again: one that is late
because it alone does not reach it keeps nobody waiting for ever.

Nobody waits with what it took before, or at the same time: each tells the oldest era (homing.push.eras) of what it owes
a connector, and only what we took in a later one waits for it. So of those who wait for each other one always can go.

Of some no eras are known: they are of an older version. So each also tells for whom it waits, and of
those who wait for each other nevertheless, round any number of corners, the first by name goes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from homing.wire.status import Wait

GRACE: Final = 30.0
"""How long a matcher that is gone goes first: longer than it takes to be started again."""
OVER: Final = -math.inf
_NONE: Final[Mapping[bytes, int]] = MappingProxyType({})
MAX_WAITS: Final = 32_768
"""At once: three matchers lost, each late at all connectors there can be. All are told, in half of what a
message holds; beyond it nobody is waited for."""


class Precedence:
    """For whom we wait at which connectors, and for whom the others do."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._first: dict[bytes, dict[str, float]] = {}  # connector -> who goes first, until when
        self._ahead: dict[bytes, dict[str, float]] = {}  # the same, of those that live
        self._others: dict[str, set[Wait]] = {}  # of those that are late
        self._eras: dict[bytes, dict[str, int]] = {}  # connector -> the oldest that others owe

    def lost(self, name: str, late: Iterable[bytes], now: float) -> None:
        """A matcher is gone that was late at these connectors."""
        self._others.pop(name, None)
        _remove(self._ahead, name, set())
        room = MAX_WAITS - len(self.waits())
        for connector in list(late)[:room]:
            self._first.setdefault(connector, {})[name] = now + GRACE

    def heard(
        self, name: str, late: set[bytes], waits: Iterable[Wait], eras: Mapping[bytes, int] = _NONE
    ) -> None:
        """A matcher is there: it goes first for as long as it is late, then no more."""
        self._others[name] = {wait for wait in waits if wait[0] in late}
        _remove(self._ahead, name, late)
        _remove(self._eras, name, eras)
        for connector, era in eras.items():
            self._eras.setdefault(connector, {})[name] = era
        for connector, waiting in list(self._first.items()):
            if name in waiting and connector in late:
                waiting[name] = math.inf
            else:
                waiting.pop(name, None)
            if not waiting:
                del self._first[connector]

    def let_go(self, name: str, late: Iterable[bytes]) -> list[bytes]:
        """A publisher may have come from this matcher, which lives: it goes first where it is late.

        The connectors where that is new.
        """
        fresh = [one for one in late if name not in self._ahead.get(one, ())]
        fresh = fresh[: MAX_WAITS - len(self.waits())]
        for connector in fresh:
            self._ahead.setdefault(connector, {})[name] = math.inf
        return fresh

    def must_wait(
        self, connector: bytes, now: float, reachable: bool = True, era: int | None = None
    ) -> bool:
        """Whether another matcher must be given time to hand over what it owes.

        `era`: when we took what would go now; None: nobody knows.
        """
        if connector not in self._first and connector not in self._ahead:
            return False
        eras = self._eras.get(connector, {})
        if era is not None:
            eras = {**eras, self._me: era}
        waiting = {
            *self._lost(connector, now, eras),
            *self._living(connector, now, reachable, eras),
        }
        if not waiting:
            return False
        beyond = self._beyond(connector, waiting, eras)
        circle = {name for name in beyond if self._me in self._beyond(connector, [name], eras)}
        return not circle.issuperset(waiting) or min(circle) < self._me

    def _lost(self, connector: bytes, now: float, eras: Mapping[str, int]) -> Iterable[str]:
        waiting = self._first.get(connector, {})
        for name in [name for name, until in waiting.items() if until <= now]:
            del waiting[name]
            _remove(self._eras, name, [one for one in self._eras if one != connector])
        if not waiting:
            self._first.pop(connector, None)
        return [name for name in waiting if _is_earlier(eras, name, self._me)]

    def _living(
        self, connector: bytes, now: float, reachable: bool, eras: Mapping[str, int]
    ) -> Iterable[str]:
        """Who had its time stays noted, so that it has no more of it before it has caught up."""
        ahead = self._ahead.get(connector, {})
        earlier = [name for name in ahead if _is_earlier(eras, name, self._me)]
        for name in earlier:
            if ahead[name] <= now:
                ahead[name] = OVER
            elif ahead[name] == math.inf and reachable:
                ahead[name] = now + GRACE
        return [name for name in earlier if ahead[name] != OVER]

    def waits(self) -> list[Wait]:
        """What the others are told."""
        pairs = {(connector, name) for connector, first in self._first.items() for name in first}
        for connector, ahead in self._ahead.items():
            pairs.update((connector, name) for name, until in ahead.items() if until != OVER)
        return sorted(pairs)

    def _beyond(self, connector: bytes, names: Iterable[str], eras: Mapping[str, int]) -> set[str]:
        """These matchers, and all that they wait for, as they say: directly or because those wait."""
        found = set(names)
        open_ends = list(found)
        while open_ends:
            name = open_ends.pop()
            waits = [other for where, other in self._others.get(name, ()) if where == connector]
            fresh = {other for other in waits if _is_earlier(eras, other, name)} - found
            found |= fresh
            open_ends += fresh
        return found


def _is_earlier(eras: Mapping[str, int], name: str, than: str) -> bool:
    """Whether one matcher took what it owes before another did, as far as is known."""
    return name not in eras or than not in eras or eras[name] < eras[than]


def _remove(waits: dict[bytes, dict[str, Any]], name: str, but: Collection[bytes]) -> None:
    """Know of a matcher no more, but at these connectors."""
    for connector in [one for one, names in waits.items() if name in names and one not in but]:
        del waits[connector][name]
        if not waits[connector]:
            del waits[connector]
