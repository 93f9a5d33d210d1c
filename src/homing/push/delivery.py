"""Publications at a connector: from a dispatcher's link to the clients' sessions.

What concerns durable sessions is journaled first; only then is it pushed, and only then does the
dispatcher get its ack. All others get the same encoded bytes at once. A client that does not keep
up waits apart, within the limits of its session and of all sessions together.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from homing.errors import DiskFull, SubscriptionError
from homing.ids import ID_BYTES
from homing.journal.events import Delivered, DeliveryQueued, Dropped, Redelivered
from homing.ports import Link
from homing.push.cohorts import Cohorts, Together
from homing.push.outbox import Turnstile
from homing.push.places import each_id
from homing.push.recent import Recent
from homing.push.sessions import DEFAULT, MAX_BACKLOG, Session
from homing.push.shared import Shared
from homing.push.subscription import parse_attributes
from homing.wire import relay

if TYPE_CHECKING:
    from homing.push.connector import Connector

SLOW: Final = "slow"
SLOW_SECONDS: Final = 0.05
"""How often slow clients are looked at again."""
HEAVIEST: Final = 16
"""Sessions that make room when all together keep too much: a few, so that one pass is enough."""


class Storing:
    """A publication on its way into the journal for durable sessions, and who waits for it."""

    __slots__ = ("acks", "clients", "moved", "shared")

    def __init__(self, shared: Shared, clients: bytes, moved: int = 0) -> None:
        self.shared = shared
        self.clients = clients
        self.moved = moved
        self.acks: list[tuple[Link, bytes, int]] = []  # of whom, for which clients, in which move


class Tally:
    """What a connector has done since it started, in publications times clients."""

    __slots__ = ("acks", "deliveries", "drops", "publications", "redeliveries")

    def __init__(self) -> None:
        self.publications = 0  # taken from dispatchers, each once
        self.deliveries = 0
        self.redeliveries = 0
        self.acks = 0
        self.drops = 0


class Delivery:
    """What is on its way to clients, and what was."""

    def __init__(self, connector: Connector, recent: Recent, together: Together) -> None:
        self.tally = Tally()
        self.slow: dict[bytes, Session] = {}
        self.recent = recent
        self._connector = connector
        self._arrivals = 1 << 32  # beyond all that recovery counts
        self._cohorts = Cohorts(connector.store, together)
        self._storing: dict[bytes, Storing] = {}
        self._turnstiles: dict[Link, Turnstile] = {}

    def push(self, link: Link, push: relay.Push, now: float) -> None:
        """Deliver, once to each client, and acknowledge when that will survive a crash."""
        identity = push.message_id
        turnstile = self._turnstiles.get(link)
        if turnstile is not None and push.first:
            turnstile.open(b"")
        if turnstile is not None and turnstile.blocks(b"", identity):
            link.send(relay.Nak(identity, "queue-full waiting for what was refused").encode())
            return
        durable = self._connector.durable
        if push.moved and push.clients not in durable:  # it stays where it is
            reason = "gone there is no such session here"
            link.send(relay.Nak(identity, reason, b"", push.clients, push.moved).encode())
            return
        if push.moved and push.clients in self._connector.store.anew:
            self.drop(identity, push.clients, b"not-resumed", now)
            node = self._connector.node
            link.send(relay.Ack(identity, push.clients, node, push.moved).encode())
            return
        if push.moved:
            self._stay_if_later(durable[push.clients], push.moved)
        fresh = self.recent.fresh(identity, push.clients)
        if fresh and not _readable(push.attributes):  # nobody could deliver it, ever
            self.drop(identity, fresh, b"malformed", now)
            self.recent.add(identity, fresh)
            fresh = b""
        try:
            storing = self._store(push, fresh, now) if durable and fresh else None
        except DiskFull as error:
            self._turnstiles.setdefault(link, Turnstile()).refuse(b"", identity)
            link.send(relay.Nak(identity, f"queue-full {error}").encode())
            return
        if fresh:
            self.tally.publications += 1
            shared = storing.shared if storing else self._shared(push)
            gone = self._deliver(shared, fresh, push.moved, now)
            # For whom is gone it may come again, from a connector that owes it to him.
            self.recent.add(identity, _without(fresh, gone) if gone else fresh)
        waiting = self._storing.get(identity)
        if waiting is not None:
            waiting.acks.append((link, push.clients, push.moved))
        else:
            node = self._connector.node
            link.send(relay.Ack(identity, push.clients, node, push.moved).encode())

    def _stay_if_later(self, session: Session, number: int) -> None:
        """What moves here answers a claim of ours. After a restart we may have given in to an older one, as we had forgotten ours.

        Each would take the other's acknowledgement of what both have for the word that it has it now, and nobody would.
        """
        if session.move is not None and number > session.move.number:
            self._connector.moves.stay(session)

    def left(self, link: Link) -> None:
        """A dispatcher is gone."""
        self._turnstiles.pop(link, None)

    def _shared(self, push: relay.Push) -> Shared:
        self._arrivals += 1
        return Shared(push.message_id, push.payload, push.attributes, self._arrivals)

    # Durable sessions

    def _store(self, push: relay.Push, fresh: bytes, now: float) -> Storing | None:
        """Journal what durable sessions are owed from now on."""
        durable = self._connector.durable
        concerned = [
            client
            for (client,) in each_id(fresh)
            if client in durable and (push.moved or durable[client].takes)
        ]
        if not concerned:
            return None
        clients = b"".join(concerned)
        number = self._connector.port.journal(
            DeliveryQueued(now, push.message_id, clients, push.attributes, push.payload)
        )
        storing = Storing(self._shared(push), clients, push.moved)
        before = self._storing.get(push.message_id)
        if before is not None:  # another part of the same fan-out: acknowledge with the later
            storing.acks = before.acks
        self._storing[push.message_id] = storing
        self._connector.await_journal(number, storing, now)
        return storing

    def stored(self, storing: Storing, now: float) -> None:
        """Durable from here on: owe it, push it, acknowledge it."""
        identity, sent = storing.shared.message_id, []
        for (client,) in each_id(storing.clients):
            session = self._connector.durable.get(client)
            if session is not None:
                drops = self.tally.drops
                self._owe(session, storing.shared, now, storing.moved)
                if session.move is not None:
                    self._connector.moves.stored(session, now)
                elif storing.moved and self._connector.moves.came(session, now):
                    pass  # the last that was awaited: all is sent
                elif next(iter(session.waiting), None) == identity:  # nothing waits before it
                    first, again = session.pump()
                    if first:
                        sent.append(client)
                    self._redelivered(again, client, now)
                    self._watch(session, now)
                else:
                    self.pump(session, now)
                if session.policy != "spill":
                    self._judge(session, self.tally.drops > drops, now)
        storing.shared.forget_images()
        if sent:
            self._delivered(identity, b"".join(sent), now)
        if self._storing.get(identity) is storing:
            del self._storing[identity]
            for link, clients, moved in storing.acks:
                link.send(relay.Ack(identity, clients, self._connector.node, moved).encode())

    # All others

    def _deliver(self, shared: Shared, clients: bytes, moved: int, now: float) -> set[bytes]:
        """To every connected client whose session is not durable: the hot path. Who is gone."""
        gone: set[bytes] = set()
        sessions, image = self._connector.sessions, shared.image(DEFAULT)
        cohort = self._cohorts.find(clients, sessions)
        others = cohort.send(image) if cohort is not None else _send(image, clients, sessions)
        if others:
            clients, gone = self._reach_others(shared, clients, others, moved, now)
        shared.forget_images()
        if clients:
            self._delivered(shared.message_id, clients, now)
        return gone

    def _reach_others(
        self, shared: Shared, clients: bytes, others: list[bytes], moved: int, now: float
    ) -> tuple[bytes, set[bytes]]:
        """Those who are not simply sent to; which of all were reached just now, and who is gone."""
        gone: list[bytes] = []
        later: list[bytes] = []  # stored and pushed once that is safe, or slow
        for client in others:
            session = self._connector.sessions.get(client)
            names = session.names_for(shared) if session is not None else ()
            if session is None or not (names or moved or session.takes):
                gone.append(client)
            elif session.durable:
                later.append(client)
            elif session.link is None:
                gone.append(client)
            elif session.refill():
                session.link.send_with_others(shared.image(names))
            else:
                later.append(client)
                self._fall_behind(session, shared, now)
        if gone:
            self.drop(shared.message_id, b"".join(gone), b"no-session", now)
        reached = _without(clients, {*gone, *later}) if gone or later else clients
        return reached, set(gone)

    def _delivered(self, identity: bytes, clients: bytes, now: float) -> None:
        self.tally.deliveries += len(clients) // ID_BYTES
        self._connector.tell(Delivered(now, identity, clients))

    def _redelivered(self, identities: list[bytes], client: bytes, now: float) -> None:
        for identity in identities:
            self.tally.redeliveries += 1
            self._connector.tell(Redelivered(now, identity, client))

    def drop(self, identity: bytes, clients: bytes, reason: bytes, now: float) -> None:
        """The journal is told that it will never reach these clients."""
        self.tally.drops += len(clients) // ID_BYTES
        self._connector.tell(Dropped(now, identity, clients, reason))

    # Slow clients

    def _fall_behind(self, session: Session, shared: Shared, now: float) -> None:
        """A client that does not keep up; what happens to it is its session's policy."""
        if session.policy == "disconnect" and session.link is not None:
            self.drop(shared.message_id, session.client, b"slow", now)
            self._connector.doorway.dismiss(session.link, "slow consumer", now)
            return
        self._owe(session, shared, now)
        self._watch(session, now)

    def _judge(self, session: Session, full: bool, now: float) -> None:
        """A durable client that asked for something else than to be spilled for, and does not keep up.

        `full`: something had to go for what has just come.

        As long as it is sent a replay nobody judges it: each would end before the next began.
        """
        link, most = session.link, session.store.limits.buffer
        if link is None or link.backlog <= MAX_BACKLOG or session.again:
            return
        if not full and _unsent(session) <= most:
            return
        if session.policy == "disconnect":  # it is owed what waits as before
            self._connector.doorway.dismiss(link, "slow consumer", now)
            return
        for gone in session.lighten(_unsent(session) - most):
            self.drop(gone, session.client, b"slow", now)

    def _owe(self, session: Session, shared: Shared, now: float, moved: int = 0) -> None:
        for gone in session.owe(shared, moved):
            self.drop(gone, session.client, b"queue-full", now)
        if session.store.full:
            self.make_room(now)
        if session.store.full:  # all else is under way: what has just come is not taken
            over = session.store.held - session.store.limits.kept_bytes
            for gone in session.lighten(over):
                self.drop(gone, session.client, b"store-full", now)

    def make_room(self, now: float) -> None:
        """All together keep too much: those with most unsent lose their oldest, and are told."""
        store = self._connector.store
        heaviest = nlargest(HEAVIEST, self._connector.sessions.values(), key=_unsent)
        wanted = max(1, store.limits.kept_bytes // 16)  # so that the next pass is far away
        for session in heaviest:
            if wanted <= 0:
                return
            before = session.held
            for gone in session.lighten(min(wanted, max(1, _unsent(session) // 2))):
                self.drop(gone, session.client, b"store-full", now)
            wanted -= before - session.held

    def _watch(self, session: Session, now: float) -> None:
        if session.early is not None:
            return  # not slow: it waits for what is older
        if session.waiting and session.link is not None and session.client not in self.slow:
            if not self.slow:
                self._connector.port.later(now + SLOW_SECONDS, SLOW)
            self.slow[session.client] = session

    def look_at_slow(self, now: float) -> None:
        """Those who take again get what waits for them."""
        slow, self.slow = self.slow, {}
        for session in slow.values():
            self.pump(session, now)

    def pump(self, session: Session, now: float) -> None:
        """Send what waits for a client, and tell the journal."""
        sent, again = session.pump()
        for identity in sent:
            self._delivered(identity, session.client, now)
        self._redelivered(again, session.client, now)
        self._watch(session, now)


def _send(image: bytes, clients: bytes, sessions: Mapping[bytes, Session]) -> list[bytes]:
    """To all whose sessions have room for it; the others."""
    find, size = sessions.get, len(image)
    others: list[bytes] = []
    for (client,) in each_id(clients):
        session = find(client)
        if session is not None and session.room >= size:
            session.room -= size
            session.link.send_with_others(image)  # type: ignore[union-attr]  # room is for a link
        else:
            others.append(client)
    return others


def _readable(attributes: bytes) -> bool:
    """Whether these are attributes: as they are they become part of what clients read."""
    try:
        parse_attributes(attributes)
    except SubscriptionError:
        return False
    return True


def _without(clients: bytes, others: set[bytes]) -> bytes:
    return b"".join([client for (client,) in each_id(clients) if client not in others])


def _unsent(session: Session) -> int:
    return session.held - session.under_way
