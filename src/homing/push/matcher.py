"""The matcher: takes publications, finds whom they are for, hands them on.

A publication is journaled with its list of clients before anything else happens; once that
is durable it is handed to the dispatchers. From then on the matcher owes it: until every
connector has taken it over it stays in an outbox, and a matcher that starts again finds in
its journal what it still owes.

The index is a copy of what connectors hold. A matcher that has not yet heard all of it lets
publications wait: better a publisher that is late than a subscriber that is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import msgspec

from homing.errors import Malformed, SubscriptionError
from homing.ids import NODE_ID_BYTES
from homing.journal.events import (
    Dropped,
    Event,
    PublicationAccepted,
    PublicationDone,
    PublicationMatched,
    RingChanged,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.ports import Link, Port
from homing.push.handover import Handover
from homing.push.intake import ACKS, Intake
from homing.push.links import PacketRole, Peer
from homing.push.places import by_connector
from homing.push.ring import Ring, vnode_hashes
from homing.push.subscription import parse_attributes
from homing.push.table import Index, Table
from homing.wire import publish, relay, status
from homing.wire.packet import STATUS, Message
from homing.wire.status import Status

RETRY: Final = 0.25
"""Seconds before a connector whose parcels were refused is tried again."""
RING_PLUGS: Final = frozenset(("ring", "status"))
_NEVER: Final = frozenset(("malformed", "too-large"))
"""Refusals that no retry can change."""


class Matcher(PacketRole):
    """A homing.ports.Role. Plugs: `publishers`, `status` (listen), `dispatchers`, `ring` (dial)."""

    role = b"matcher"
    dials = frozenset(("dispatchers", "ring"))

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        ids: Callable[[], bytes],
        index: Index,
        *,
        dispatchers: Sequence[str],
        matchers: Sequence[str] = (),
        address: str = "",
        token: bytes = b"",
        publish_tokens: Sequence[bytes] = (),
        recovered: Iterable[object] = (),
        elsewhere: bool = False,
    ) -> None:
        """`matchers`: the others' status endpoints; `address`: our own, as they are told it.

        `elsewhere`: take publications, journal and acknowledge them; somebody else reads the
        journal and finds whom they are for (`homing pipeline live`).
        """
        super().__init__(port, node, wall, token)
        self.ids = ids
        self.table = Table(index)
        self.owed = Handover(self._done)
        self.intake = Intake(self, publish_tokens)
        self.ready = not dispatchers
        self.elsewhere = elsewhere
        self._dispatchers = len(dispatchers)
        self._behind: dict[Link, set[bytes]] = {}  # dispatcher -> connectors it must still tell of
        self._now = 0.0  # of the call being served, for events told from inside
        name = node.hex().encode()
        self._status = Status(name, address.encode(), vnodes=vnode_hashes(name))
        self.ring = Ring()
        self.ring.learn(self._status)
        self._recover(recovered)
        for endpoint in dispatchers:
            port.connect("dispatchers", endpoint)
        for endpoint in matchers:
            port.connect("ring", endpoint)

    # homing.ports.Role

    def opened(self, link: Link, now: float) -> None:
        if link.plug == "publishers":
            self.intake.opened(link, now)
        else:
            super().opened(link, now)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self._now = now
        if link.plug == "publishers":
            self.intake.receive(link, message, now)
        else:
            super().receive(link, message, now)

    def closed(self, link: Link, now: float) -> None:
        if link.plug == "publishers":
            self.intake.closed(link)
        else:
            super().closed(link, now)

    def wake(self, key: Hashable, now: float) -> None:
        if isinstance(key, bytes):
            self.owed.retry(key)
        elif key == ACKS:
            self.intake.wake(now)
        else:
            super().wake(key, now)

    def journaled(self, number: int, now: float) -> None:
        self._now = now
        self.intake.journaled(number, now)

    def beat(self, now: float) -> None:
        self.intake.look_around(now)

    # Other matchers

    def decode(self, link: Link, message: Message) -> relay.Relayed:
        """Between matchers a status message tells of the ring; it changes nothing else."""
        if link.plug not in RING_PLUGS or message.command != STATUS:
            return super().decode(link, message)
        told = status.decode(message)
        if told.hostname != self.peers[link].node.hex().encode():
            raise Malformed("a matcher tells of itself only")
        if self.ring.learn(told):
            self._tell_ring()
        return relay.Heartbeat()

    def _tell_ring(self) -> None:
        names = [member.hostname.decode("ascii") for member in self.ring.members]
        self.tell(RingChanged(self._now, self.ring.epoch, msgspec.json.encode(names)))

    # Dispatchers

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        """A dispatcher is there, or owns other connectors than before."""
        if link.plug in RING_PLUGS:
            link.send(self._status.encode())
            return
        owned = {
            hello.connectors[at : at + NODE_ID_BYTES]
            for at in range(0, len(hello.connectors), NODE_ID_BYTES)
        }
        # Of a connector that is gone nothing can be told; the journal knows what it had.
        self._behind[link] = self._behind.get(link, owned) & owned
        self.owed.joined(link, hello.connectors)
        self._look_ready(now)

    def left(self, link: Link, peer: Peer, now: float) -> None:
        if link.plug in RING_PLUGS:
            others = [p for way, p in self.peers.items() if way.plug in RING_PLUGS]
            if all(other.node != peer.node for other in others):
                self.ring.forget(peer.node.hex().encode())
                self._tell_ring()
            return
        self._behind.pop(link, None)
        self.owed.left(link)

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Ack):
            self.owed.acked(message.message_id, message.clients, message.connector)
        elif isinstance(message, relay.Nak):
            self._refused(message, now)
        elif isinstance(message, relay.Sync):
            self._sync(link, message, now)
        elif isinstance(message, relay.Subscribe | relay.Unsubscribe):
            self._change(message, now)
            link.send(relay.Ack(message.message_id).encode())
        else:
            raise Malformed("a matcher takes acks and subscriptions from a dispatcher")

    def _refused(self, nak: relay.Nak, now: float) -> None:
        """Not now: all for that connector waits behind it. Not ever: it is dropped, and told."""
        code = nak.reason.partition(" ")[0]
        if nak.connector:
            if self.owed.stall(nak.connector):
                self.port.later(now + RETRY, nak.connector)
        elif nak.message_id and code in _NEVER:
            missed = self.owed.give_up(nak.message_id)
            if missed:
                self.tell(Dropped(now, nak.message_id, missed, nak.reason.encode()))

    def _done(self, message_id: bytes) -> None:
        self.tell(PublicationDone(self._now, message_id))
        self.intake.done(message_id)

    # Subscriptions

    def _change(self, change: relay.Subscribe | relay.Unsubscribe, now: float) -> None:
        client, connector, name = change.client, change.connector, change.name
        if isinstance(change, relay.Unsubscribe):
            if self.table.remove(client, connector, name):
                self.tell(SubscriptionRemoved(now, client, connector, name))
            return
        try:
            changed = self.table.set(client, connector, name, change.fields)
        except SubscriptionError as error:
            raise Malformed(str(error)) from error
        if changed:  # the connector is the source: what a full disk loses it tells again
            self.tell(SubscriptionSet(now, client, connector, name, change.fields))

    def _sync(self, link: Link, sync: relay.Sync, now: float) -> None:
        if sync.phase == relay.SYNC_BEGIN:
            self.table.begin_sync(sync.connector)
            return
        for entry in self.table.end_sync(sync.connector):
            self.tell(SubscriptionRemoved(now, entry.client, entry.connector, entry.name))
        behind = self._behind.get(link)
        if behind is not None:
            behind.discard(sync.connector)
            self._look_ready(now)

    def _look_ready(self, now: float) -> None:
        """Once every dispatcher has told of every connector it owns; from then on for good."""
        if self.ready or len(self._behind) < self._dispatchers or any(self._behind.values()):
            return
        self.ready = True
        self.intake.let_in(now)

    # Recovery

    def checkpoint(self) -> list[Event]:
        """The events that make what we know and owe anew."""
        known: list[Event] = [
            SubscriptionSet(0.0, entry.client, entry.connector, entry.name, entry.fields)
            for entry in self.table
        ]
        return known + self.intake.checkpoint()

    def _recover(self, events: Iterable[object]) -> None:
        """What earlier lives knew and owed."""
        owed: dict[bytes, PublicationAccepted] = {}
        matched: dict[bytes, PublicationMatched] = {}
        for event in events:
            if isinstance(event, PublicationAccepted):
                owed[event.id] = event
                if self.elsewhere:  # nothing else in this journal will tell of it
                    self.intake.remember(event.id, 0)
            elif isinstance(event, PublicationMatched):
                matched[event.id] = event
                self.intake.remember(event.id, event.subscriptions)
            elif isinstance(event, PublicationDone):
                owed.pop(event.id, None)
                matched.pop(event.id, None)
            elif isinstance(event, SubscriptionSet):
                self.table.set(event.client, event.connector, event.name, event.fields)
            elif isinstance(event, SubscriptionRemoved):
                self.table.remove(event.client, event.connector, event.name)
        for identity, accepted in owed.items():
            self._owe_again(accepted, matched.get(identity))

    def _owe_again(self, accepted: PublicationAccepted, matched: PublicationMatched | None) -> None:
        if matched is not None:
            clients = by_connector(matched.clients)
        else:  # the disk filled up between the two: match again
            count, clients = self.table.match(parse_attributes(accepted.attrs))
            self.intake.remember(accepted.id, count)
        self.owed.owe(publish.Publish(accepted.attrs, accepted.payload, accepted.id), clients)
