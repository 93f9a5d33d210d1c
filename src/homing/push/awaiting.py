"""A claim that is not answered: who has to, and who is away and may hold something older. Pure.

Nothing is sent to the client meanwhile. Who is asked has as long as the session says, HOLD_SECONDS at least, and as much
again while something comes: a disk that is busy for a moment is no reason to go on without what is on it. One that is known to be away is
waited for as long, from when it went: a restart is short, and after that nobody waits for it.
So are dispatchers when none is left: without them nobody can be asked, and nothing new comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from homing.ports import Link
from homing.push.sessions import Session
from homing.wire import pushed
from homing.wire.relay import Absence

HOLD_SECONDS: Final = 2.0
"""How long a client waits at least for what is older, and again while some of it comes, whatever its session says: who
lives answers within that. A connector that is stuck keeps the clients of others waiting for no longer than they say."""


class Awaiting:
    """A claim of ours: for which session, and who has not answered."""

    __slots__ = (
        "answered",
        "away",
        "due",
        "here",
        "hold",
        "least",
        "links",
        "seen",
        "session",
        "told",
        "unasked",
    )

    def __init__(
        self, session: Session, links: Iterable[Link], now: float, alone: float | None = None
    ) -> None:
        """`alone`: since when the dispatchers that we had are gone; None: one is there, or soon, as we have just started."""
        self.session = session
        self.links = set(links)
        self.unasked = not self.links  # nobody is there to ask yet
        self.answered = False  # by somebody, for all that he reaches
        self.away: dict[bytes, float] = {}  # connector -> until when it is waited for
        self.here: set[bytes] = set()  # those that have handed over what they had
        self.seen = 0  # how much had come when last looked
        self.hold = max(HOLD_SECONDS, session.patience)
        self.least = now + HOLD_SECONDS  # until then even those are waited for whose time is over
        self.due = now + self.hold if alone is None else alone + session.patience
        self.told = False  # the client, that it waits

    @property
    def done(self) -> bool:
        return not (self.links or self.away or self.unasked)

    @property
    def waits(self) -> bool:
        """Whether all have answered but those who are away."""
        return not self.links and bool(self.away)

    def ask(self, link: Link, now: float) -> None:
        """Somebody is there to ask."""
        self.links.add(link)
        self.unasked = False
        self.due = max(self.due, now + self.hold)

    def heard(self, link: Link, absent: Iterable[Absence], now: float) -> None:
        """One who was asked answers, for all that it reaches."""
        self.links.discard(link)
        self.answered = True
        for connector, milliseconds in absent:
            self.miss(connector, now - milliseconds / 1000, now)
        self._until_all()

    def _until_all(self) -> None:
        if self.waits:
            self.due = max(self.least, *self.away.values())

    def miss(self, connector: bytes, since: float, now: float) -> None:
        """A connector is away, or matchers are that may owe it something: it is waited for as long as the session says."""
        until = since + self.session.patience
        if until > now and connector not in self.here:
            self.away[connector] = max(until, self.away.get(connector, 0.0))

    def learn(self, connector: bytes, since: float, now: float) -> bool:
        """Since when it is away, which was a guess; whether it is waited for still."""
        until = since + self.session.patience
        if until > now:
            self.away[connector] = until
            self._until_all()
        return until > now

    def lost(self, link: Link, now: float) -> None:
        """One who was asked will not answer; if nobody does the next who comes is asked."""
        self.links.discard(link)
        if not self.links and not self.answered:
            self.unasked = True
            self.due = now + self.session.patience

    def tell(self, now: float) -> None:
        """The client, that it waits, if it said for how long: others would not know what this is."""
        self.told = True
        if self.session.wait is not None and self.session.link is not None:
            self.session.link.send(pushed.wait(self.due - now, self.away))

    def handed_over(self, connector: bytes) -> None:
        """One that was away is back, and has sent all."""
        self.here.add(connector)
        self.away.pop(connector, None)

    def overdue(self, come: int, coming: bool, now: float) -> bool:
        """The time is over; whether it is for good. `come`: how much has, in all; `coming`: more is here, and not on disk."""
        if come > self.seen or coming:
            self.seen, self.due = come, now + self.hold
            return False
        left = [until for until in self.away.values() if until > now]
        if self.links or not left:
            return True
        self.due = max(left)
        return False
