"""The connector: holds the subscribers' connections and sessions.

Downstream it delivers: a push from a dispatcher is encoded once and the same bytes go to
every client concerned. What concerns durable sessions is journaled first; only then is it
pushed, and only then does the dispatcher get its ack, so that nothing acknowledged hangs on
this process staying alive. The same publication coming again is recognised by its id and
clients.

Upstream it is the source of all its clients' subscriptions: every change goes to the
dispatchers, and all of it anew whenever one asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from homing.errors import DiskFull, Malformed
from homing.ids import ID_BYTES
from homing.journal.events import (
    Acknowledged,
    Delivered,
    DeliveryQueued,
    Dropped,
    Event,
    Redelivered,
    SessionClosed,
    SessionOpened,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.ports import Link, Port
from homing.push.doorway import Doorway, Visitor
from homing.push.links import PacketRole, Peer
from homing.push.outbox import Turnstile
from homing.push.places import each_id
from homing.push.recent import Recent
from homing.push.recovery import checkpoint, recover
from homing.push.sessions import DEFAULT, MAX_BACKLOG, Session, Shared
from homing.push.subscription import Fields, dump_fields
from homing.push.tokens import Keyring
from homing.wire import relay

AWAY_SECONDS: Final = 24 * 3600.0
"""A durable session whose client stays away longer is given up."""
SLOW_SECONDS: Final = 0.05
"""How often slow clients are looked at again."""
SLOW: Final = "slow"
DISPATCHER: Final = b"dispatcher"


class Storing:
    """A publication on its way into the journal for durable sessions, and who waits for it."""

    __slots__ = ("acks", "clients", "shared")

    def __init__(self, shared: Shared, clients: bytes) -> None:
        self.shared = shared
        self.clients = clients
        self.acks: list[tuple[Link, bytes]] = []


class Change:
    """A durable session's subscription change on its way into the journal."""

    __slots__ = ("message",)

    def __init__(self, message: relay.Subscribe | relay.Unsubscribe) -> None:
        self.message = message


class Connector(PacketRole):
    """A homing.ports.Role. Plugs: `dispatchers` and `subscribers`, both listen."""

    role = b"connector"
    record = ID_BYTES

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        ids: Callable[[], bytes],
        keys: Keyring,
        *,
        token: bytes = b"",
        recovered: Iterable[object] = (),
    ) -> None:
        super().__init__(port, node, wall, token)
        self._recent = Recent()
        self._arrivals = 1 << 32  # beyond all that recovery counts
        self.durable = recover(recovered, self._recent)
        self.sessions = dict(self.durable)
        self.doorway = Doorway(self, keys)
        self._ids = ids
        self._storing: dict[bytes, Storing] = {}
        self._unsynced: deque[tuple[int, Storing | Change]] = deque()
        self._turnstiles: dict[Link, Turnstile] = {}
        self._slow: dict[bytes, Session] = {}

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
            self._look_at_slow(now)
        elif isinstance(key, str):
            self.doorway.wake(key, now)
            super().wake(key, now)
        elif isinstance(key, bytes):
            self.doorway.confirmed(key)

    def beat(self, now: float) -> None:
        self.doorway.look_around(now)
        for session in [s for s in self.durable.values() if s.link is None]:
            if session.left_at is None:  # recovered: nobody knows when it left
                session.left_at = now
            elif now - session.left_at > AWAY_SECONDS:
                self.end(session, "expired", now)

    def heartbeat(self) -> bytes:
        return relay.Heartbeat(int(self.wall() * 1e6), len(self.doorway)).encode()

    def checkpoint(self) -> list[Event]:
        """The events that make our durable state anew."""
        storing = [(w.shared, w.clients) for _, w in self._unsynced if isinstance(w, Storing)]
        return checkpoint(self.node, self.durable.values(), storing, self._recent)

    # Publications

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Push):
            self._push(link, message, now)
        elif isinstance(message, relay.Ack):
            self.doorway.confirmed(message.message_id)
        elif isinstance(message, relay.Sync):
            self._sync(link)
        elif not isinstance(message, relay.Nak):
            raise Malformed("a connector takes pushes from a dispatcher")

    def _push(self, link: Link, push: relay.Push, now: float) -> None:
        """Deliver, once to each client, and acknowledge when that will survive a crash."""
        identity = push.message_id
        turnstile = self._turnstiles.setdefault(link, Turnstile())
        if turnstile.blocks(b"", identity):
            link.send(relay.Nak(identity, "queue-full waiting for what was refused").encode())
            return
        fresh = self._recent.fresh(identity, push.clients)
        try:
            storing = self._store(push, fresh, now) if self.durable and fresh else None
        except DiskFull as error:
            turnstile.refuse(b"", identity)
            link.send(relay.Nak(identity, f"queue-full {error}").encode())
            return
        if fresh:
            self._recent.add(identity, fresh)
            self._deliver(storing.shared if storing else self._shared(push), fresh, now)
        waiting = self._storing.get(identity)
        if waiting is not None:
            waiting.acks.append((link, push.clients))
        else:
            link.send(relay.Ack(identity, push.clients, self.node).encode())

    def _store(self, push: relay.Push, fresh: bytes, now: float) -> Storing | None:
        """Journal what durable sessions are owed from now on."""
        durable = self.durable
        concerned = [
            client for (client,) in each_id(fresh) if client in durable and durable[client].names
        ]
        if not concerned:
            return None
        clients = b"".join(concerned)
        number = self.port.journal(
            DeliveryQueued(now, push.message_id, clients, push.attributes, push.payload)
        )
        storing = Storing(self._shared(push), clients)
        before = self._storing.get(push.message_id)
        if before is not None:  # another part of the same fan-out: acknowledge with the later
            storing.acks = before.acks
        self._storing[push.message_id] = storing
        self._await(number, storing, now)
        return storing

    def _await(self, number: int, what: Storing | Change, now: float) -> None:
        self._unsynced.append((number, what))
        if not number:  # no journal is kept here: nothing to wait for
            self.journaled(0, now)

    def _deliver(self, shared: Shared, clients: bytes, now: float) -> None:
        """To every connected client whose session is not durable: the hot path."""
        find = self.sessions.get
        image = shared.image(DEFAULT)
        later: list[bytes] = []  # theirs is another way: durable, or slow
        missed: list[bytes] = []
        for (client,) in each_id(clients):
            session = find(client)
            if session is None or (link := session.link) is None or not session.names:
                missed.append(client)
            elif session.durable:
                later.append(client)
            elif session.waiting or link.backlog > MAX_BACKLOG:
                later.append(client)
                self._hold(session, shared, now)
            elif session.names is DEFAULT:
                link.send(image)
            elif names := session.names_for(shared):
                link.send(shared.image(names))
            else:
                missed.append(client)
        shared.forget_images()
        if later or missed:
            clients = self._without(shared, clients, later, missed, now)
        if clients:
            self.tell(Delivered(now, shared.message_id, clients))

    def _without(
        self, shared: Shared, clients: bytes, later: list[bytes], missed: list[bytes], now: float
    ) -> bytes:
        """Those of the list that were reached just now; the journal is told who never will be."""
        gone = b"".join([client for client in missed if client not in self.durable])
        if gone:
            self.tell(Dropped(now, shared.message_id, gone, b"no-session"))
        others = {*later, *missed}
        return b"".join([client for (client,) in each_id(clients) if client not in others])

    def journaled(self, number: int, now: float) -> None:
        while self._unsynced and self._unsynced[0][0] <= number:
            _, safe = self._unsynced.popleft()
            if isinstance(safe, Change):
                self._announce(safe.message)
            else:
                self._stored(safe, now)

    def _stored(self, storing: Storing, now: float) -> None:
        """Durable from here on: owe it, push it, acknowledge it."""
        identity, sent = storing.shared.message_id, []
        for (client,) in each_id(storing.clients):
            session = self.durable.get(client)
            if session is not None:
                self._owe(session, storing.shared, now)
                if identity in session.pump():
                    sent.append(session.client)
                self._watch(session, now)
        storing.shared.forget_images()
        if sent:
            self.tell(Delivered(now, identity, b"".join(sent)))
        if self._storing.get(identity) is storing:
            del self._storing[identity]
            for link, clients in storing.acks:
                link.send(relay.Ack(identity, clients, self.node).encode())

    def _owe(self, session: Session, shared: Shared, now: float) -> None:
        for gone in session.owe(shared):
            self.tell(Dropped(now, gone, session.client, b"queue-full"))

    # Slow clients

    def _hold(self, session: Session, shared: Shared, now: float) -> None:
        """A client that does not keep up; what happens to it is its session's policy."""
        link = session.link
        if session.policy == "disconnect" and link is not None:
            self.tell(Dropped(now, shared.message_id, session.client, b"slow"))
            self.doorway.dismiss(link, "slow consumer", now)
            return
        self._owe(session, shared, now)
        self._watch(session, now)

    def _watch(self, session: Session, now: float) -> None:
        if session.waiting and session.link is not None and session.client not in self._slow:
            if not self._slow:
                self.port.later(now + SLOW_SECONDS, SLOW)
            self._slow[session.client] = session

    def _look_at_slow(self, now: float) -> None:
        slow, self._slow = self._slow, {}
        for session in slow.values():
            self.pump(session, now)

    def pump(self, session: Session, now: float) -> None:
        """Send what waits for a client, and tell the journal."""
        again = set(session.again)
        for identity in session.pump():
            kind = Redelivered if identity in again else Delivered
            self.tell(kind(now, identity, session.client))
        self._watch(session, now)

    # Sessions, as the doorway asks for them

    def admit(self, visitor: Visitor, session: Session, resumed: bool, now: float) -> None:
        """A client passed auth: its session is on this link now."""
        client = session.client
        self.sessions[client] = session
        if session.durable:
            self.durable[client] = session
        session.resume(visitor.link)
        self.tell(SessionOpened(now, client, session.durable, resumed))

    def part(self, session: Session, reason: str, now: float) -> None:
        """Its connection is gone; a durable session stays."""
        session.part(now)
        self._slow.pop(session.client, None)
        self.tell(SessionClosed(now, session.client, reason.encode()))
        if not session.durable:
            self._forget(session)

    def end(self, session: Session, reason: str, now: float) -> None:
        """The session is over, whatever it was owed."""
        for identity in session.clear():
            self.tell(Dropped(now, identity, session.client, reason.encode()))
        self._forget(session)
        if session.durable:
            self.tell(SubscriptionRemoved(now, session.client, self.node))
            self.tell(SessionClosed(now, session.client, b"ended"))

    def _forget(self, session: Session) -> None:
        self.sessions.pop(session.client, None)
        self.durable.pop(session.client, None)
        if session.subscriptions:
            self._announce(relay.Unsubscribe(self._ids(), session.client, self.node))

    def acknowledge(self, session: Session, message_id: bytes, now: float) -> None:
        """A client says it has a publication."""
        if session.acknowledge(message_id):
            self.tell(Acknowledged(now, message_id, session.client))
            if session.waiting:
                self.pump(session, now)

    # Subscriptions

    def subscribe(self, session: Session, name: str, fields: Fields, now: float) -> bytes:
        """Set a subscription; returns the id its confirmation will come with."""
        json = dump_fields(fields)
        message = relay.Subscribe(self._ids(), session.client, self.node, name.encode(), json)
        event = SubscriptionSet(now, session.client, self.node, name.encode(), json)
        self._change(session, message, event)
        session.subscribe(name, fields)
        return message.message_id

    def unsubscribe(self, session: Session, name: str, now: float) -> bytes:
        """Remove one, or with an empty name all of them."""
        message = relay.Unsubscribe(self._ids(), session.client, self.node, name.encode())
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
            self._await(self.port.journal(event), Change(message), event.at)
        else:
            self._announce(message)

    def _announce(self, message: relay.Subscribe | relay.Unsubscribe) -> None:
        image = message.encode()
        for link, peer in self.peers.items():
            if peer.role == DISPATCHER:
                link.send(image)

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        if hello.role == DISPATCHER:
            self._sync(link)

    def left(self, link: Link, peer: Peer, now: float) -> None:
        self._turnstiles.pop(link, None)

    def _sync(self, link: Link) -> None:
        """All subscriptions anew: whoever is told now knows nothing else of us."""
        link.send(relay.Sync(self._ids(), self.node, relay.SYNC_BEGIN).encode())
        for session in self.sessions.values():
            for name, fields in session.subscriptions.items():
                link.send(
                    relay.Subscribe(
                        self._ids(), session.client, self.node, name.encode(), dump_fields(fields)
                    ).encode()
                )
        link.send(relay.Sync(self._ids(), self.node, relay.SYNC_END).encode())

    def _shared(self, push: relay.Push) -> Shared:
        self._arrivals += 1
        return Shared(push.message_id, push.payload, push.attributes, self._arrivals)
