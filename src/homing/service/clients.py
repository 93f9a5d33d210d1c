"""Askers: Majordomo clients in each dialect, and the peers that repost to us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homing.errors import LocalProtocolError, RemoteProtocolError
from homing.ports import Link
from homing.service.decisions import MAJORDOMO, Decision
from homing.service.handing import BUSY, LINE
from homing.service.pending import Asker, Pending
from homing.service.router import Verdict
from homing.wire import mdp, mdp_peers
from homing.wire.frames import CUT, MORE, SHORT, SHORT_MAX, frame, shortest, tail_end
from homing.wire.mdp_fields import EMPTY
from homing.wire.mdp_messages import Dialect, Kind, Nak, Options, PeerAnswer, PeerNak, Request
from homing.wire.tasks import Task

if TYPE_CHECKING:
    from homing.service.switch import Broker

FINAL: Final = Kind.FINAL
# Seconds since its last answer within which a peer may have reposts wait here for a moment.
FLOW: Final = 0.1
# No message begins with these flags.
_NO_IMAGE: Final = b"\xff"


class MdpClient(Asker):
    """A Majordomo client; its dialect is its class.

    Most requests are for the service of the one before, with the same options: they begin with
    the same bytes, so that the rest need not be read.
    """

    __slots__ = ("_asks", "_broker", "_head", "_options", "_wishes")

    dialect = Dialect.D0X
    enveloped = True
    """Whether the dialect lets a frame of the client's own stand before a request."""
    start = b""
    """What stands before the header where the dialect has nothing there."""
    wishes = False
    """Whether an envelope may ask for something; one of another dialect is its client's own, whatever is in it."""

    def __init__(self, broker: Broker, link: Link) -> None:
        super().__init__(link)
        self._broker = broker
        self._asks = b""  # the service of the last request that was read
        self._head = _NO_IMAGE  # what stood before its data, without an envelope
        self._wishes = _NO_IMAGE  # the beginning of its envelope, up to the id
        self._options: Options | None = None  # what that asks for

    def receive(self, image: bytes, now: float) -> None:
        """C1: one request."""
        self.receive_all([image], now)

    def receive_all(self, images: list[bytes], now: float) -> None:
        """C1: every request that came at once."""
        for image in images:
            if not self.skim(image, now):
                self._ask(image, now)

    def skim(self, data: bytes, now: float) -> int:
        """C1 as long as the requests in these bytes begin as the one before; where they no more do."""
        core = self._broker.core
        service = None if self._broker.guards else core.services.get(self._asks)
        if service is None:
            return 0
        head, enveloped, size = self._head, self.enveloped, len(data)
        at = 0
        while at + 1 < size:
            start = at + data[at + 1] + 2 if data[at + 1] and enveloped else at
            body = start + len(head)
            # Slices compared: half the cost of `startswith`, which takes its arguments in a tuple.
            if data[start:body] != head or body + 2 > size:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            if start == at:
                core.take_on(self, service, data[body:end], b"", None, now)
            else:
                envelope, options = data[at + 2 : start], self._options
                if options is None or data[at : at + mdp.WISHES_END] != self._wishes:
                    if envelope[:2] == mdp.OPTIONS_MAGIC or data[at] != MORE:
                        break
                    options = None
                core.take_on(self, service, data[body:end], envelope, options, now)
            at = end
        core.tick_early(now)
        return at

    def _ask(self, image: bytes, now: float) -> None:
        """A request to be read; where policy is asked of router processes, one of them reads it."""
        broker = self._broker
        if not broker.asks_routers or image[0] == CUT:
            self._admit(image, None, now)
        elif self.link is not None and not broker.decide(self.link, MAJORDOMO, image, now):
            self.protest(b"queue-full no router")

    def decided(self, image: bytes, decision: Decision, now: float) -> None:
        """A router's verdict on a request."""
        task = decision.content
        if isinstance(task, Task):
            verdict = Verdict(task.service.encode(), decision.refusal.encode())
            self._admit(image, verdict, now)
        else:
            self._admit(image, None, now)  # unreadable: this says why

    def undecided(self, image: bytes, reason: bytes, now: float) -> None:
        """No router had a verdict on a request."""
        self._admit(image, Verdict(b"", reason), now)

    def _admit(self, image: bytes, verdict: Verdict | None, now: float) -> None:
        envelope = b""  # as far as it could be read, so that a protest finds whoever asked
        whole = image[0] != CUT
        if not whole:
            image = image[1:]
        try:
            request = mdp.read_from_client(image)
            if request.dialect != self.dialect or mdp.delimited_02(image) != bool(self.start):
                raise RemoteProtocolError("a client keeps to one dialect", 0)
            envelope = request.envelope
            options = mdp.read_options(envelope) if envelope and self.wishes else None
        except RemoteProtocolError as error:
            plain = shortest(image) if whole else image
            if plain != image:
                self._admit(plain, verdict, now)
                return
            self._broker.record.malformed += 1
            self.protest(b"malformed " + str(error).encode(), envelope)
            return
        if not whole:
            self._broker.too_large(self, request.service, request.envelope, now)
            return
        self._note(image, request, options)
        self._broker.admit(
            self, request.service, request.data, request.envelope, options, now, "", verdict
        )

    def _note(self, image: bytes, request: Request, options: Options | None) -> None:
        """Learn from a request that was read what the next ones may begin with."""
        if request.service != self._asks:
            self._asks = request.service
            self._head = self.start + mdp.request_head(self.dialect, request.service)
        if options is not None and image[0] == MORE:
            self._wishes = image[: mdp.WISHES_END]
            self._options = options

    def speaks(self, image: bytes) -> bool:
        """Whether a message is of the kind that this client sends."""
        readable = image[1:] if image[0] == CUT else image
        try:
            request = mdp.read_from_client(readable)
        except RemoteProtocolError:
            return False
        return request.dialect == self.dialect and mdp.delimited_02(readable) == bool(self.start)

    def protest(self, reason: bytes, envelope: bytes = b"") -> None:
        """Refuse what could not even be read; only `0X` has words for that."""

    def closed(self, now: float) -> None:
        """Answers go nowhere from now on; a client with a name of its own may come back."""
        self._broker.client_gone(self, self.name)


class Client0X(MdpClient):
    """Gets a NAK for every refusal; may send an envelope with options."""

    __slots__ = ()

    wishes = True

    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        link = self.link
        if link is None:
            return
        service, envelope = pending.service, pending.envelope
        head = (
            service.report_0x if kind is FINAL else mdp.report_head(Dialect.D0X, kind, service.name)
        )
        if envelope:
            image = b"%b%b%b%b" % (SHORT[len(envelope)], envelope, head, data)
        else:
            image = head + data
        if service.waiting >= LINE and self.outstanding > 1:
            link.send_with_others(image)
        elif self.outstanding > BUSY:
            link.send_soon(image)
        else:
            link.send(image)

    def refuse(self, pending: Pending, reason: bytes) -> None:
        if self.link is not None:
            self.link.send(mdp.write(Nak(pending.service.name, reason, pending.envelope)))

    def protest(self, reason: bytes, envelope: bytes = b"") -> None:
        if self.link is not None:
            self.link.send(mdp.write(Nak(b"", reason, envelope)))


class Client01(MdpClient):
    """7/MDP: one reply, no refusals."""

    __slots__ = ()

    dialect = Dialect.D01
    hears_refusals = False

    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        link, envelope = self.link, pending.envelope
        if link is None:
            return
        if kind is not FINAL:
            raise LocalProtocolError("7/MDP has no partial answer")
        service = pending.service
        image = service.report_01 + data
        if envelope:
            image = frame(envelope, True) + image
        if service.waiting >= LINE and self.outstanding > 1:
            link.send_with_others(image)
        else:
            link.send(image)

    def refuse(self, pending: Pending, reason: bytes) -> None:
        """Silence: the specification has no word for it."""


class Client02(MdpClient):
    """18/MDP: parts and a final reply, no refusals."""

    __slots__ = ()

    dialect = Dialect.D02
    enveloped = False
    hears_refusals = False
    takes_parts = True

    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        if self.link is not None:
            image = self.start + mdp.report_head(Dialect.D02, kind, pending.service.name) + data
            if pending.service.waiting >= LINE and self.outstanding > 1:
                self.link.send_with_others(image)
            else:
                self.link.send(image)

    def refuse(self, pending: Pending, reason: bytes) -> None:
        """Silence: the specification has no word for it."""


class Req02(Client02):
    """18/MDP from a REQ, against its letter: hears what follows an empty frame, and that once."""

    __slots__ = ()

    start = EMPTY
    takes_parts = False


CLIENTS: dict[Dialect, type[MdpClient]] = {
    Dialect.D0X: Client0X,
    Dialect.D01: Client01,
    Dialect.D02: Client02,
}


class Origin(Asker):
    """A peer's cloudbe: the origin of reposts. A pending's envelope is its `[client]` there."""

    __slots__ = ("_answered", "_asks", "_broker", "_head", "origin")

    takes_parts = True

    def __init__(self, broker: Broker, link: Link) -> None:
        super().__init__(link)
        self._broker = broker
        self.stem = b""
        self.origin = link.peer
        self._answered = float("-inf")
        self._asks = b""  # the service of the last repost that was read
        self._head = _NO_IMAGE  # what stood before its `[client]`

    def receive(self, image: bytes, now: float) -> None:
        """B4: one repost."""
        self.receive_all([image], now)

    def receive_all(self, images: list[bytes], now: float) -> None:
        """B4: every repost that came at once."""
        for image in images:
            if not self.skim(image, now):
                self._read(image, now)

    def skim(self, data: bytes, now: float) -> int:
        """B4, as with clients, as long as reposts begin as the one before did."""
        core = self._broker.core
        service = core.services.get(self._asks)
        if service is None:
            return 0
        head, size = self._head, len(data)
        at = 0
        while at < size:
            address = at + len(head) + 2
            if data[at : address - 2] != head or address > size or data[address - 2] != MORE:
                break
            body = address + data[address - 1] + 2
            if body == address + 2 or data[body - 2 : body] != EMPTY or body + 2 > size:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            core.take_on(self, service, data[body:end], data[address : body - 2], None, now)
            at = end
        core.tick_early(now)
        return at

    def _read(self, image: bytes, now: float) -> None:
        whole = image[0] != CUT
        try:
            repost = mdp_peers.read_at_cloudfe(image if whole else image[1:])
            if repost.origin != self.origin:
                raise RemoteProtocolError("a repost names another origin", 0)
        except RemoteProtocolError:
            self._broker.record.malformed += 1
            return
        if not whole:
            self._broker.too_large(self, repost.service, repost.address, now)
            return
        self._asks = repost.service
        self._head = mdp_peers.repost_head(repost.service, repost.origin)
        self._broker.admit(self, repost.service, repost.data, repost.address, None, now)

    def report(self, pending: Pending, kind: Kind, data: bytes) -> None:
        """B7."""
        link, address = self.link, pending.envelope
        self._answered = pending.ended
        if link is None:
            return
        if kind is FINAL and len(address) <= SHORT_MAX:
            size = SHORT[len(address)]
            image = b"%b%b%b%b" % (size, address, pending.service.cloud_0x, data)
            if pending.service.waiting:
                link.send_with_others(image)
            else:
                link.send(image)
        else:
            link.send(mdp_peers.write(PeerAnswer(kind, address, pending.service.name, data)))

    def flows(self, now: float) -> bool:
        return now - self._answered < FLOW

    def refuse(self, pending: Pending, reason: bytes) -> None:
        """B10."""
        if self.link is not None:
            nak = PeerNak(pending.envelope, pending.service.name, reason)
            self.link.send(mdp_peers.write(nak))

    def closed(self, now: float) -> None:
        """The peer is gone; so are its clients' hopes for what we hold."""
        self.link = None
