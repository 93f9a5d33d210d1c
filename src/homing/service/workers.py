"""Holders: Majordomo workers in each dialect, from READY to DISCONNECT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from homing.errors import RemoteProtocolError
from homing.ports import Link
from homing.service.pending import Pending
from homing.service.worker_pool import Worker
from homing.wire import mdp
from homing.wire.frames import MORE
from homing.wire.mdp_messages import Answer, Dialect, Disconnect, Kind, Ready

if TYPE_CHECKING:
    from homing.service.switch import Broker

FINAL = Kind.FINAL


class MdpWorker(Worker):
    """A registered Majordomo worker; its dialect is its class."""

    __slots__ = ("_broker",)

    dialect = Dialect.D0X
    heartbeat = mdp.HEARTBEATS[Dialect.D0X]
    tells_origin = False
    """Whether its answers say whom they are for: REPORT_CLOUD, and which peer."""

    def __init__(self, broker: Broker, link: Link, credit: int, now: float) -> None:
        super().__init__(link, credit, now)
        self._broker = broker

    def receive(self, image: bytes, now: float) -> None:
        """W4, W5, W6. Whatever it is, but DISCONNECT, it is a sign of life."""
        self.seen = now
        if image == self.heartbeat:
            return
        try:
            message = mdp.read_from_worker(image)
        except RemoteProtocolError:
            self._broker.record.malformed += 1
            self._broker.dismiss(self, b"malformed", now)
            return
        if isinstance(message, Answer) and message.dialect == self.dialect:
            self._broker.core.answer(
                self,
                message.address,
                message.service,
                message.kind,
                message.data,
                now,
                message.origin if self.tells_origin else None,
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
            self.link.send(mdp.DISCONNECTS[self.dialect])

    def successor(self) -> object:
        return Newcomer(self._broker, self.link, quiet=True) if self.link is not None else None

    def closed(self, now: float) -> None:
        self._broker.worker_gone(self, b"closed", now)


class Worker0X(MdpWorker):
    """Told the service and, for a repost, its origin; may have credit."""

    __slots__ = ()

    tells_origin = True

    def receive(self, image: bytes, now: float) -> None:
        """Nearly always W4 or W5 as they should be: then only the address has to be cut out."""
        if image.startswith(_REPORTS) and image[_SIZE_AT - 1] == MORE:
            end = _SIZE_AT + 1 + image[_SIZE_AT]
            address = image[_SIZE_AT + 1 : end]
            pending = self.held.get(address)
            if pending is not None:
                service, origin = pending.service, pending.asker.origin
                told = mdp.cloud_tail(origin, service.name) if origin else service.told_0x
                head = mdp.REPORT_CLOUD if origin else mdp.REPORT_LOCAL
                if image.startswith(told, end) and image.startswith(head):
                    self.seen = now
                    data = image[end + len(told) :]
                    self._broker.core.answer(self, address, b"", FINAL, data, now)
                    return
        super().receive(image, now)

    def hand(self, pending: Pending) -> None:
        address = self.keep(pending)
        origin = pending.asker.origin
        link = self.link
        if link is None:
            return
        if origin:
            head = mdp.repost_work_head(pending.service.name, origin)
            link.send(head + address + pending.data)
        else:
            link.send(pending.service.work_0x + address + pending.data)


class Worker01(MdpWorker):
    """7/MDP: one service, one request at a time."""

    __slots__ = ()

    dialect = Dialect.D01
    heartbeat = mdp.HEARTBEATS[Dialect.D01]

    def hand(self, pending: Pending) -> None:
        if self.link is not None:
            address = self.keep(pending)
            self.link.send(_WORK_01 + address + pending.data)


class Worker02(MdpWorker):
    """18/MDP: one service, one request at a time, parts of an answer."""

    __slots__ = ()

    dialect = Dialect.D02
    heartbeat = mdp.HEARTBEATS[Dialect.D02]

    def hand(self, pending: Pending) -> None:
        if self.link is not None:
            address = self.keep(pending)
            self.link.send(_WORK_02 + address + pending.data)


_REPORTS = (mdp.REPORT_LOCAL, mdp.REPORT_CLOUD)
_SIZE_AT = len(mdp.REPORT_LOCAL) + 1  # of the size of an answer's `[client]`, behind its flags
_WORK_01 = mdp.work_head(Dialect.D01, b"")
_WORK_02 = mdp.work_head(Dialect.D02, b"")

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
        try:
            if mdp.speaks_worker(image):
                self._first_of_worker(image, now)
            else:
                dialect = mdp.read_from_client(image).dialect
                self._broker.new_client(self._link, dialect).receive(image, now)
        except RemoteProtocolError as error:
            self._broker.record.malformed += 1
            self._broker.stranger(self._link, image, error)

    def _first_of_worker(self, image: bytes, now: float) -> None:
        message = mdp.read_from_worker(image)
        if isinstance(message, Ready):
            self._broker.new_worker(self._link, message, now)
        elif not isinstance(message, Disconnect) and not self._quiet:
            # A worker that thinks it is known, from before a restart: it shall register anew.
            self._link.send(mdp.DISCONNECTS[message.dialect])
            self._quiet = True

    def closed(self, now: float) -> None:
        """Nothing was promised to it."""
