"""One session on its way to another connector: where to, what is under way, who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homing.ports import Link

if TYPE_CHECKING:
    from homing.push.sessions import Session

REFUSED_SECONDS: Final = 0.25
"""One that was refused, or lost its way, does so after this, and then after twice as long each time, up to
homing.push.moves.RETRY_SECONDS: mostly some dispatcher has not met its connector yet, and the client waits."""
UNSURE: Final = b"?"
"""Instead of the change that ends a session's subscriptions: after a restart nobody knows whether all matchers had it."""


class Move:
    """A session on its way to another connector."""

    __slots__ = (
        "again",
        "claims",
        "ending",
        "handing",
        "link",
        "number",
        "owing",
        "pause",
        "sent",
        "session",
        "settled",
        "since",
        "to",
        "told",
        "tried",
    )

    def __init__(self, session: Session, to: bytes, number: int, now: float) -> None:
        """`number`: of the claim; what is said of an earlier move to the same connector is not of this one."""
        self.session = session
        self.to = to
        self.since = now
        self.number = max(1, number)
        self.claims: dict[Link, bytes] = {}  # who wants to know when it is there
        self.link: Link | None = None  # the dispatcher it goes over
        self.sent: dict[bytes, None] = {}  # publications under way
        self.told: set[bytes] = set()  # changes that tell of its subscriptions
        # The one that ends them here, until the matchers say that it has.
        self.ending = b"" if session.stamp else UNSURE
        # Some of them are away, the last of them since then, and may owe the session something.
        self.owing: float | None = None
        self.handing: dict[Link, bytes] = {}  # whose claim was answered before they are back
        self.tried = 0.0
        self.again = 0.0  # when, without a link
        self.pause = REFUSED_SECONDS
        self.settled: float | None = None  # since then all is there
