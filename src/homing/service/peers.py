"""The links of a federation: answers from peers, and what each publishes of itself."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from homing.errors import RemoteProtocolError
from homing.ports import Link
from homing.service.dispatch import DispatchCore
from homing.service.federation import Peer
from homing.service.names import ANY
from homing.service.pending import HELD
from homing.wire import mdp_peers
from homing.wire.frames import CUT, MORE, tail_end
from homing.wire.mdp_messages import Kind, PeerAnswer, State

if TYPE_CHECKING:
    from homing.service.switch import Broker


class PeerLink:
    """Our cloudbe's link to a peer's cloudfe."""

    __slots__ = ("_broker", "_link", "_peer")

    def __init__(self, broker: Broker, peer: Peer, link: Link) -> None:
        self._broker = broker
        self._peer = peer
        self._link = link

    def receive(self, image: bytes, now: float) -> None:
        """B8 or B10: one message."""
        self.receive_all([image], now)

    def receive_all(self, images: list[bytes], now: float) -> None:
        """B8, B10: all that came at once."""
        for image in images:
            if not self.skim(image, now):
                self._read(image, now)

    def skim(self, data: bytes, now: float) -> int:
        """B8 as long as these bytes are whole answers; where they no more are.

        Nearly always they are, as it should be: only the address is cut out.
        """
        core, peer, held = self._broker.core, self._peer, self._peer.held
        at, size = 0, len(data)
        while at + 1 < size and data[at] == MORE:
            told_at = at + 2 + data[at + 1]
            address = data[at + 2 : told_at]
            pending = held.get(address)
            if pending is None or pending.state != HELD or pending.parts is not None:
                break
            told = pending.service.cloud_0x
            body = told_at + len(told)
            if data[told_at:body] != told or body + 2 > size:
                break
            end = tail_end(data, body) if data[body] else body + 2 + data[body + 1]
            if not end or end > size:
                break
            del held[address]
            core.finish(pending, data[body:end], now)
            core.returned(peer, pending, now)
            at = end
        return at

    def _read(self, image: bytes, now: float) -> None:
        whole = image[0] != CUT
        try:
            message = mdp_peers.read_at_cloudbe(image if whole else image[1:])
        except RemoteProtocolError:
            self._broker.record.malformed += 1
            return
        core, peer = self._broker.core, self._peer
        if isinstance(message, PeerAnswer):
            kind, data = message.kind, message.data
            if not whole:
                kind, data = Kind.FAILED, self._broker.too_large_answer
            core.answer(peer, message.address, message.service, kind, data, now)
        else:
            core.bounce(peer, message.address, message.reason, now)

    def closed(self, now: float) -> None:
        """What the peer held of ours goes elsewhere."""
        if self._peer.link is self._link:
            self._peer.link = None
            self._broker.record.peer_lost(self._peer, b"closed", now)
            self._broker.core.lose_held(self._peer, now)


class StateFeed:
    """Our statefe's link to a peer's statebe."""

    __slots__ = ("_broker", "_known_as")

    def __init__(self, broker: Broker, known_as: bytes) -> None:
        self._broker = broker
        self._known_as = known_as

    def receive(self, image: bytes, now: float) -> None:
        """S1; a peer speaks for itself alone."""
        try:
            state = mdp_peers.read_state(image)
        except RemoteProtocolError:
            self._broker.record.malformed += 1
            return
        peer = self._broker.federation.peers.get(self._known_as)
        if peer is None:
            return
        if state.broker != self._known_as:
            peer.mistaken = state.broker
            self._broker.denials.news_of_another(self._known_as, state.broker)
            return
        most = self._broker.policy.max_services
        if len(state.services) > most:
            self._broker.denials.too_many_of(self._known_as)
            state = replace(state, services=dict(islice(state.services.items(), most)))
        peer.publish(state, now)
        self._broker.core.pump_hungry(now)

    def closed(self, now: float) -> None:
        """The peer falls silent; its expiry decides."""


def capacity_of(core: DispatchCore, broker: bytes) -> State:
    """S1 of a broker: what it could take now, nothing while it drains."""
    if core.draining:
        return State(broker, 0, {})
    services = {
        service.name.decode(): service.free for service in core.services.values() if service.workers
    }
    any_free = sum(worker.room for worker in core.anyone)
    if core.generalists:
        services[ANY.decode()] = any_free
    return State(broker, sum(services.values()), services)
