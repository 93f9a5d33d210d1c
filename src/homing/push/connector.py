"""The connector: holds the subscribers' connections and sessions.

Downstream it delivers (homing.push.delivery): nothing that it acknowledged hangs on this
process staying alive, and the same publication coming again is recognised by its id and clients.

Upstream it is the source of all its clients' subscriptions: every change goes to the
dispatchers, and all of it anew whenever one asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from homing.errors import Malformed
from homing.ids import ID_BYTES
from homing.journal.events import (
    Acknowledged,
    Event,
    SessionClosed,
    SessionOpened,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.ports import Link, Port
from homing.push.cohorts import Each, Together
from homing.push.delivery import SLOW, Delivery, Storing
from homing.push.doorway import Doorway, Visitor
from homing.push.links import DISPATCHER, PacketRole, Peer
from homing.push.moves import MOVES, Moves
from homing.push.places import each_id
from homing.push.recent import Recent
from homing.push.recovery import checkpoint, recover
from homing.push.sessions import Limits, Session, Store
from homing.push.subscription import Fields, dump_fields
from homing.push.tokens import Keyring
from homing.wire import relay


class Change:
    """A durable session's subscription change on its way into the journal."""

    __slots__ = ("message",)

    def __init__(self, message: relay.Subscribe | relay.Unsubscribe) -> None:
        self.message = message


class Connector(PacketRole):
    """A homing.ports.Role. Plugs: `dispatchers` and `subscribers`, both listen."""

    role = b"connector"
    callers = DISPATCHER
    record = ID_BYTES

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        ids: Callable[[], bytes],
        keys: Keyring,
        *,
        tokens: Sequence[bytes] = (),
        recovered: Iterable[object] = (),
        limits: Limits | None = None,
        together: Together = Each,
    ) -> None:
        """`together`: how the same bytes go to many links."""
        super().__init__(port, node, wall, tokens)
        self.store = Store(limits)
        recent = Recent()
        self.durable = recover(recovered, recent, self.store)
        self.sessions = dict(self.durable)
        self.delivery = Delivery(self, recent, together)
        self.doorway = Doorway(self, keys)
        self.new_id = ids
        self.moves = Moves(self)
        self._unsynced: deque[tuple[int, Storing | Change | relay.HandedOver]] = deque()
        self._unsafe: dict[bytes, bytes] = {}  # changes among them -> whose

    # homing.ports.Role

    def opened(self, link: Link, now: float) -> None:
        if link.plug == "subscribers":
            self.doorway.opened(link, now)
        else:
            super().opened(link, now)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        if link.plug == "subscribers":
            self.doorway.receive(link, message, now)
        else:
            super().receive(link, message, now)

    def closed(self, link: Link, now: float) -> None:
        if link.plug == "subscribers":
            self.doorway.closed(link, now)
        else:
            super().closed(link, now)

    def wake(self, key: Hashable, now: float) -> None:
        if key == SLOW:
            self.delivery.look_at_slow(now)
        elif key == MOVES:
            self.moves.wake(now)
        elif isinstance(key, str):
            self.doorway.wake(key, now)
            super().wake(key, now)
        elif isinstance(key, bytes):
            self.doorway.overdue(key, now)
            self.moves.confirmed(key, None, now)

    def beat(self, now: float) -> None:
        self.doorway.look_around(now)
        self.moves.beat(now)
        for session in [s for s in self.durable.values() if s.link is None]:
            if session.left_at is None:  # recovered: nobody knows when it left
                session.left_at = now
            elif now - session.left_at > self.store.limits.away:
                self.end(session, "expired", now)

    def heartbeat(self) -> bytes:
        return relay.Heartbeat(int(self.wall() * 1e6), len(self.doorway)).encode()

    def checkpoint(self) -> list[Event]:
        """The events that make our durable state anew."""
        storing = [(w.shared, w.clients) for _, w in self._unsynced if isinstance(w, Storing)]
        return checkpoint(self.node, self.durable.values(), storing, self.delivery.recent)

    # Publications

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Push):
            self.delivery.push(link, message, now)
        elif isinstance(message, relay.Ack):
            if message.clients:
                self.moves.taken(message, now)
            else:
                self.doorway.confirmed(message.message_id)
                self.moves.confirmed(message.message_id, link, now, message.away)
        elif isinstance(message, relay.Nak):
            self.moves.refused(message, now)
        elif isinstance(message, relay.Sync):
            self._sync(link)
        elif isinstance(message, relay.Claim):
            self.moves.claimed(link, message, now)
        elif isinstance(message, relay.HandedOver):
            self.moves.handed_over(message, now)
        elif isinstance(message, relay.Subscribe):
            self.moves.adopt(link, message, now)
        else:
            raise Malformed("a connector takes pushes and claims from a dispatcher")

    def await_journal(self, number: int, what: Storing | Change, now: float) -> None:
        """Go on with it once the journal is durable up to `number`."""
        self._unsynced.append((number, what))
        if not number:  # no journal is kept here: nothing to wait for
            self.journaled(0, now)

    def after_all(self, told: relay.HandedOver, now: float) -> None:
        """Take it as told when all that is here is on disk."""
        number = self._unsynced[-1][0] if self._unsynced else 0
        self._unsynced.append((number, told))
        if not number:
            self.journaled(0, now)

    def journaled(self, number: int, now: float) -> None:
        while self._unsynced and self._unsynced[0][0] <= number:
            _, safe = self._unsynced.popleft()
            if isinstance(safe, Change):
                del self._unsafe[safe.message.message_id]
                self._announce(safe.message)
                self.doorway.stored(safe.message.message_id, now)
            elif isinstance(safe, relay.HandedOver):
                self.moves.handed_over(safe, now)
            else:
                self.delivery.stored(safe, now)

    def is_storing(self, client: bytes, moved: bool = False) -> bool:
        """Whether a publication for it is here and not yet on disk; `moved`: from a former connector."""
        unsynced = [w for _, w in self._unsynced if isinstance(w, Storing)]
        storing = [w.clients for w in unsynced if w.moved or not moved]
        return any((client,) in each_id(clients) for clients in storing if client in clients)

    # Sessions, as the doorway asks for them

    def admit(self, visitor: Visitor, session: Session, resumed: bool, now: float) -> None:
        """A client passed auth: its session is on this link now."""
        client = session.client
        self.sessions[client] = session
        session.resume(visitor.link)
        self.tell(SessionOpened(now, client, session.durable, resumed))
        if resumed and session.move is None and session.stamp > self.moves.cut:
            self.store.came.setdefault(client, session.stamp)
        else:
            self.store.came.pop(client, None)
        session.stamp = int(self.wall() * 1e6)
        if session.durable:
            self.durable[client] = session
            if session.move is not None:
                self.store.anew.discard(client)
            self.moves.claim(session, now)
        else:
            self.moves.announce(session)

    def part(self, session: Session, reason: str, now: float) -> None:
        """Its connection is gone; a durable session stays."""
        session.part(now)
        self.delivery.slow.pop(session.client, None)
        self.tell(SessionClosed(now, session.client, reason.encode()))
        if not session.durable:
            self._drop_all(session, b"closed", now)
            self._forget(session)

    def end(self, session: Session, reason: str, now: float) -> None:
        """The session is over, whatever it was owed."""
        self._drop_all(session, reason.encode(), now)
        self._forget(session)
        if session.durable:
            self.tell(SubscriptionRemoved(now, session.client, self.node))
            self.tell(SessionClosed(now, session.client, b"ended"))

    def _drop_all(self, session: Session, reason: bytes, now: float) -> None:
        for identity in session.clear():
            self.delivery.drop(identity, session.client, reason, now)

    def _forget(self, session: Session) -> None:
        self.moves.forget(session)
        self.sessions.pop(session.client, None)
        self.durable.pop(session.client, None)
        if session.subscriptions:
            self._announce(relay.Unsubscribe(self.new_id(), session.client, self.node))

    def acknowledge(self, session: Session, message_id: bytes, now: float) -> None:
        """A client says it has a publication."""
        if session.acknowledge(message_id):
            self.delivery.tally.acks += 1
            self.tell(Acknowledged(now, message_id, session.client))
            if session.waiting:
                self.delivery.pump(session, now)

    # Subscriptions

    def subscribe(self, session: Session, name: str, fields: Fields, now: float) -> bytes:
        """Set a subscription; returns the id its confirmation will come with."""
        json = dump_fields(fields)
        message = relay.Subscribe(self.new_id(), session.client, self.node, name.encode(), json)
        event = SubscriptionSet(now, session.client, self.node, name.encode(), json)
        self._change(session, message, event)
        session.subscribe(name, json)
        return message.message_id

    def unsubscribe(self, session: Session, name: str, now: float) -> bytes:
        """Remove one, or with an empty name all of them."""
        message = relay.Unsubscribe(self.new_id(), session.client, self.node, name.encode())
        event = SubscriptionRemoved(now, session.client, self.node, name.encode())
        self._change(session, message, event)
        for gone in [name] if name else list(session.subscriptions):
            session.unsubscribe(gone)
        return message.message_id

    def _change(
        self,
        session: Session,
        message: relay.Subscribe | relay.Unsubscribe,
        event: SubscriptionSet | SubscriptionRemoved,
    ) -> None:
        """Tell the dispatchers; for a durable session once it is on disk. Raises DiskFull."""
        if session.durable:
            number = self.port.journal(event)
            self._unsafe[message.message_id] = session.client
            self.await_journal(number, Change(message), event.at)
        else:
            self._announce(message)

    def is_safe(self, message_id: bytes) -> bool:
        """Whether a change is as durable as its session."""
        return message_id not in self._unsafe

    def is_changing(self, session: Session) -> bool:
        """Whether what it asked for last is still on its way to the disk."""
        return session.client in self._unsafe.values()

    def _announce(self, message: relay.Subscribe | relay.Unsubscribe) -> None:
        image = message.encode()
        for link, peer in self.peers.items():
            if peer.role == DISPATCHER:
                link.send(image)

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        if hello.role == DISPATCHER:
            self.moves.claim_again(link, now)
            self._sync(link)

    def left(self, link: Link, peer: Peer, now: float) -> None:
        self.delivery.left(link)
        self.moves.left(link, now)

    def _sync(self, link: Link) -> None:
        """All subscriptions anew: whoever is told now knows nothing else of us."""
        link.send(relay.Sync(self.new_id(), self.node, relay.SYNC_BEGIN).encode())
        for session in self.sessions.values():
            for name, fields in session.subscriptions.items():
                link.send(
                    relay.Subscribe(
                        self.new_id(), session.client, self.node, name.encode(), fields
                    ).encode()
                )
        link.send(relay.Sync(self.new_id(), self.node, relay.SYNC_END).encode())
        self.moves.end_again(link)
