"""Sessions that change connectors: a dispatcher's part.

The connector that has a session now claims it, and every other hears of that: what it owes the client it
hands over. The claim is answered when all of them are done, with who may owe something and is away
(homing.push.homes). Then the former connector tells the new one what its client asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from homing.errors import Malformed
from homing.ports import Link
from homing.push.confirming import MAX_CONFIRMING, Confirming
from homing.push.homes import Homes, absences
from homing.wire import relay

if TYPE_CHECKING:
    from homing.push.dispatcher import Dispatcher

PEERS: Final = b"peers"
"""Who is asked of a claim as long as some of the dispatchers that we dial have not been met since we started."""


class Claims:
    """Who has which session, and what moves to where."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.homes = Homes()  # who claimed which session last
        self._informed: set[Link] = set()  # peers that were told of them
        self._passed: dict[
            bytes, relay.Subscribe
        ] = {}  # changes under way that move with a session

    # Who comes and goes

    def inform(self, link: Link) -> None:
        """A peer hears where sessions are; of those whose connector still waits we want its answer."""
        if link in self._informed:
            return
        self._informed.add(link)
        for claim in self.homes:
            link.send(claim.encode())
            waiting = self._dispatcher.confirming.get(claim.message_id)
            if waiting is not None and PEERS in waiting.asked:
                waiting.asked.add(link)

    def left(self, link: Link) -> None:
        """A peer that comes again is informed again."""
        self._informed.discard(link)

    # Claims

    def claim(self, link: Link, claim: relay.Claim, now: float) -> None:
        """Every other connector hears of it; who claims is told when all of them are done."""
        dispatcher = self._dispatcher
        peers = dispatcher.peers
        if link.plug == "connectors" and claim.connector != peers[link].node:
            raise Malformed("a connector speaks for itself only")
        asked = {way for node, way in dispatcher.connectors.items() if node != claim.connector}
        if link.plug == "connectors":
            asked |= {way for way, at in peers.items() if way.plug == "peers" and at.node}
        if not claim.durable:  # nobody waits for an answer
            for way in asked:
                way.send(claim.encode())
            return
        known = self.homes.find(claim.client)
        if known is not None and known.rank > claim.rank:
            same = known.connector == claim.connector
            if same and (link.plug == "connectors" or not claim.time):
                # One that was started again has forgotten since when.
                claim = replace(claim, time=known.time)
            elif same or dispatcher.reaches(known.connector):
                self._told_of_before(link, claim, known)
                return
        self.homes.settle(claim)
        self._ask(link, asked, claim, now)

    def _told_of_before(self, link: Link, claim: relay.Claim, known: relay.Claim) -> None:
        """Who had a session before, and who owed it something then, may owe it still.

        To ask once more, under an id that is out of date, would answer the claim that came after it.
        """
        self.homes.settle(replace(known, owing=claim.owing + claim.connector))
        if known.connector != claim.connector:
            link.send(known.encode())  # who was away may not know that the session is elsewhere
        link.send(relay.Ack(claim.message_id).encode())

    def _ask(self, link: Link, asked: set[Link], claim: relay.Claim, now: float) -> None:
        """Pass it on; the answer comes with the last of theirs, or at once where none is waited for."""
        dispatcher = self._dispatcher
        image = claim.encode()
        for way in asked:
            way.send(image)
        full = len(dispatcher.confirming) >= MAX_CONFIRMING
        everybody: set[Link | bytes] = {*asked}
        if link.plug == "connectors" and dispatcher.meets("peers"):
            everybody.add(PEERS)
        waiting = dispatcher.confirming.get(claim.message_id)
        if waiting is not None and (waiting.link is link or waiting.link.plug == "peers"):
            waiting.link = link  # a peer told us of it before; now somebody waits for the answer
            return
        if full or waiting is not None:
            away = absences(self.homes.away(claim, dispatcher.reaches, now))
            link.send(relay.Ack(claim.message_id, away=away).encode())
            return
        dispatcher.confirming[claim.message_id] = Confirming(link, everybody, claim=claim)
        dispatcher.confirmed(link, claim.message_id, now)  # nobody may be there to ask

    def away(self, waiting: Confirming, now: float) -> tuple[relay.Absence, ...]:
        """Who may owe a session something: matchers that have not heard of its end, or connectors that had it before."""
        claim, reaches = waiting.claim, self._dispatcher.reaches
        if claim is not None and waiting.link.plug == "connectors":  # all were asked that we reach
            self.homes.answered(claim, reaches)
        ours = self.homes.away(claim, reaches, now) if claim is not None else {}
        return absences({**waiting.owing(reaches, now), **ours})

    def handed_over(self, link: Link, told: relay.HandedOver) -> None:
        """A connector that may have been away has sent what it had: whoever waits for that hears of it."""
        if link.plug == "connectors" and told.node != self._dispatcher.peers[link].node:
            raise Malformed("a connector speaks for itself only")
        self.homes.handed_over(told.client, told.node)
        way = self._way(link, told.connector)
        if way is not None:
            way.send(told.encode())

    def _way(self, link: Link, connector: bytes) -> Link | None:
        """To where something moves: what a peer sends us is for our own connectors."""
        ours = self._dispatcher.connectors.get(connector)
        return self._dispatcher.way(connector) if link.plug == "connectors" else ours

    # Subscriptions

    def pass_on(self, link: Link, change: relay.Subscribe) -> None:
        """A session's former connector tells the new one what its client asked for."""
        confirming = self._dispatcher.confirming
        way = self._way(link, change.connector)
        reason = ""
        if way is None:
            reason = "no-service nobody here holds that connector"
        elif len(confirming) >= MAX_CONFIRMING:
            reason = "queue-full too many changes are on their way"
        if way is None or reason:
            link.send(relay.Nak(change.message_id, reason, change.connector).encode())
            return
        self._passed[change.message_id] = change
        confirming[change.message_id] = Confirming(link, {way})
        way.send(change.encode())

    def take(self, message_id: bytes) -> relay.Subscribe | None:
        """A change that moves, if it is one; it is under way no more."""
        return self._passed.pop(message_id, None)

    def tell_moved(self, link: Link, message_id: bytes) -> None:
        """The new connector has a subscription: our matchers, of whom its dispatcher may not know all, hear of it before the old one's ends."""
        change = self.take(message_id)
        if change is not None and link.plug == "connectors":
            image = replace(change, moved=True).encode()
            for matcher in self._dispatcher.matchers:
                matcher.send(image)
