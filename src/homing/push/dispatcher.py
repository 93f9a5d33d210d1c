"""The dispatcher: from matchers to connectors, its own or through the dispatcher that owns them.

It keeps nothing on disk: whoever sent a parcel owes it until the connector's ack has come
back the whole way. While it runs it keeps, per connector, what was not acknowledged, and
sends that again, in order, when the connector's link comes back. A connector that takes
nothing fills its own outbox and is then refused; the others never notice.

The other way it passes subscriptions on to every matcher, and says they are in force when
all of them have said so, those included that it knows to be there and has not met yet
(homing.push.confirming). Among connectors it passes on what moves a session (homing.push.moves).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from homing.errors import Malformed
from homing.ports import Link, Port
from homing.push.confirming import MEET_SECONDS, MEETING, Absent, Confirming, ask_too
from homing.push.homes import Homes, absences
from homing.push.links import DISPATCHER, PacketRole, Peer, unnamed
from homing.push.outbox import Outbox, Parcel, Turnstile
from homing.push.places import by_connector, node_ids, places
from homing.wire import relay

MAX_CONFIRMING: Final = 65_536
"""Subscription changes waiting for matchers: more than any burst of new clients. Beyond it
the connector is not told and answers its client after a moment by itself."""

MATCHER: Final = b"matcher"
PEERS: Final = b"peers"
"""Who is asked of a claim as long as some of the dispatchers that we dial have not been met since we started."""


class Dispatcher(PacketRole):
    """A homing.ports.Role. Plugs: `nodes` (listens), `connectors` and `peers` (dials)."""

    role = DISPATCHER
    dials = frozenset(("connectors", "peers"))

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        *,
        connectors: Sequence[str] = (),
        peers: Sequence[str] = (),
        matchers: Collection[bytes] = (),
        token: bytes = b"",
    ) -> None:
        """Endpoints of our connectors and of the other dispatchers; ids of the matchers there are."""
        super().__init__(port, node, wall, token)
        self.connectors: dict[bytes, Link] = {}  # our own, joined
        self.outboxes: dict[bytes, Outbox] = {}
        self._owners: dict[bytes, Link] = {}  # connector -> the peer that owns it
        self._matchers: dict[Link, None] = {}
        self._turnstiles: dict[Link, Turnstile] = {}
        self._asked: set[bytes] = set()  # connectors that will begin a sync
        self._confirming: dict[bytes, Confirming] = {}
        self._absent = Absent(matchers)
        self._passed: dict[bytes, relay.Subscribe] = {}  # of those, what moves with a session
        self._homes = Homes()  # who claimed which session last
        self._informed: set[Link] = set()  # peers that were told of them
        # Then, or when all peers are met, claims wait for no more.
        self._alone_until: float | None = math.inf
        self.dial("connectors", unnamed(connectors))
        self.dial("peers", unnamed(peers))

    def meet(
        self,
        connectors: Mapping[bytes, str],
        peers: Mapping[bytes, str],
        matchers: Collection[bytes],
        now: float,
    ) -> None:
        """The connectors that are ours and the other dispatchers, endpoints by id, from now on.

        `matchers`: the ids of those that are alive; they dial us.
        """
        self.dial("connectors", connectors, now)
        self.dial("peers", peers, now)
        here = {self.peers[link].node for link in self._matchers}
        for gone in self._absent.members(matchers, here, now):
            self._confirmed_by(gone, now)
        self._look_for_absent()

    def hello(self) -> relay.Hello:
        return relay.Hello(self.node, self.role, self.token, b"".join(self.connectors))

    @property
    def met(self) -> bool:
        return super().met and not self._absent

    # Who comes and goes

    def wake(self, key: Hashable, now: float) -> None:
        if key == MEETING:
            for late in self._absent.late(now):
                self._confirmed_by(late, now)
            self._look_for_absent()
        else:
            super().wake(key, now)

    def beat(self, now: float) -> None:
        self._absent.begin(now)
        self._look_for_absent()
        if self._alone_until == math.inf:
            self._alone_until = now + MEET_SECONDS
        self._look_for_peers(now)

    def _look_for_absent(self) -> None:
        due = self._absent.due
        if due is not None:
            self.port.later(due, MEETING)

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        if link.plug == "connectors":
            self._connector_joined(link, peer.node)
            self._homes.found(peer.node)
        elif hello.role == MATCHER:
            self._matchers[link] = None
            self._absent.found(peer.node)
            for change in self._confirming.values():
                change.found(peer.node, link)
            self._ask_all()
        elif link.plug == "peers" or hello.role == DISPATCHER:
            if link.plug == "peers":
                self._peer_owns(link, hello.connectors, now)
            if link not in self._informed:
                self._inform(link)
            self._look_for_peers(now)

    def _inform(self, link: Link) -> None:
        """A peer hears where sessions are; of those whose connector still waits we want its answer."""
        self._informed.add(link)
        for claim in self._homes:
            link.send(claim.encode())
            waiting = self._confirming.get(claim.message_id)
            if waiting is not None and PEERS in waiting.asked:
                waiting.asked.add(link)

    def _look_for_peers(self, now: float) -> None:
        """Claims wait for dispatchers that we have not met since we started: they know of connectors that we do not."""
        if self._alone_until is None:
            return
        there = [peer for link, peer in self.peers.items() if link.plug == "peers" and peer.node]
        if len(there) >= len(self.dialled["peers"]) or now >= self._alone_until:
            self._alone_until = None
            for message_id in list(self._confirming):
                self._confirmed(PEERS, message_id, now)

    def _connector_joined(self, link: Link, connector: bytes) -> None:
        self.connectors[connector] = link
        self._tell_all()
        self._attach(connector)
        ask_too(self._confirming.values(), link, {connector})

    def left(self, link: Link, peer: Peer, now: float) -> None:
        if link in self._matchers:
            del self._matchers[link]
            self._matcher_left(link, peer.node, now)
        self._turnstiles.pop(link, None)
        self._informed.discard(link)
        gone = [c for c, owner in self._owners.items() if owner is link]
        for connector in gone:
            del self._owners[connector]
        if self.connectors.get(peer.node) is link:
            del self.connectors[peer.node]
            self._asked.discard(peer.node)
            self._tell_all()
            gone.append(peer.node)
        self._miss(gone, now)
        for outbox in list(self.outboxes.values()):
            if outbox.link is link:
                outbox.link = None
                self._attach(outbox.connector)
        self._forget_confirming(link, gone, now)

    def _miss(self, connectors: Iterable[bytes], now: float) -> None:
        """These are not where they were; some may be elsewhere."""
        for connector in connectors:
            if self._way(connector) is None:
                self._homes.lost(connector, now)

    def _matcher_left(self, link: Link, node: bytes, now: float) -> None:
        """It may be back in a moment, and has to be told then what it does not know."""
        awaited = self._absent.lost(node, now)
        for change in self._confirming.values():
            change.lost(link, node, awaited, now)
        self._look_for_absent()

    def _tell_all(self) -> None:
        """Matchers and peers learn which connectors are ours."""
        hello = self.hello().encode()
        for link, peer in self.peers.items():
            if link.plug == "nodes" and peer.node:
                link.send(hello)

    def _peer_owns(self, link: Link, connectors: bytes, now: float) -> None:
        before = [c for c, owner in self._owners.items() if owner is link]
        for connector in before:
            del self._owners[connector]
        for connector in node_ids(connectors):
            self._owners[connector] = link
            self._homes.found(connector)
            self._attach(connector)
        self._miss(before, now)
        ask_too(self._confirming.values(), link, {*node_ids(connectors)} - {*before})

    # Publications

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Push):
            self._push(link, message)
        elif isinstance(message, relay.Ack):
            self._acked(link, message, now)
        elif isinstance(message, relay.Nak):
            self._refused(link, message)
        elif isinstance(message, relay.Claim):
            self._claim(link, message, now)
        elif isinstance(message, relay.HandedOver):
            self._handed_over(link, message)
        elif isinstance(message, relay.Subscribe) and not self._is_of(link, message.connector):
            self._pass_on(link, message)
        elif link.plug == "connectors":
            self._subscription(link, message, now)
        elif isinstance(message, relay.Sync) and link in self._matchers:
            self._ask_all()
        else:
            raise Malformed("subscriptions come from connectors")

    def _is_of(self, link: Link, connector: bytes) -> bool:
        """Whether this is the connector's own link; a dispatcher beside it may have the same id."""
        return link.plug == "connectors" and connector == self.peers[link].node

    def _push(self, link: Link, push: relay.Push) -> None:
        identity, payload, attributes = push.message_id, push.payload, push.attributes
        for connector, clients in by_connector(push.clients).items():
            parcel = Parcel(identity, payload, attributes, clients, link, push.moved)
            if push.first and link in self._turnstiles:
                self._turnstiles[link].open(connector)
            self._parcel(link, connector, parcel, push.redirected)

    def _parcel(self, link: Link, connector: bytes, parcel: Parcel, redirected: bool) -> None:
        """Owe one parcel, or refuse it, and then all behind it on the same way."""
        turnstile = self._turnstiles.get(link)
        outbox = self.outboxes.get(connector)
        known = outbox and outbox.find(parcel.message_id, parcel.clients, parcel.moved)
        if known and outbox and parcel.moved > known.moved:
            outbox.remove(known)  # the session was there and has left since
            known = None
        elif known and parcel.clients == known.clients:
            if link not in known.sources and parcel.moved == known.moved:
                known.sources.append(link)
            return
        reason = ""
        if turnstile is not None and turnstile.blocks(connector, parcel.message_id):
            reason = "queue-full waiting for what was refused before"
        elif known:  # the ack of that one would not be the answer to this
            reason = "queue-full it is on its way for other clients"
        elif connector not in self.connectors and (redirected or connector not in self._owners):
            reason = "no-service nobody here holds that connector"
        elif outbox is not None and outbox.full:
            reason = "queue-full the connector takes nothing"
        if reason:
            self._turnstiles.setdefault(link, Turnstile()).refuse(connector, parcel.message_id)
            link.send(relay.Nak(parcel.message_id, reason, connector).encode())
            return
        first = outbox is None
        if outbox is None:
            outbox = self.outboxes[connector] = Outbox(connector)
            outbox.link = self._way(connector)
        outbox.add(parcel)
        self._send(outbox, parcel, first)

    def _way(self, connector: bytes) -> Link | None:
        return self.connectors.get(connector) or self._owners.get(connector)

    def _attach(self, connector: bytes) -> None:
        """Send what a connector has not acknowledged over the way there is now."""
        outbox = self.outboxes.get(connector)
        if outbox is None:
            return
        way = self._way(connector)
        if way is not None and way is not outbox.link:
            outbox.link = way
            for parcel in outbox:
                self._send(outbox, parcel)

    def _send(self, outbox: Outbox, parcel: Parcel, first: bool = False) -> None:
        link = outbox.link
        if link is None:
            return
        own = link.plug == "connectors"
        clients = parcel.clients if own else places(parcel.clients, outbox.connector)
        identity, payload, attributes = parcel.message_id, parcel.payload, parcel.attributes
        push = relay.Push(identity, payload, clients, attributes, not own, first, parcel.moved)
        link.send(push.encode())

    def _acked(self, link: Link, ack: relay.Ack, now: float) -> None:
        if not ack.clients:
            waiting = self._confirming.get(ack.message_id)
            if ack.away and waiting is not None:
                sure = [one.connector for one in ack.away if self._way(one.connector) is link]
                waiting.told(ack.away, sure, now)
            self._confirmed(link, ack.message_id, now)
            return
        connector = ack.connector or self.peers[link].node
        outbox = self.outboxes.get(connector)
        parcel = outbox.acked(ack.message_id, ack.clients, ack.moved) if outbox else None
        if parcel is None or outbox is None:
            return
        if not outbox:
            del self.outboxes[connector]
        answer = relay.Ack(ack.message_id, ack.clients, connector, parcel.moved).encode()
        for source in parcel.sources:
            source.send(answer)

    def _refused(self, link: Link, nak: relay.Nak) -> None:
        """The next node refuses: so do we, for all that connector is owed; nothing is kept."""
        connector = nak.connector or self.peers[link].node
        asked = self._confirming.pop(nak.message_id, None) if link not in self._matchers else None
        self._passed.pop(nak.message_id, None)
        if asked is not None:  # a subscription that moves with its session
            asked.link.send(relay.Nak(nak.message_id, nak.reason, connector).encode())
            return
        outbox = self.outboxes.pop(connector, None)
        for parcel in outbox or ():
            for source in [link for link in parcel.sources if link in self.peers]:
                turnstile = self._turnstiles.setdefault(source, Turnstile())
                turnstile.refuse(connector, parcel.message_id)
                source.send(relay.Nak(parcel.message_id, nak.reason, connector).encode())

    # Subscriptions

    def _subscription(self, link: Link, message: relay.Relayed, now: float) -> None:
        if not isinstance(message, relay.Subscribe | relay.Unsubscribe | relay.Sync):
            raise Malformed("a connector sends subscriptions and acks")
        if message.connector != self.peers[link].node:
            raise Malformed("a connector speaks for itself only")
        if isinstance(message, relay.Sync) and message.phase == relay.SYNC_BEGIN:
            self._asked.discard(message.connector)
        image = message.encode()
        for matcher in self._matchers:
            matcher.send(image)
        ends = isinstance(message, relay.Unsubscribe) and not message.name
        asked: set[Link | bytes] = {*self._matchers, *(() if ends else self._absent)}
        away = self._absent.since(now) if ends else None
        confirm = not isinstance(message, relay.Sync) and (asked or away)
        if confirm and len(self._confirming) < MAX_CONFIRMING:
            identity = message.message_id
            self._confirming[identity] = Confirming(link, asked, image, away=away)
            self._confirmed(link, identity, now)  # nobody may be there to wait for

    def _confirmed(self, who: Link | bytes, message_id: bytes, now: float) -> None:
        waiting = self._confirming.get(message_id)
        if waiting is None:
            return
        waiting.asked.discard(who)
        if not waiting.asked:
            del self._confirming[message_id]
            self._tell_moved(waiting.link, self._passed.pop(message_id, None))
            away = self._away(waiting, now)
            waiting.link.send(relay.Ack(message_id, away=away).encode())

    def _confirmed_by(self, matcher: bytes, now: float) -> None:
        """It is not waited for any more; a change that no matcher has is not in force for that."""
        waiting = [one for one, change in self._confirming.items() if matcher in change.asked]
        for message_id in waiting:
            if self._matchers:
                self._confirmed(matcher, message_id, now)
            else:
                self._confirming[message_id].asked.discard(matcher)
                if not self._confirming[message_id].asked:
                    del self._confirming[message_id]

    def _forget_confirming(self, link: Link, gone: Iterable[bytes], now: float) -> None:
        """A matcher that is gone need not agree, a connector that is gone need not know; it may have had a session."""
        for message_id, waiting in list(self._confirming.items()):
            if waiting.link is link:
                del self._confirming[message_id]
                self._passed.pop(message_id, None)
            elif link not in waiting.asked:
                continue
            elif (change := self._passed.pop(message_id, None)) is not None:
                del self._confirming[message_id]
                lost = relay.Nak(message_id, "no-service it was lost on the way", change.connector)
                waiting.link.send(lost.encode())
            else:
                waiting.away.update({} if waiting.ends else dict.fromkeys(gone, now))
                self._confirmed(link, message_id, now)

    # Sessions that move

    def _claim(self, link: Link, claim: relay.Claim, now: float) -> None:
        """Every other connector hears of it; who claims is told when all of them are done."""
        peer = self.peers[link]
        if link.plug == "connectors" and claim.connector != peer.node:
            raise Malformed("a connector speaks for itself only")
        asked = {way for node, way in self.connectors.items() if node != claim.connector}
        if link.plug == "connectors":
            asked |= {way for way, at in self.peers.items() if way.plug == "peers" and at.node}
        if not claim.durable:  # nobody waits for an answer
            for way in asked:
                way.send(claim.encode())
            return
        known = self._homes.find(claim.client)
        if known is not None and known.rank > claim.rank:
            # One that was started again has forgotten since when.
            if known.connector == claim.connector:
                claim = msgspec.structs.replace(claim, time=known.time)
            elif self._reaches(known.connector):
                link.send(known.encode())  # who was away may not know that the session is elsewhere
                link.send(relay.Ack(claim.message_id).encode())
                return
        self._homes.settle(claim)
        self._ask(link, asked, claim, now)

    def _pass_on(self, link: Link, change: relay.Subscribe) -> None:
        """A session's former connector tells the new one what its client asked for."""
        way = self.connectors.get(change.connector)
        if way is None and link.plug == "connectors":
            way = self._owners.get(change.connector)
        reason = ""
        if way is None:
            reason = "no-service nobody here holds that connector"
        elif len(self._confirming) >= MAX_CONFIRMING:
            reason = "queue-full too many changes are on their way"
        if way is None or reason:
            link.send(relay.Nak(change.message_id, reason, change.connector).encode())
            return
        self._passed[change.message_id] = change
        self._confirming[change.message_id] = Confirming(link, {way})
        way.send(change.encode())

    def _tell_moved(self, link: Link, change: relay.Subscribe | None) -> None:
        """The new connector has a subscription: our matchers, of whom its dispatcher may not know all, hear of it before the old one's ends."""
        if change is not None and link.plug == "connectors":
            image = msgspec.structs.replace(change, moved=True).encode()
            for matcher in self._matchers:
                matcher.send(image)

    def _ask(self, link: Link, asked: set[Link], claim: relay.Claim, now: float) -> None:
        """Pass it on; the answer comes with the last of theirs, or at once where none is waited for."""
        image = claim.encode()
        for way in asked:
            way.send(image)
        full = len(self._confirming) >= MAX_CONFIRMING
        everybody: set[Link | bytes] = {*asked}
        if link.plug == "connectors" and self._alone_until is not None:
            everybody.add(PEERS)
        waiting = self._confirming.get(claim.message_id)
        if waiting is not None and (waiting.link is link or waiting.link.plug == "peers"):
            waiting.link = link  # a peer told us of it before; now somebody waits for the answer
            return
        if full or waiting is not None:
            away = absences(self._homes.away(claim, self._reaches, now))
            link.send(relay.Ack(claim.message_id, away=away).encode())
            return
        self._confirming[claim.message_id] = Confirming(link, everybody, claim=claim)
        self._confirmed(link, claim.message_id, now)  # nobody may be there to ask

    def _away(self, waiting: Confirming, now: float) -> tuple[relay.Absence, ...]:
        """Who may owe a session something: matchers that have not heard of its end, or connectors that had it before."""
        claim = waiting.claim
        if claim is not None and waiting.link.plug == "connectors":  # all were asked that we reach
            self._homes.answered(claim, self._reaches)
        ours = self._homes.away(claim, self._reaches, now) if claim is not None else {}
        return absences({**waiting.owing(self._reaches, now), **ours})

    def _reaches(self, connector: bytes) -> bool:
        return self._way(connector) is not None

    def _handed_over(self, link: Link, told: relay.HandedOver) -> None:
        """A connector that may have been away has sent what it had: whoever waits for that hears of it."""
        if link.plug == "connectors" and told.node != self.peers[link].node:
            raise Malformed("a connector speaks for itself only")
        self._homes.handed_over(told.client, told.node)
        way = self.connectors.get(told.connector)
        if way is None and link.plug == "connectors":
            way = self._owners.get(told.connector)
        if way is not None:
            way.send(told.encode())

    def _ask_all(self) -> None:
        """A matcher is new, or has more to answer for: connectors tell all their subscriptions.

        One that was asked and has not begun yet will begin late enough for this matcher too.
        """
        for connector, link in self.connectors.items():
            if connector not in self._asked:
                self._asked.add(connector)
                link.send(relay.Sync(bytes(12), connector, relay.SYNC_BEGIN).encode())
