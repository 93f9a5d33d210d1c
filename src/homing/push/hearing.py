"""Which other matchers have heard what we told them. Pure.

Statuses are numbered, and whoever hears one says so. Some must be heard by all before a publisher is told that its
publication is safe (homing.push.eras): it may go on at any other matcher the moment after. Until then it sends again there what it
was not told, so nothing of it can be overtaken.

Who was there and is gone may live, and only not hear us: it counts for as long as one that is there. Nobody is
waited for beyond PATIENCE: a matcher that is dead, or cut off for longer, must not keep publishers waiting.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

PATIENCE: Final = 5.0
"""Seconds: longer than a link takes to be back, or a process; with what an ack takes without it, well below the 30 s
after which a publisher gives up."""
NOTHING: Final = -1


class Hearing:
    """What was told, by number, and who has confirmed how much of it."""

    def __init__(self) -> None:
        self.told = 1  # the last status; who joins is told all
        self.needed = 1  # the last that all others must have heard
        self._heard: dict[str, int] = {}
        self._behind: dict[str, float] = {}  # who has not heard what is needed, and since when
        self._gone: set[str] = set()

    def expect(self, names: Iterable[str], now: float = math.inf) -> None:
        """These are there, or were lately; without a time: they have theirs from when it matters."""
        for name in names:
            self._heard.setdefault(name, NOTHING)
            self._behind.setdefault(name, now)
            self._gone.add(name)

    def joined(self, name: str, now: float) -> None:
        """It is there, and is told all at once."""
        if name not in self._heard:
            self.expect([name], now)
        self._gone.discard(name)

    def left(self, name: str, now: float) -> None:
        """It may be back without anything that it had heard."""
        if name in self._heard:
            self._heard[name] = NOTHING
            self.expect([name], now)

    def excuse(self, name: str) -> None:
        """It does not confirm: it is of an older version."""
        self._gone.discard(name)
        self._behind.pop(name, None)
        self._heard.pop(name, None)

    def need(self, now: float) -> None:
        """What was told last must be heard by all."""
        self.needed = self.told
        for name in self._heard:
            self._behind.setdefault(name, now)

    def confirmed(self, name: str, number: int) -> None:
        """It has heard that one, and so all before it."""
        if name in self._heard:
            self._heard[name] = max(number, self._heard[name])
            if self._heard[name] >= self.needed:
                self._behind.pop(name, None)

    def reached(self, now: float) -> int:
        """Up to which number all have heard, but for those that had their time."""
        self._behind = {name: min(since, now) for name, since in self._behind.items()}
        for name in [one for one in self._gone if self._behind[one] + PATIENCE <= now]:
            self.excuse(name)
        waited = [name for name, since in self._behind.items() if since + PATIENCE > now]
        return min([self._heard[name] for name in waited], default=self.told)

    def patience(self, now: float) -> float:
        """Until when those are waited for that have not heard all."""
        times = [since + PATIENCE for since in self._behind.values()]
        return min([until for until in times if until > now], default=now)
