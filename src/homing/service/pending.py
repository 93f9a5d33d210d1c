"""A request under way, and the two sides it stands between: who asked, who holds it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from homing.ports import Link
from homing.wire.mdp_messages import Kind

if TYPE_CHECKING:
    from homing.service.queues import Service

WAITING: Final = 0
HELD: Final = 1
DONE: Final = 2

NOT_YET: Final = -1
"""The number of a request whose acceptance will be in the journal, but is not there yet."""


class Pending:
    """One request, from acceptance to its one answer or refusal."""

    __slots__ = (
        "accepted",
        "answer_size",
        "asker",
        "attempts",
        "data",
        "deadline",
        "due",
        "ended",
        "envelope",
        "handed",
        "holder",
        "message_id",
        "number",
        "partials",
        "parts",
        "priority",
        "service",
        "size",
        "state",
        "streams",
    )

    def __init__(
        self,
        asker: Asker,
        service: Service,
        data: bytes,
        envelope: bytes,
        now: float,
        deadline: float,
    ) -> None:
        self.asker = asker
        self.service = service
        self.data = data
        self.size = len(data)  # known when the data is let go of, too
        self.envelope = envelope  # what stands before every answer; the asker knows how
        self.accepted = now
        self.deadline = deadline
        self.due = deadline  # when to look at it: the deadline, or earlier
        self.handed = now
        self.priority = 4
        self.state = WAITING
        self.streams = asker.takes_parts  # the asker takes parts as they come
        self.holder: Holder | None = None
        self.attempts = 0
        self.partials = 0
        self.parts: bytearray | None = None  # kept for an asker that wants one answer
        self.number = 0  # of its RequestAccepted in the journal; 0: there is none; or NOT_YET
        self.ended = now  # when it was answered
        self.answer_size = 0
        self.message_id = ""  # of a task


class Asker(ABC):
    """Whoever a request came from: a client of some dialect, or the peer that reposted it."""

    __slots__ = ("link", "name", "outstanding", "stem")

    hears_refusals = True
    """Whether the dialect has a NAK; without one a refusal is silence."""
    origin = b""
    """The peer's cloudbe id where the request is a repost."""
    takes_parts = False
    """Whether it is sent parts of an answer as they come without asking for them."""

    def __init__(self, link: Link) -> None:
        self.link: Link | None = link  # None: gone, answers go nowhere
        self.name = link.peer
        self.stem = link.peer  # of the addresses that holders see
        self.outstanding = 0

    def flows(self, now: float) -> bool:
        """Whether it is a peer whose reposts are being answered one after the other."""
        return False

    @abstractmethod
    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        """Send the answer or a part of it."""

    @abstractmethod
    def refuse(self, pending: Pending, reason: bytes) -> None:
        """Send a NAK."""


class Holder(ABC):
    """Whoever may hold requests: a worker of some dialect, or a peer."""

    __slots__ = ("held", "link", "name", "serial")

    remote = False
    """Whether it is a peer, whose workers do the work."""

    def __init__(self, link: Link | None, name: bytes) -> None:
        self.link = link
        self.name = name
        self.held: dict[bytes, Pending] = {}  # by the address that its answer will carry
        self.serial = 0

    @abstractmethod
    def hand(self, pending: Pending) -> None:
        """Take hold of a request and send it."""

    def keep(self, pending: Pending) -> bytes:
        """Note the request under an address that names no other one here."""
        identity = pending.message_id
        address = identity.encode() if identity else pending.asker.stem + pending.envelope
        held = self.held
        if address in held:
            self.serial += 1
            address += b"~%d" % self.serial
        held[address] = pending
        return address
