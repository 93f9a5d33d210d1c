"""A durable session follows its client from one connector to another.

A connector that lets a client in *claims* its session: over the dispatchers every other connector
hears of it, and which of two claims is the later one decides. Whoever holds the session tells the new
connector its subscriptions, then sends, in order, what it owes, and keeps each publication
until the new one has it on disk. Meanwhile the new one holds back what comes newly. When
all is there the old one's subscriptions end; what still arrives for them is sent after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from homing.errors import DiskFull, SubscriptionError
from homing.journal.events import Dropped
from homing.ports import Link
from homing.push.awaiting import Awaiting
from homing.push.doorway import CONFIRM_SECONDS, MAX_CONFIRMING
from homing.push.links import DISPATCHER
from homing.push.move import REFUSED_SECONDS, UNSURE, Move
from homing.push.recovery import MOVED
from homing.push.returning import Returning
from homing.push.sessions import Session
from homing.push.subscription import parse_fields
from homing.wire import relay

if TYPE_CHECKING:
    from homing.push.connector import Connector

RETRY_SECONDS: Final = 4.0
"""A move without an answer for so long begins anew, at the next beat."""
MOVES: Final = "moves"
MAX_LINGERING: Final = 16_384
"""Sessions that have moved and forward what still arrives, as long as a client may stay away: a matcher that found
them here may have been away itself. About a KB each; past this the one that moved first is forgotten."""
IN_FLIGHT: Final = 256
"""Publications of one session under way: a slow connector is not flooded."""
GONE: Final = "gone"
"""The code of a refusal: this connector has no session of that client."""


class Moves:
    """Sessions that come and sessions that go."""

    def __init__(self, connector: Connector) -> None:
        self.arrivals = 0  # sessions taken over, and handed over, since the start
        self.departures = 0
        self.waits = 0  # of sessions that came, for a connector that was away
        self.cut = 0  # when we last lost a dispatcher, and with it perhaps a claim: unix time in µs
        self._alone: float | None = None  # since when all dispatchers that we had are gone
        self._connector = connector
        # Ours, not answered by all; at most one a session.
        self._claims: dict[bytes, Awaiting] = {}
        self._claimed: dict[bytes, bytes] = {}  # client -> its claim's id
        self._adopting: dict[bytes, tuple[Link, bytes]] = {}  # a change of ours -> one of theirs
        self._moving: dict[bytes, Move] = {}  # client -> where to
        self._put_by: dict[bytes, Move] = {}  # of these, those that have no way
        self._due = math.inf  # when the first of them is tried again
        self._returning = Returning(connector.node, connector.new_id)
        self._told: dict[bytes, Move] = {}  # what tells of a subscription -> whose it is
        self._sent: dict[bytes, set[bytes]] = {}  # a publication under way -> for which clients

    def __len__(self) -> int:
        return len(self._moving)

    @property
    def waiting(self) -> int:
        """Sessions that wait for a connector that is away."""
        return sum([awaiting.waits for awaiting in self._claims.values()])

    # Coming

    def claim(self, session: Session, now: float) -> None:
        """A client was let in: nothing new is sent before its session is all here."""
        if session.move is not None:
            session.store.fetched.add(session.client)
            self._returning.back(session.move, now)
        elif session.client not in session.store.came:  # it has not stayed here
            session.store.fetched.discard(session.client)
        self.stay(session)
        links = self._dispatchers()
        if not links:
            session.store.came.pop(session.client, None)
        self._unclaim(session)
        claim = self._claim_of(session)
        awaiting = Awaiting(session, links, now, None if links else self._alone)
        self._claims[claim.message_id] = awaiting
        self._claimed[session.client] = claim.message_id
        self._returning.wait(awaiting, links, now)
        if awaiting.due > now:  # else all dispatchers have been gone for long
            session.hold()
            self._connector.port.later(awaiting.due, claim.message_id)
        image = claim.encode()
        for link in links:
            link.send(image)

    def _unclaim(self, session: Session) -> None:
        """Nobody waits for the answer to its claim any more."""
        identity = self._claimed.pop(session.client, None)
        if identity is not None:
            del self._claims[identity]
            self._connector.port.cancel(identity)

    def claim_again(self, link: Link, now: float) -> None:
        """A dispatcher that knows of nothing learns whose sessions are here, and tells if not."""
        self._alone = None
        for session in self._connector.durable.values():
            identity = self._claimed.get(session.client, b"")
            awaiting = self._claims.get(identity)
            if awaiting is not None:
                awaiting.ask(link, now)
                self._connector.port.later(awaiting.due, identity)
                if session.link is not None:  # it may have gone on without an answer
                    session.hold()
                link.send(self._claim_of(session, identity).encode())
            elif session.move is None:
                link.send(self._claim_of(session).encode())

    def announce(self, session: Session) -> None:
        """A client without a durable session was let in: elsewhere it is there no more."""
        image = self._claim_of(session).encode()
        for link in self._dispatchers():
            link.send(image)

    def _claim_of(self, session: Session, identity: bytes = b"") -> relay.Claim:
        identity, node = identity or self._connector.new_id(), self._connector.node
        return relay.Claim(identity, session.client, node, session.stamp, session.durable)

    def adopt(self, link: Link, change: relay.Subscribe, now: float) -> None:
        """What the client asked for at its former connector; what it asked for here is newer.

        That is told once more: it may be on its way to the matchers, and once we answer what they
        were told by the other ends.
        """
        connector, name = self._connector, change.name.decode("utf-8", "replace")
        session = connector.durable.get(change.client)
        if session is None or len(self._adopting) >= MAX_CONFIRMING:
            reason = "gone no such session" if session is None else "queue-full too many come"
            link.send(relay.Nak(change.message_id, reason, connector.node).encode())
            return
        if session.client in session.store.anew:
            link.send(relay.Ack(change.message_id).encode())
            return
        if session.move is not None and now - session.move.since < RETRY_SECONDS:
            # The client has gone on, and who tells us hears of it too: in force here it would bring what comes late.
            reason = "queue-full the client has gone on"
            link.send(relay.Nak(change.message_id, reason, connector.node).encode())
            return
        session.store.fetch(session.client)
        awaiting = self._claims.get(self._claimed.get(session.client, b""))
        # We may not have been there to end it when the client went.
        unended = name in session.subscriptions
        if awaiting is not None and unended and self._returning.note(session.client, now):
            self._returning.wait(awaiting, self._dispatchers(), now)
        fields = session.subscriptions.get(name, change.fields)
        try:
            ours = connector.subscribe(session, name, parse_fields(fields), now)
        except DiskFull as error:
            reason = f"queue-full {error}"
            link.send(relay.Nak(change.message_id, reason, connector.node).encode())
            return
        except SubscriptionError:
            link.send(relay.Ack(change.message_id).encode())
            return
        self._adopting[ours] = (link, change.message_id)
        connector.port.later(now + CONFIRM_SECONDS, ours)

    def confirmed(
        self, message_id: bytes, link: Link | None, now: float, away: Iterable[relay.Absence] = ()
    ) -> None:
        """A dispatcher says that something of ours is done, or (no link) its time is over."""
        if message_id in self._adopting:
            whom, theirs = self._adopting.pop(message_id)
            self._connector.port.cancel(message_id)
            answer: relay.Ack | relay.Nak = relay.Ack(theirs)
            if link is None:
                answer = relay.Nak(theirs, "queue-full not confirmed", self._connector.node)
            whom.send(answer.encode())
        awaiting = self._claims.get(message_id)
        if awaiting is not None and link is None:
            self._overdue(message_id, awaiting, now)
        elif awaiting is not None and link is not None:
            awaiting.heard(link, away, now)
            self._look(awaiting, now)
        self._owed_here(message_id, [now - one.milliseconds / 1000 for one in away], now)
        move = self._told.pop(message_id, None)
        if move is not None:
            move.told.discard(message_id)
            if message_id == move.ending:
                self._ended(move, away, now)
            self._settle(move, now)

    def _owed_here(self, question: bytes, since: list[float], now: float) -> None:
        """The matchers have sent what they owe those that are back, but for those that are away; it goes to the disk."""
        node = self._connector.node
        for client in self._returning.answered(question, not since):
            awaiting = self._claims.get(identity := self._claimed.get(client, b""))
            if awaiting is not None and since and awaiting.learn(node, max(since), now):
                self._look(awaiting, now)
            elif awaiting is not None:
                told = relay.HandedOver(identity, client, node, node)
                self._connector.after_all(told, now)

    def _ended(self, move: Move, away: Iterable[relay.Absence], now: float) -> None:
        """The matchers have heard that a session's subscriptions have ended, but for those that are away."""
        lately = min([one.milliseconds for one in away], default=None)
        move.owing = None if lately is None else now - lately / 1000
        if lately is None:
            move.ending = b""

    def _overdue(self, message_id: bytes, awaiting: Awaiting, now: float) -> None:
        session = awaiting.session
        coming = self._connector.is_storing(session.client, moved=True)
        if awaiting.overdue(len(session.early or ()), coming, now):
            session.store.fetch(session.client)  # the silent one may have it
            if awaiting.unasked:
                self._go_on(session, now)  # whoever comes is asked nevertheless
            else:
                self._answered(session, now)
        else:
            self._connector.port.later(awaiting.due, message_id)

    def handed_over(self, told: relay.HandedOver, now: float) -> None:
        """A former connector has sent all it had; it may have been away when it was asked."""
        awaiting = self._claims.get(told.message_id)
        if awaiting is not None:
            awaiting.handed_over(told.node)
            self._look(awaiting, now)

    def _look(self, awaiting: Awaiting, now: float) -> None:
        """Whether all is here that can be, and what is not."""
        session = awaiting.session
        if awaiting.done and not self._connector.is_storing(session.client, moved=True):
            self._answered(session, now)
        elif awaiting.waits:
            self._connector.port.later(awaiting.due, self._claimed[session.client])
            if not awaiting.told:
                self.waits += 1
                awaiting.tell(now)

    def came(self, session: Session, now: float) -> bool:
        """Something from a former connector is on disk; whether nothing more is awaited, and all of it sent."""
        awaiting = self._claims.get(self._claimed.get(session.client, b""))
        if awaiting is None or not awaiting.done:
            return False
        self._look(awaiting, now)
        return session.early is None

    def _answered(self, session: Session, now: float) -> None:
        self._unclaim(session)
        self._go_on(session, now)

    def _go_on(self, session: Session, now: float) -> None:
        self.arrivals += bool(session.early)
        session.release()
        self._connector.delivery.pump(session, now)

    def left(self, link: Link, now: float) -> None:
        """A dispatcher is gone: it will answer no claims."""
        self.cut = int(self._connector.wall() * 1e6)
        if not self._dispatchers():
            self._alone = now
        for identity, awaiting in list(self._claims.items()):
            if link in awaiting.links:
                awaiting.session.store.fetch(awaiting.session.client)
                awaiting.lost(link, now)
                self._connector.port.later(awaiting.due, identity)
                self._look(awaiting, now)
        for move in self._moving.values():
            if move.link is link and (move.settled is None or move.session.waiting):
                self._put_off(move, now)

    # Going

    def claimed(self, link: Link, claim: relay.Claim, now: float) -> None:
        """Another connector has the client; it gets the session if it is the later one."""
        node = self._connector.node
        session = self._connector.sessions.get(claim.client)
        if session is not None and (claim.connector == node or (session.stamp, node) > claim.rank):
            session = None  # it is ours
        if session is not None and session.link is not None:
            self._connector.doorway.dismiss(session.link, "replaced", now)
        if not claim.durable:
            return
        if session is None or not session.durable:
            link.send(relay.Ack(claim.message_id).encode())
            return
        move = session.move
        if move is None or move.to != claim.connector:
            self.stay(session)
            session.release()
            before, move = move, Move(session, claim.connector, claim.rank[0], now)
            move.ending = before.ending if before is not None else move.ending
            if self._returning.forget(session.client):
                move.ending = UNSURE
            session.move = self._moving[session.client] = move
            self.departures += 1
        asked = move.claims.get(link)
        move.claims[link] = claim.message_id
        if asked is not None and asked != claim.message_id:
            link.send(relay.Ack(asked).encode())
        # Who claims is there, though not everybody may know the way yet.
        move.pause = REFUSED_SECONDS
        self._begin(move, now)

    def _begin(self, move: Move, now: float) -> None:
        """Tell and send all of it, from the start."""
        move.tried = now
        move.owing = None
        self._put_by.pop(move.session.client, None)
        self._recall(move)
        move.link = next(iter(self._dispatchers()), None)
        if move.link is None:
            self._put_off(move, now)
            return
        session = move.session
        for name, fields in session.subscriptions.items():
            identity = self._connector.new_id()
            move.told.add(identity)
            self._told[identity] = move
            told = relay.Subscribe(identity, session.client, move.to, name.encode(), fields)
            move.link.send(told.encode())
        self.forward(session)
        self._settle(move, now)

    def stored(self, session: Session, now: float) -> None:
        """A publication for a session that is going is on disk."""
        self.forward(session)
        move = session.move
        if move is not None and (move.claims or move.handing or move.settled is None):
            self._settle(move, now)

    def forward(self, session: Session) -> None:
        """Send what waits to where the session is going."""
        move = session.move
        if move is None or move.link is None:
            return
        place = session.client + move.to
        for identity, shared in session.waiting.items():
            if len(move.sent) >= IN_FLIGHT:
                return
            if identity not in move.sent:
                first = not move.sent
                move.sent[identity] = None
                self._sent.setdefault(identity, set()).add(session.client)
                payload, attributes = shared.payload, shared.attributes
                push = relay.Push(
                    identity, payload, place, attributes, first=first, moved=move.number
                )
                move.link.send(push.encode())

    def taken(self, ack: relay.Ack, now: float) -> None:
        """The new connector has a publication on disk."""
        move = self._moving.get(ack.clients)
        if move is None or move.to != ack.connector or ack.message_id not in move.sent:
            return
        if ack.moved not in (0, move.number):
            return
        session = move.session
        del move.sent[ack.message_id]
        move.pause = REFUSED_SECONDS
        self._arrived(ack.message_id, session.client)
        if session.hand_over(ack.message_id):
            # The client may come back before it got this, and this with it.
            self._connector.delivery.recent.forget(ack.message_id, session.client)
            self._connector.tell(Dropped(now, ack.message_id, session.client, MOVED))
        self.forward(session)
        self._settle(move, now)

    def refused(self, nak: relay.Nak, now: float) -> None:
        """Not now: begin anew later. No such session: it stays here until it is claimed again."""
        told = self._told.get(nak.message_id)
        # A publication may be on its way for several, of whom one has no session there.
        meant = [
            client
            for client in self._sent.get(nak.message_id, ())
            if nak.clients in (b"", client) and nak.moved in (0, self._moving[client].number)
        ]
        moves = [self._moving[client] for client in meant]
        for move in [*moves, told] if told is not None else moves:
            if move.to == nak.connector or not nak.connector:
                if nak.reason.startswith(GONE):
                    move.link = None
                    self.stay(move.session)
                elif move.link is not None:
                    self._put_off(move, now)

    def _put_off(self, move: Move, now: float) -> None:
        """There is no way: try again soon, and then less and less often."""
        move.link = None
        move.again = now + move.pause
        move.pause = min(2 * move.pause, RETRY_SECONDS)
        self._put_by[move.session.client] = move
        self._wake_at(move.again)

    def _wake_at(self, due: float) -> None:
        if due < self._due:
            self._due = due
            self._connector.port.later(due, MOVES)

    def wake(self, now: float) -> None:
        """Try again what had no way."""
        self._due = math.inf
        for move in [move for move in self._put_by.values() if move.again <= now]:
            self._begin(move, now)
        self._wake_at(min([move.again for move in self._put_by.values()], default=math.inf))

    def _arrived(self, message_id: bytes, client: bytes) -> None:
        clients = self._sent[message_id]
        clients.discard(client)
        if not clients:
            del self._sent[message_id]

    def _recall(self, move: Move) -> None:
        """Whatever is under way counts no more."""
        for identity in move.sent:
            self._arrived(identity, move.session.client)
        for identity in move.told:
            del self._told[identity]
        move.sent.clear()
        move.told.clear()

    def _settle(self, move: Move, now: float) -> None:
        """All is there: its subscriptions end here, and whoever waits for it is told.

        Not before the matchers say that they have ended: what they found until then is here before that is, and goes too.
        Where some are away the answer says so, and that all is handed over follows when they have been there.
        """
        session = move.session
        if move.sent or move.told or session.waiting:
            return
        try:
            # It may have begun anew before the answer to the last end came.
            if session.subscriptions or (move.ending and move.owing is None):
                move.ending = self._connector.unsubscribe(session, "", now)
                move.told.add(move.ending)
                self._told[move.ending] = move
                return
        except DiskFull:
            return  # at the next beat again
        if self._connector.is_storing(session.client):
            return  # what was found before is here, but not on disk: it goes first
        move.settled = now
        move.handing.update(move.claims)
        node = self._connector.node
        if move.owing is not None:
            self._tell_claims(move, (relay.Absence(node, int((now - move.owing) * 1000)),))
            return
        self._tell_claims(move)
        for link, identity in move.handing.items():
            link.send(relay.HandedOver(identity, session.client, move.to, node).encode())
        move.handing.clear()

    def _tell_claims(self, move: Move, away: tuple[relay.Absence, ...] = ()) -> None:
        for link, identity in move.claims.items():
            link.send(relay.Ack(identity, away=away).encode())
        move.claims.clear()

    def end_again(self, link: Link) -> None:
        """A matcher may be back: it is told which sessions have ended here, and sends before its answer what it owes them."""
        self._returning.ask([link])
        for move in [move for move in self._moving.values() if move.owing is not None]:
            move.told.add(move.ending)
            self._told[move.ending] = move
            ended = relay.Unsubscribe(move.ending, move.session.client, self._connector.node)
            link.send(ended.encode())

    def stay(self, session: Session) -> None:
        """It goes nowhere, or no longer there."""
        move = self._moving.pop(session.client, None)
        self._put_by.pop(session.client, None)
        session.move = None
        if move is not None:
            self._recall(move)
            self._tell_claims(move)

    def forget(self, session: Session) -> None:
        """The session is over."""
        session.store.forget(session.client)
        self._returning.forget(session.client)
        self.stay(session)
        self._unclaim(session)

    def beat(self, now: float) -> None:
        """Try again what got no answer; end what has long been elsewhere."""
        spare = len(self._moving) - MAX_LINGERING
        for move in list(self._moving.values()):
            if move.settled is not None and not move.session.waiting:
                if spare > 0 or now - move.settled > self._connector.store.limits.away:
                    self._connector.end(move.session, "moved", now)
                    spare -= 1
            elif now - move.tried > RETRY_SECONDS:
                self._begin(move, now)

    def _dispatchers(self) -> list[Link]:
        return [link for link, peer in self._connector.peers.items() if peer.role == DISPATCHER]
