"""Changes that a dispatcher has passed on, and the matchers that must have them before they are in force. Pure.

A subscription that is said to be in force must be known wherever publications are taken. A matcher
that is a member and has no link to us yet may be taking some: members hear of each other at different
moments, and links break. So it is waited for, for a while, and told when it comes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from homing.ports import Link
from homing.wire import relay

MEET_SECONDS: Final = 5.0
"""How long a new member is waited for: Serf may take three seconds to tell it of us."""
BACK_SECONDS: Final = 1.5
"""The same of one whose link broke: a node that is well dials again soon. Shorter than a subscriber
is kept waiting, as most of those are dead."""
MEETING: Final = "meeting"


class Confirming:
    """A change under way: whom to tell when it is done, and who has not said yes."""

    __slots__ = ("asked", "away", "claim", "image", "link")

    def __init__(
        self,
        link: Link,
        asked: set[Link | bytes] | set[Link],
        image: bytes = b"",
        claim: relay.Claim | None = None,
    ) -> None:
        """`asked`: links, and ids of matchers that are awaited; `image` is what those will be sent.

        `claim`: it is one, of a session.
        """
        self.link = link
        self.asked: set[Link | bytes] = {*asked}
        self.image = image
        self.claim = claim
        self.away: tuple[relay.Absence, ...] = ()  # connectors, say those who were asked

    def found(self, matcher: bytes, link: Link) -> None:
        """A matcher is there: it is asked now, if it was to be."""
        if matcher in self.asked:
            self.asked.discard(matcher)
            self.asked.add(link)
            link.send(self.image)

    def lost(self, link: Link, matcher: bytes) -> None:
        """It is not there any more: it is asked again when it is."""
        if link in self.asked and self.image:
            self.asked.discard(link)
            self.asked.add(matcher)


class Absent:
    """Matchers that should be here and are not, and until when they are waited for."""

    def __init__(self, members: Iterable[bytes]) -> None:
        self._members = set(members)
        self._until = dict.fromkeys(self._members, math.inf)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

    @property
    def due(self) -> float | None:
        """When the first of them is late."""
        first = min(self._until.values(), default=math.inf)
        return None if first == math.inf else first

    def begin(self, now: float) -> None:
        """The clock starts for those we were made with."""
        for node, until in self._until.items():
            if until == math.inf:
                self._until[node] = now + MEET_SECONDS

    def members(self, nodes: Collection[bytes], here: set[bytes], now: float) -> list[bytes]:
        """These are members from now on, of whom some are here; those not waited for any more."""
        fresh = set(nodes) - self._members - here
        self._members = set(nodes)
        self._until.update(dict.fromkeys(fresh, now + MEET_SECONDS))
        return self._give_up(self._until.keys() - self._members)

    def found(self, node: bytes) -> None:
        """It is here."""
        self._until.pop(node, None)

    def lost(self, node: bytes, now: float) -> bool:
        """Its link is gone; whether it is waited for."""
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
