"""Changes that a dispatcher has passed on, and the matchers that must have them before they are in force. Pure.

A subscription that is said to be in force must be known wherever publications are taken. A matcher
that is a member and has no link to us yet may be taking some: members hear of each other at different
moments, and links break. So it is waited for, for a while, and told when it comes.

The end of a session's subscriptions waits for nobody: whoever is told of it is told as well which matchers
are away, as they may owe the session something that they found before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from homing.ports import Link
from homing.wire import relay
from homing.wire.pushed import MAX_WAIT

MEET_SECONDS: Final = 5.0
"""How long a new member is waited for: Serf may take three seconds to tell it of us."""
BACK_SECONDS: Final = 1.5
"""The same of one whose link broke: a node that is well dials again soon. Shorter than a subscriber
is kept waiting, as most of those are dead."""
MEETING: Final = "meeting"
MAX_CONFIRMING: Final = 65_536
"""Changes under way at a dispatcher: more than any burst of new clients. Beyond it the connector is not
told and answers its client after a moment by itself."""
MAX_GONE: Final = 10_000
"""Matchers known to be away: as many as there can be connectors."""


class Confirming:
    """A change under way: whom to tell when it is done, and who has not said yes."""

    __slots__ = ("asked", "away", "claim", "ends", "image", "link", "sure")

    def __init__(
        self,
        link: Link,
        asked: set[Link | bytes] | set[Link],
        image: bytes = b"",
        claim: relay.Claim | None = None,
        away: dict[bytes, float] | None = None,
    ) -> None:
        """`asked`: links, and ids of matchers that are awaited; `image` is what those will be sent.

        `claim`: it is one, of a session. `away`: it is the end of one, and these matchers are away, since when.
        """
        self.link = link
        self.asked: set[Link | bytes] = {*asked}
        self.image = image
        self.claim = claim
        self.ends = away is not None
        self.away = away or {}  # who may owe the session something: of a claim connectors
        self.sure: set[bytes] = set()  # of these, those that say so of themselves

    def found(self, matcher: bytes, link: Link) -> None:
        """A matcher is there: it is asked now, if it was to be."""
        if matcher in self.asked or (self.ends and matcher in self.away):
            self.asked.discard(matcher)
            self.asked.add(link)
            self.away.pop(matcher, None)
            link.send(self.image)

    def lost(self, link: Link, matcher: bytes, awaited: bool, now: float) -> None:
        """It is not there any more: it is asked again when it is, if it is waited for."""
        if link not in self.asked or not self.image:
            return
        if self.ends:
            self.away[matcher] = now
        elif awaited:
            self.asked.discard(link)
            self.asked.add(matcher)

    def told(self, absent: Iterable[relay.Absence], sure: Iterable[bytes], now: float) -> None:
        """Somebody who was asked answers that these may owe something; some of them say so of themselves."""
        self.sure.update(sure)
        for one in absent:
            self.away.setdefault(one.connector, now - one.milliseconds / 1000)

    def owing(self, reaches: Callable[[bytes], bool], now: float) -> dict[bytes, float]:
        """Who may owe something, and for how long it is away; not who is reached by now, unless it says so of itself."""
        certain = self.away if self.ends else self.sure
        known = self.away.items()
        return {one: now - since for one, since in known if one in certain or not reaches(one)}


def ask_too(changes: Iterable[Confirming], link: Link, connectors: Collection[bytes]) -> None:
    """Connectors that come while a claim waits for others' answers may have had its session: they are asked as well."""
    for change in changes:
        claim = change.claim
        ours = link.plug == "connectors" or change.link.plug == "connectors"
        if claim is not None and ours and set(connectors) - {claim.connector}:
            change.asked.add(link)
            link.send(claim.encode())


class FirstMeeting:
    """Whether those that are dialled are still to be met for the first time, and have time for that."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: float | None = math.inf

    @property
    def under_way(self) -> bool:
        return self._until is not None

    def begin(self, now: float) -> None:
        """The clock starts."""
        if self._until == math.inf:
            self._until = now + MEET_SECONDS

    def ends(self, everybody: bool, now: float) -> bool:
        """Whether it ends just now: all have been met, or it has lasted long enough."""
        if self._until is None or not (everybody or now >= self._until):
            return False
        self._until = None
        return True


class Absent:
    """Matchers that should be here and are not, and until when they are waited for."""

    def __init__(self, members: Iterable[bytes]) -> None:
        self._members = set(members)
        self._until = dict.fromkeys(self._members, math.inf)
        self._since: dict[bytes, float] = {}  # these are not here, waited for or not

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

    @property
    def due(self) -> float | None:
        """When the first of them is late."""
        first = min(self._until.values(), default=math.inf)
        return None if first == math.inf else first

    def since(self, now: float) -> dict[bytes, float]:
        """All that are away, waited for or not, since when: members or not, and for no longer than a session may wait."""
        for node in [one for one, since in self._since.items() if now - since > MAX_WAIT]:
            del self._since[node]
        return {**dict.fromkeys(self._until, now), **self._since}

    def begin(self, now: float) -> None:
        """The clock starts for those we were made with."""
        for node, until in self._until.items():
            if until == math.inf:
                self._until[node] = now + MEET_SECONDS
                self._since[node] = now

    def members(self, nodes: Collection[bytes], here: set[bytes], now: float) -> list[bytes]:
        """These are members from now on, of whom some are here; those not waited for any more."""
        fresh = set(nodes) - self._members - here
        self._members = set(nodes)
        self._until.update(dict.fromkeys(fresh, now + MEET_SECONDS))
        for node in fresh:
            self._gone(node, now)
        return self._give_up(self._until.keys() - self._members)

    def found(self, node: bytes) -> None:
        """It is here."""
        self._until.pop(node, None)
        self._since.pop(node, None)

    def _gone(self, node: bytes, now: float) -> None:
        if len(self._since) < MAX_GONE:
            self._since.setdefault(node, now)

    def lost(self, node: bytes, now: float) -> bool:
        """Its link is gone; whether it is waited for."""
        self._gone(node, now)
        if node in self._members:
            self._until[node] = now + BACK_SECONDS
        return node in self._members

    def late(self, now: float) -> list[bytes]:
        """Those that are not waited for any more."""
        return self._give_up(node for node, until in self._until.items() if until <= now)

    def _give_up(self, nodes: Iterable[bytes]) -> list[bytes]:
        gone = list(nodes)
        for node in gone:
            del self._until[node]
        return gone
