"""Holders: Majordomo workers in each dialect, from READY to DISCONNECT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from homing.errors import RemoteProtocolError
from homing.ports import Link
from homing.service.handing import BUSY
from homing.service.pending import HELD, Pending
from homing.service.worker_pool import Worker
from homing.wire import mdp
from homing.wire.frames import CUT, MORE, SHORT, SHORT_MAX, shortest, tail_end
from homing.wire.mdp_fields import EMPTY
from homing.wire.mdp_messages import Answer, Dialect, Disconnect, Heartbeat, Kind, Ready

if TYPE_CHECKING:
    from homing.service.clients import MdpClient
    from homing.service.switch import Broker

SHORT_FLAGS: Final = bytes((MORE,))
"""Of a short frame that others follow."""
REPORT_CLOUD: Final = mdp.REPORT_CLOUD + SHORT_FLAGS
"""As long as REPORT_LOCAL: `[client]` stands at the same place in both."""


class MdpWorker(Worker):
    """A registered Majordomo worker; its dialect is its class."""

    __slots__ = ("_broker",)

    dialect = Dialect.D0X
    lead = b""
    """What stands before the header where the dialect has nothing there."""
    heartbeat = mdp.HEARTBEATS[Dialect.D0X]
    reply = mdp.REPORT_LOCAL + SHORT_FLAGS
    """What its answers begin with, up to the size of their `[client]`."""
    work = b""
    """What a request to it begins with, up to `[client]`; in `0X` that depends on the request."""
    tells_service = False
    """Whether its answers say of which service and whom they are for: REPORT_CLOUD, which peer."""

    def __init__(self, broker: Broker, link: Link, credit: int, now: float) -> None:
        super().__init__(link, credit, now)
        self._broker = broker

    def hand(self, pending: Pending) -> None:
        link = self.link
        if link is None:
            return
        address, held = pending.asker.stem + pending.envelope, self.held
        if pending.message_id or held.setdefault(address, pending) is not pending:
            address = self.keep(pending)
        if len(address) <= SHORT_MAX:
            size = SHORT[len(address)]
            link.send(b"%b%b%b%b%b" % (self.work, size, address, EMPTY, pending.data))
        else:
            link.send(self.work + mdp.address_head(address) + pending.data)

    def receive(self, image: bytes, now: float) -> None:
        """W4, W5, W6: one message."""
        self.receive_all([image], now)

    def receive_all(self, images: list[bytes], now: float) -> None:
        """W4, W5, W6. Whatever it is, but DISCONNECT, it is a sign of life."""
        self.seen = now
        for place, image in enumerate(images):
            if self.skim(image, now):
                continue
            self._read(image, now)
            link = self.link
            if link is not None and link.state is not self:  # it is no worker of ours any more
                for later in images[place + 1 :]:
                    self._broker.receive(link, later, now)
                return

    def skim(self, data: bytes, now: float) -> int:
        """W4, W5 as long as these bytes are answers to what we hand it; where they no more are.

        Nearly always they are, as it should be: then only the address has to be cut out. Or they are W6, of one
        that idles.
        """
        reply, tells_service = self.reply, self.tells_service
        core, held, service = self._broker.core, self.held, self.service
        at, size, freed = 0, len(data), 0
        while at < size:
            address_at = at + len(reply) + 1  # behind its size
            # Slices compared: half the cost of `startswith`, which takes its arguments in a tuple.
            start = data[at : address_at - 1]
            if (start != reply and start != REPORT_CLOUD) or address_at > size:
                break
            told_at = address_at + data[address_at - 1]
            address = data[address_at:told_at]
            pending = held.get(address)
            if pending is None or pending.state != HELD or pending.parts is not None:
                break
            due, told = reply, EMPTY
            if tells_service:
                told = pending.service.told_0x
                origin = pending.asker.origin
                if origin:
                    due, told = REPORT_CLOUD, mdp.cloud_tail(origin, pending.service.name)
            body = told_at + len(told)
            if data[told_at:body] != told or start != due or body + 2 > size:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            del held[address]
            core.finish(pending, data[body:end], now)
            if service is None or service.waiting:
                core.freed(self, now)
            else:
                freed += 1
            at = end
        if freed and self.pool is not None:
            self.pool.give_back(self, freed)
        if at:
            self.seen = now
        elif data == self.heartbeat:
            self.seen = now
            self._broker.beats.beaten_to(self, now)
            return size
        return at

    def _read(self, image: bytes, now: float) -> None:
        """The rest of what a worker may say."""
        whole = image[0] != CUT
        try:
            readable = image if whole else image[1:]
            if mdp.delimited_worker_02(readable) != bool(self.lead):
                raise RemoteProtocolError("a worker keeps to one dialect", 0)
            message = mdp.read_from_worker(readable[len(self.lead) :])
        except RemoteProtocolError:
            plain = shortest(image)
            if plain != image:
                self.receive(plain, now)
                return
            self._broker.record.malformed += 1
            self._broker.dismiss(self, b"malformed", now)
            return
        if isinstance(message, Answer) and message.dialect == self.dialect:
            self._broker.core.answer(
                self,
                message.address,
                message.service,
                message.kind if whole else Kind.FAILED,
                message.data if whole else self._broker.too_large_answer,
                now,
                message.origin if self.tells_service else None,
            )
        elif isinstance(message, Disconnect):
            self._broker.worker_gone(self, b"disconnect", now)
        else:  # a second READY, or another dialect: both specifications say DISCONNECT
            self._broker.dismiss(self, b"unexpected", now)

    def beat(self) -> None:
        if self.link is not None:
            self.link.send(self.heartbeat)

    def dismiss(self) -> None:
        if self.link is not None:
            self.link.send(self.lead + mdp.DISCONNECTS[self.dialect])

    def successor(self) -> object:
        return Newcomer(self._broker, self.link, quiet=True) if self.link is not None else None

    def closed(self, now: float) -> None:
        self._broker.worker_gone(self, b"closed", now)


class Worker0X(MdpWorker):
    """Told the service and, for a repost, its origin; may have credit."""

    __slots__ = ()

    tells_service = True

    def tell(self, interval: float) -> None:
        if self.link is not None:
            told = Heartbeat(Dialect.D0X, max(1, round(interval * 1000)))
            self.link.send(mdp.write(told))

    def hand(self, pending: Pending) -> None:
        asker, held, link = pending.asker, self.held, self.link
        address = asker.stem + pending.envelope
        if pending.message_id or held.setdefault(address, pending) is not pending:
            address = self.keep(pending)
        if link is None:
            return
        if asker.origin:
            head = mdp.repost_work_head(pending.service.name, asker.origin)
        else:
            head = pending.service.work_0x
        if len(address) > SHORT_MAX:
            link.send(head + mdp.address_head(address) + pending.data)
            return
        image = b"%b%b%b%b%b" % (head, SHORT[len(address)], address, EMPTY, pending.data)
        if len(held) > BUSY:
            link.send_soon(image)
        else:
            link.send(image)


class Worker01(MdpWorker):
    """7/MDP: one service, one request at a time."""

    __slots__ = ()

    dialect = Dialect.D01
    heartbeat = mdp.HEARTBEATS[Dialect.D01]
    reply = mdp.REPLY_01 + SHORT_FLAGS
    work = mdp.work_head(Dialect.D01, b"")


class Worker02(MdpWorker):
    """18/MDP: one service, one request at a time, parts of an answer."""

    __slots__ = ()

    dialect = Dialect.D02
    heartbeat = mdp.HEARTBEATS[Dialect.D02]
    reply = mdp.FINAL_02 + SHORT_FLAGS
    work = mdp.work_head(Dialect.D02, b"")


class Delimited02(Worker02):
    """18/MDP against its letter, as 7/MDP has it: an empty frame stands before all it says and hears."""

    __slots__ = ()

    lead = EMPTY
    heartbeat = EMPTY + mdp.HEARTBEATS[Dialect.D02]
    reply = EMPTY + mdp.FINAL_02 + SHORT_FLAGS
    work = EMPTY + mdp.work_head(Dialect.D02, b"")


WORKERS: dict[Dialect, type[MdpWorker]] = {
    Dialect.D0X: Worker0X,
    Dialect.D01: Worker01,
    Dialect.D02: Worker02,
}


class Newcomer:
    """A link on a Majordomo port that has not said yet what it is.

    `quiet`: it was a worker that has been sent DISCONNECT; only READY is heard from it now.
    """

    __slots__ = ("_broker", "_link", "_quiet")

    def __init__(self, broker: Broker, link: Link, quiet: bool = False) -> None:
        self._broker = broker
        self._link = link
        self._quiet = quiet

    def receive(self, image: bytes, now: float) -> None:
        """The first message decides: worker or client, and the dialect."""
        readable = image[1:] if image[0] == CUT else image
        lead = EMPTY if mdp.delimited_worker_02(readable) else b""
        worker = mdp.worker_dialect(readable[len(lead) :])
        try:
            if worker is not None:
                self._first_of_worker(readable[len(lead) :], lead, now)
            else:
                dialect = mdp.read_from_client(readable).dialect
                req = mdp.delimited_02(readable)
                self._broker.new_client(self._link, dialect, req).receive(image, now)
        except RemoteProtocolError as error:
            plain = shortest(image)
            if plain != image:
                self.receive(plain, now)
                return
            self._broker.record.malformed += 1
            if worker is not None:
                self._send_away(worker, lead)
            else:
                self._broker.stranger(self._link, image, error)

    def _first_of_worker(self, image: bytes, lead: bytes, now: float) -> None:
        message = mdp.read_from_worker(image)
        if isinstance(message, Ready):
            self._broker.new_worker(self._link, message, now, delimited=bool(lead))
        elif not isinstance(message, Disconnect):
            # A worker that thinks it is known, from before a restart: it shall register anew.
            self._send_away(message.dialect, lead)

    def _send_away(self, dialect: Dialect, lead: bytes) -> None:
        if not self._quiet:
            self._link.send(lead + mdp.DISCONNECTS[dialect])
            self._quiet = True

    def closed(self, now: float) -> None:
        """Nothing was promised to it."""


class Returned:
    """A link with the name of a client that left while answers were owed to it: it gets these.

    Its first message shows whether it is that client; a worker or another dialect is somebody new.
    """

    __slots__ = ("_broker", "_client", "_link")

    def __init__(self, broker: Broker, link: Link, client: MdpClient) -> None:
        self._broker = broker
        self._link = link
        self._client = client

    def receive(self, image: bytes, now: float) -> None:
        """The first message."""
        same = self._client.speaks(image)
        if not same:
            self._client.link = None
        self._broker.resume(self._link, image, now, self._client if same else None)

    def closed(self, now: float) -> None:
        """It may come back once more."""
        self._client.closed(now)
