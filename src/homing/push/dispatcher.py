"""The dispatcher: from matchers to connectors, its own or through the dispatcher that owns them.

It keeps nothing on disk: whoever sent a parcel owes it until the connector's ack has come
back the whole way. While it runs it keeps, per connector, what was not acknowledged, and
sends that again, in order, when the connector's link comes back. A connector that takes
nothing fills its own outbox and is then refused; the others never notice.

The other way it passes subscriptions on to every matcher, and says they are in force when
all of them have said so, those included that it knows to be there and has not met yet
(homing.push.confirming). Among connectors it passes on what moves a session (homing.push.claims).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from homing.errors import Malformed
from homing.ports import Link, Port
from homing.push.claims import PEERS, Claims
from homing.push.confirming import (
    MAX_CONFIRMING,
    MEETING,
    Absent,
    Confirming,
    FirstMeeting,
    ask_too,
)
from homing.push.links import DISPATCHER, PacketRole, Peer, unnamed
from homing.push.outbox import Outbox, Parcel, Turnstile
from homing.push.places import by_connector, node_ids, places
from homing.wire import relay

MATCHER: Final = b"matcher"


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
        connectors: Sequence[str] | None = (),
        peers: Sequence[str] = (),
        matchers: Collection[bytes] = (),
        tokens: Sequence[bytes] = (),
    ) -> None:
        """Endpoints of our connectors (None: told later, with `meet`) and of the other dispatchers; ids of the matchers there are."""
        super().__init__(port, node, wall, tokens)
        self.connectors: dict[bytes, Link] = {}  # our own, joined
        self.outboxes: dict[bytes, Outbox] = {}
        self._owners: dict[bytes, Link] = {}  # connector -> the peer that owns it
        self.matchers: dict[Link, None] = {}
        self._turnstiles: dict[Link, Turnstile] = {}
        self._asked: set[bytes] = set()  # connectors that will begin a sync
        self.confirming: dict[bytes, Confirming] = {}
        self._absent = Absent(matchers)
        self._claims = Claims(self)
        self._informed = connectors is not None  # of whom there is to dial
        self._meetings = {"connectors": FirstMeeting(), "peers": FirstMeeting()}
        self.dial("connectors", unnamed(connectors or ()))
        self.dial("peers", unnamed(peers))
        self._look_around(0.0)  # there may be nobody to meet

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
        self._informed = True
        self._look_around(now)
        here = {self.peers[link].node for link in self.matchers}
        for gone in self._absent.members(matchers, here, now):
            self._confirmed_by(gone, now)
        self._look_for_absent()

    def hello(self) -> relay.Hello:
        owned, more = b"".join(self.connectors), self.meets("connectors")
        return relay.Hello(self.node, self.role, self.token, owned, more)

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
        for meeting in self._meetings.values():
            meeting.begin(now)
        self._look_around(now)

    def _look_for_absent(self) -> None:
        due = self._absent.due
        if due is not None:
            self.port.later(due, MEETING)

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        if link.plug == "connectors":
            self._connector_joined(link, peer.node, now)
            self._claims.homes.found(peer.node)
        elif hello.role == MATCHER:
            self.matchers[link] = None
            self._absent.found(peer.node)
            for change in self.confirming.values():
                change.found(peer.node, link)
            self._ask_all()
        elif link.plug == "peers" or hello.role == DISPATCHER:
            if link.plug == "peers":
                self._peer_owns(link, hello.connectors, now)
            self._claims.inform(link)
            self._look_around(now)

    def meets(self, plug: str) -> bool:
        """Whether some of those that we dial there are still to be met for the first time since we started."""
        return self._meetings[plug].under_way

    def _look_around(self, now: float) -> None:
        """Claims wait for dispatchers that know of connectors that we do not; matchers for connectors."""
        if self._has_met("peers", now):
            for message_id in list(self.confirming):
                self.confirmed(PEERS, message_id, now)
        if self._has_met("connectors", now):
            self._tell_all()

    def _has_met(self, plug: str, now: float) -> bool:
        """Whether we have met everybody there just now, or waited long enough."""
        there = [peer for link, peer in self.peers.items() if link.plug == plug and peer.node]
        everybody = self._informed and len(there) >= len(self.dialled[plug])
        return self._meetings[plug].ends(everybody, now)

    def _connector_joined(self, link: Link, connector: bytes, now: float) -> None:
        self.connectors[connector] = link
        self._has_met("connectors", now)
        self._tell_all()
        self._attach(connector)
        ask_too(self.confirming.values(), link, {connector})

    def left(self, link: Link, peer: Peer, now: float) -> None:
        if link in self.matchers:
            del self.matchers[link]
            self._matcher_left(link, peer.node, now)
        self._turnstiles.pop(link, None)
        self._claims.left(link)
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
            if not self.reaches(connector):
                self._claims.homes.lost(connector, now)

    def _matcher_left(self, link: Link, node: bytes, now: float) -> None:
        """It may be back in a moment, and has to be told then what it does not know."""
        awaited = self._absent.lost(node, now)
        for change in self.confirming.values():
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
            self._claims.homes.found(connector)
            self._attach(connector)
        self._miss(before, now)
        ask_too(self.confirming.values(), link, {*node_ids(connectors)} - {*before})

    # Publications

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Push):
            self._push(link, message)
        elif isinstance(message, relay.Ack):
            self._acked(link, message, now)
        elif isinstance(message, relay.Nak):
            self._refused(link, message)
        elif isinstance(message, relay.Claim):
            self._claims.claim(link, message, now)
        elif isinstance(message, relay.HandedOver):
            self._claims.handed_over(link, message)
        elif isinstance(message, relay.Subscribe) and not self._is_of(link, message.connector):
            self._claims.pass_on(link, message)
        elif link.plug == "connectors":
            self._subscription(link, message, now)
        elif isinstance(message, relay.Sync) and link in self.matchers:
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
            outbox.link = self.way(connector)
        outbox.add(parcel)
        self._send(outbox, parcel, first)

    def way(self, connector: bytes) -> Link | None:
        """To a connector: its own link, or that of the peer that owns it."""
        return self.connectors.get(connector) or self._owners.get(connector)

    def reaches(self, connector: bytes) -> bool:
        """Whether there is a way to it."""
        return self.way(connector) is not None

    def _attach(self, connector: bytes) -> None:
        """Send what a connector has not acknowledged over the way there is now."""
        outbox = self.outboxes.get(connector)
        if outbox is None:
            return
        way = self.way(connector)
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
            waiting = self.confirming.get(ack.message_id)
            if ack.away and waiting is not None:
                sure = [one.connector for one in ack.away if self.way(one.connector) is link]
                waiting.told(ack.away, sure, now)
            self.confirmed(link, ack.message_id, now)
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
        asked = self.confirming.pop(nak.message_id, None) if link not in self.matchers else None
        self._claims.take(nak.message_id)
        if asked is not None:  # a subscription that moves with its session
            asked.link.send(relay.Nak(nak.message_id, nak.reason, connector).encode())
            return
        if nak.clients:
            self._refused_for(connector, nak)
            return
        outbox = self.outboxes.pop(connector, None)
        for parcel in outbox or ():
            for source in [link for link in parcel.sources if link in self.peers]:
                turnstile = self._turnstiles.setdefault(source, Turnstile())
                turnstile.refuse(connector, parcel.message_id)
                source.send(relay.Nak(parcel.message_id, nak.reason, connector).encode())

    def _refused_for(self, connector: bytes, nak: relay.Nak) -> None:
        """One session is not there: what others of that connector are owed is none of its business."""
        outbox = self.outboxes.get(connector)
        parcel = outbox.acked(nak.message_id, nak.clients, nak.moved) if outbox else None
        if parcel is None or outbox is None:
            return
        if not outbox:
            del self.outboxes[connector]
        for source in parcel.sources:
            source.send(replace(nak, connector=connector).encode())

    # Subscriptions

    def _subscription(self, link: Link, message: relay.Relayed, now: float) -> None:
        if not isinstance(message, relay.Subscribe | relay.Unsubscribe | relay.Sync):
            raise Malformed("a connector sends subscriptions and acks")
        if message.connector != self.peers[link].node:
            raise Malformed("a connector speaks for itself only")
        if isinstance(message, relay.Sync) and message.phase == relay.SYNC_BEGIN:
            self._asked.discard(message.connector)
        image = message.encode()
        for matcher in self.matchers:
            matcher.send(image)
        ends = isinstance(message, relay.Unsubscribe) and not message.name
        asked: set[Link | bytes] = {*self.matchers, *(() if ends else self._absent)}
        away = self._absent.since(now) if ends else None
        confirm = not isinstance(message, relay.Sync) and (asked or away)
        if confirm and len(self.confirming) < MAX_CONFIRMING:
            identity = message.message_id
            self.confirming[identity] = Confirming(link, asked, image, away=away)
            self.confirmed(link, identity, now)  # nobody may be there to wait for

    def confirmed(self, who: Link | bytes, message_id: bytes, now: float) -> None:
        waiting = self.confirming.get(message_id)
        if waiting is None:
            return
        waiting.asked.discard(who)
        if not waiting.asked:
            del self.confirming[message_id]
            self._claims.tell_moved(waiting.link, message_id)
            away = self._claims.away(waiting, now)
            waiting.link.send(relay.Ack(message_id, away=away).encode())

    def _confirmed_by(self, matcher: bytes, now: float) -> None:
        """It is not waited for any more; a change that no matcher has is not in force for that."""
        waiting = [one for one, change in self.confirming.items() if matcher in change.asked]
        for message_id in waiting:
            if self.matchers:
                self.confirmed(matcher, message_id, now)
            else:
                self.confirming[message_id].asked.discard(matcher)
                if not self.confirming[message_id].asked:
                    del self.confirming[message_id]

    def _forget_confirming(self, link: Link, gone: Iterable[bytes], now: float) -> None:
        """A matcher that is gone need not agree, a connector that is gone need not know; it may have had a session."""
        for message_id, waiting in list(self.confirming.items()):
            if waiting.link is link:
                del self.confirming[message_id]
                self._claims.take(message_id)
            elif link not in waiting.asked:
                continue
            elif (change := self._claims.take(message_id)) is not None:
                del self.confirming[message_id]
                lost = relay.Nak(message_id, "no-service it was lost on the way", change.connector)
                waiting.link.send(lost.encode())
            else:
                waiting.away.update({} if waiting.ends else dict.fromkeys(gone, now))
                self.confirmed(link, message_id, now)

    def _ask_all(self) -> None:
        """A matcher is new, or has more to answer for: connectors tell all their subscriptions.

        One that was asked and has not begun yet will begin late enough for this matcher too.
        """
        for connector, link in self.connectors.items():
            if connector not in self._asked:
                self._asked.add(connector)
                link.send(relay.Sync(bytes(12), connector, relay.SYNC_BEGIN).encode())
