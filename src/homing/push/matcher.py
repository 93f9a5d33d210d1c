"""The matcher: takes publications, finds whom they are for, hands them on.

A publication is journaled with its list of clients before anything else happens; once that
is durable it is handed to the dispatchers. From then on the matcher owes it: until every
connector has taken it over it stays in an outbox, and a matcher that starts again finds in
its journal what it still owes.

The index is a copy of what connectors hold: of all of it, or of the tiles that the placement plan
gives us (homing.push.holdings). For the rest, and until all of ours has been told, other matchers
are asked (homing.push.surveys, homing.push.neighbours).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from homing.errors import DiskFull, Malformed, SubscriptionError
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
from homing.push.handover import RETRY, Handover, OwingRole
from homing.push.holdings import Holdings, Standing, read_standing
from homing.push.intake import ACKS, HEARD, Intake
from homing.push.links import Peer, unnamed
from homing.push.neighbours import PLACE, SWEEP, Neighbours
from homing.push.placement import Plan
from homing.push.places import by_connector, node_ids
from homing.push.ring import Ring
from homing.push.surveys import SURVEYS, Surveys
from homing.push.table import Entry, Index
from homing.wire import publish, relay
from homing.wire.packet import Message

AWAY_SECONDS: Final = 24 * 3600.0
"""A connector that nobody has reached for longer is forgotten: its sessions have expired."""
MAX_CONNECTORS: Final = 10_000
"""Known at once; more are not waited for. A view of the fabric is held by every node."""
RING_PLUGS: Final = frozenset(("ring", "status"))


class Matcher(OwingRole):
    """A homing.ports.Role. Plugs: `publishers`, `status` (listen), `dispatchers`, `ring` (dial)."""

    dials = frozenset(("dispatchers", "ring"))

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        ids: Callable[[], bytes],
        make_index: Callable[[], Index],
        *,
        dispatchers: Sequence[str] | None,
        matchers: Sequence[str] = (),
        address: str = "",
        tokens: Sequence[bytes] = (),
        publish_tokens: Sequence[bytes] = (),
        recovered: Iterable[object] = (),
        plan: Plan | None = None,
        elsewhere: bool = False,
    ) -> None:
        """Of the others endpoints: dispatchers' (None: told later, with `meet`), matchers' status.

        `address`: our own, as they are told it.
        `elsewhere`: take publications, journal and acknowledge them; somebody else reads the
        journal and finds whom they are for (`homing pipeline live`).
        """
        super().__init__(port, node, wall, tokens)
        self.ids = ids
        self.elsewhere = elsewhere
        self.table = Holdings(node.hex(), make_index)
        self.owed = Handover(self._done, self._must_wait, self._caught_up)
        self.intake = Intake(self, publish_tokens)
        self.surveys = Surveys(self)
        self.neighbours = Neighbours(self, address)
        self._expected: set[bytes] | None = None  # dispatchers, where their ids are known
        self._syncing: dict[bytes, Link] = {}  # connector -> where its sync comes from
        self._told: dict[
            bytes, Link
        ] = {}  # connector -> where it has told all it has, and tells changes
        self._owned: dict[Link, set[bytes]] = {}  # dispatcher -> its connectors
        self._meeting: set[Link] = set()  # dispatchers that may own more than they have met yet
        self._seen: dict[bytes, float] = {}  # connector -> when it was last reachable
        self._now = 0.0  # of the call being served, for events told from inside
        self._recover(recovered)
        if plan is not None:
            self.table.follow(plan, {})
        self.dial("dispatchers", unnamed(dispatchers or ()))
        self.dial("ring", unnamed(matchers))
        if dispatchers is None:  # until `meet` nobody knows whom to wait for
            self._expected = {b""}
        self.place(None, 0.0)

    @property
    def ring(self) -> Ring:
        """The matchers that are there."""
        return self.neighbours.ring

    @property
    def ready(self) -> bool:
        """Whether we can answer for all that is ours."""
        return self.table.settled

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
            self._now = now
            self.owed.retry(key)
        elif key == ACKS:
            self.intake.wake(now)
        elif key == HEARD:
            self.intake.heard(now)
        elif key == SURVEYS:
            self.surveys.wake(now)
        elif key in (PLACE, SWEEP):
            self.neighbours.wake(key, now)
        else:
            super().wake(key, now)

    def journaled(self, number: int, now: float) -> None:
        self._now = now
        self.neighbours.journaled(number)
        self.intake.journaled(number, now)

    def beat(self, now: float) -> None:
        self.intake.beat(now)
        self.table.beat()
        self.neighbours.beat(now)
        for connector in self.table.connectors:
            self._seen.setdefault(connector, now)
        for owned in self._owned.values():
            self._seen.update(dict.fromkeys(owned, now))
        for connector in [one for one, at in self._seen.items() if now - at > AWAY_SECONDS]:
            del self._seen[connector]
            self._forget(connector, now)

    def _forget(self, connector: bytes, now: float) -> None:
        """A connector will not come again: nothing of it is known or owed any more."""
        self._now = now
        for entry in self.table.forget(connector):
            self.tell(SubscriptionRemoved(now, entry.client, entry.connector, entry.name))
        for message_id, clients in self.owed.abandon(connector):
            self.tell(Dropped(now, message_id, clients, b"expired"))
        self._settle(now)

    def taken(self, link: Link, message: Message, now: float) -> bool:
        return link.plug in RING_PLUGS and self.neighbours.taken(link, message, now)

    # Who is there

    def meet(
        self,
        dispatchers: Mapping[bytes, str],
        matchers: Mapping[bytes, str],
        alive: set[bytes],
        now: float,
    ) -> None:
        """Dial these, endpoints by id, from now on; of the dispatchers those `alive` count."""
        self._expected = alive.intersection(dispatchers)
        self.dial("dispatchers", dispatchers, now)
        self.dial("ring", matchers, now)
        self._settle(now)

    # The plan

    def place(self, ring: Ring | None, now: float) -> None:
        """Want what is ours now, and have it told to us."""
        there = set().union(*self._owned.values())
        if self.table.place(ring, there, self._is_informed()):
            self._ask_syncs()
        self._settle(now)

    def _ask_syncs(self) -> None:
        """Have all subscriptions told; dispatchers who join later do so without being asked."""
        for link in self._owned:
            link.send(relay.Sync(self.ids(), self.node, relay.SYNC_BEGIN).encode())

    def know(self, connectors: Iterable[bytes], now: float) -> None:
        """There are these connectors, whether we can reach them or not."""
        fresh = [one for one in connectors if one not in self.table.connectors]
        if len(self.table.connectors) + len(fresh) <= MAX_CONNECTORS and self.table.know(fresh):
            self._seen.update(dict.fromkeys(fresh, now))
            self.neighbours.announce()

    def tell_standing(self, now: float) -> int:
        """The journal learns what we hold, so that a later life trusts what it finds there.

        The number to wait for; 0: nothing is kept, or the disk is full.
        """
        with suppress(DiskFull):
            return self.port.journal(self.standing(self.owed.eras.current.number, now))
        return 0

    def standing(self, era: int, now: float = 0.0) -> RingChanged:
        """What we hold, with whom, and the era of what is taken from then on."""
        members = {*self.ring.names, *self.neighbours.awaited}
        return RingChanged(
            now, self.ring.epoch, self.table.standing(members, era, self.owed.eras.known)
        )

    def _is_informed(self) -> bool:
        """Whether every dispatcher there is has said which connectors it owns."""
        sure = self._owned.keys() - self._meeting
        if self._expected is None:
            return len(sure) >= len(self.dialled.get("dispatchers", ()))
        return self._expected <= {self.peers[link].node for link in sure}

    def _settle(self, now: float) -> None:
        if self.table.settle(self._is_informed()):
            self.tell_standing(now)
            self.neighbours.announce()
            self.neighbours.review(now)
            self.surveys.look(now)

    # Dispatchers

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        """A dispatcher is there, or owns other connectors than before."""
        if link.plug in RING_PLUGS:
            self.neighbours.joined(link, peer, now)
            return
        owned = set(node_ids(hello.connectors))
        before = self._owned.get(link, set())
        self._owned[link] = owned
        (self._meeting.add if hello.more else self._meeting.discard)(link)
        self.know(owned, now)
        for share in self.table.shares:
            share.await_connectors(owned - before)
        self._excuse(before - owned)
        self.owed.joined(link, hello.connectors)
        self._settle(now)

    def left(self, link: Link, peer: Peer, now: float) -> None:
        if link.plug in RING_PLUGS:
            self.neighbours.left(link, peer, now)
            return
        owned = self._owned.pop(link, set())
        self._meeting.discard(link)
        self._excuse(owned)
        self.owed.left(link)
        if any(share.gatherings for share in self.table.shares):
            self._ask_syncs()  # what broke off may be had another way
        self._settle(now)

    def _excuse(self, gone: set[bytes]) -> None:
        """Of a connector that is gone nothing can be told; the journal knows what it had."""
        unreachable = gone.difference(*self._owned.values())
        for connector in gone:
            self._told.pop(connector, None)
        broken = [one for one in gone if self._syncing.get(one) not in self._owned]
        for connector in broken:
            self._syncing.pop(connector, None)
        for share in self.table.shares:
            share.abort_syncs(broken)
            share.excuse(unreachable)

    def _must_wait(self, connector: bytes, era: int) -> bool:
        """Another matcher owes this connector something older: it goes first."""
        reachable, now = self.owed.reaches(connector), self._now
        waits = self.neighbours.precedence.must_wait(connector, now, reachable, era)
        if era and not waits:
            waits = self.neighbours.awaits(now)
        if waits:
            self.port.later(self._now + RETRY, connector)
        return waits

    def hold(self, connector: bytes, now: float) -> None:
        """What we take from now on may have to wait for another matcher."""
        if self.owed.hold(connector):
            self.port.later(now + RETRY, connector)

    def _caught_up(self) -> None:
        self.neighbours.announce()

    def _done(self, message_id: bytes) -> None:
        self.tell(PublicationDone(self._now, message_id))
        self.intake.done(message_id, self._now)

    # Subscriptions

    def change(self, change: relay.Subscribe | relay.Unsubscribe, now: float) -> None:
        client, connector, name = change.client, change.connector, change.name
        if isinstance(change, relay.Unsubscribe):
            if self.table.remove(client, connector, name):
                self.tell(SubscriptionRemoved(now, client, connector, name))
            return
        if change.moved and (connector in self._told or self.table.knows(client, connector, name)):
            return  # its own connector has told us, perhaps that it has ended since
        try:
            changed = self.table.set(client, connector, name, change.fields)
        except SubscriptionError as error:
            raise Malformed(str(error)) from error
        if change.moved:
            self.table.doubt(client, connector, name)
        if changed:  # the connector is the source: what a full disk loses it tells again
            self.tell(SubscriptionSet(now, client, connector, name, change.fields))

    def confirm(self, link: Link, change: relay.Subscribe | relay.Unsubscribe) -> None:
        """What was found for a subscription that has ended goes before the word that it has."""
        if isinstance(change, relay.Unsubscribe):
            answer = relay.Ack(change.message_id).encode()
            self.intake.answer_behind(change.connector, link, answer)
        else:
            super().confirm(link, change)

    def sync(self, link: Link, sync: relay.Sync, now: float) -> None:
        """While a connector changes hands two dispatchers may pass its syncs on: the later counts."""
        if sync.phase == relay.SYNC_BEGIN:
            self._syncing[sync.connector] = link
            self.table.begin_sync(sync.connector)
            return
        if self._syncing.get(sync.connector) is not link:
            return
        del self._syncing[sync.connector]
        self._told[sync.connector] = link
        for entry in self.table.end_sync(sync.connector):
            self.tell(SubscriptionRemoved(now, entry.client, entry.connector, entry.name))
        self._settle(now)

    # Recovery

    def checkpoint(self) -> list[Event]:
        """The events that make what we know and owe anew."""
        standing = self.standing(0)
        known: list[Event] = [
            SubscriptionSet(0.0, entry.client, entry.connector, entry.name, entry.fields)
            for entry in self.table
        ]
        return [standing, *known, *self.intake.checkpoint()]

    def _recover(self, events: Iterable[object]) -> None:
        """What earlier lives knew and owed."""
        accepted: dict[bytes, PublicationAccepted] = {}
        matched: dict[bytes, PublicationMatched] = {}
        entries: dict[tuple[bytes, bytes], Entry] = {}
        standing: Standing | None = None
        eras: dict[bytes, int] = {}
        for event in events:
            if isinstance(event, PublicationAccepted):
                accepted[event.id] = event
                if self.elsewhere:  # nothing else in this journal will tell of it
                    self.intake.remember(event.id, 0)
            elif isinstance(event, PublicationMatched):
                matched[event.id] = event
                eras[event.id] = standing.era if standing is not None else 0
                self.intake.remember(event.id, event.subscriptions)
            elif isinstance(event, PublicationDone):
                accepted.pop(event.id, None)
                matched.pop(event.id, None)
            elif isinstance(event, RingChanged):
                standing = read_standing(event.plan) or standing
            elif isinstance(event, SubscriptionSet | SubscriptionRemoved):
                _remember(entries, event)
        self.table.restore(standing, entries.values())
        for identity, one in accepted.items():
            if identity in matched:  # otherwise it was never acknowledged, and will come again
                publication = publish.Publish(one.attrs, one.payload, identity)
                places, count = matched[identity].clients, matched[identity].subscriptions
                self.owed.eras.resume(eras[identity])
                self.intake.taken_before(publication, places, count)
                self.owed.owe(publication, by_connector(places))
        self.owed.mark_all_late()
        if standing is not None:
            self.owed.eras.heard(standing.heard)
            self.owed.eras.resume(standing.era)  # what comes next is journaled behind it
            self.neighbours.expect(standing.members)


def _remember(
    entries: dict[tuple[bytes, bytes], Entry], event: SubscriptionSet | SubscriptionRemoved
) -> None:
    place = event.client + event.connector
    if isinstance(event, SubscriptionSet):
        entries[place, event.name] = Entry(place, event.name, event.fields)
    elif event.name:
        entries.pop((place, event.name), None)
    else:
        for key in [key for key in entries if key[0] == place]:
            del entries[key]
