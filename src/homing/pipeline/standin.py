"""A matcher whose matching is done by Spark: it hears of subscriptions and hands lists over.

To the dispatchers it is a matcher: it hears of every subscription, and owes each publication to
its connectors until they have taken it over. What it owes is in a journal of its own, content
and all (PublicationTaken): a driver that is killed sends from there what was not done, and
knows which publications of a repeated batch it has taken already.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from homing.errors import DiskFull, Malformed, QueueFull, SubscriptionError
from homing.ids import NODE_ID_BYTES
from homing.journal.events import (
    Event,
    PublicationDone,
    PublicationTaken,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.pipeline.register import Entry, Register
from homing.ports import Link, Port
from homing.push.handover import Handover, OwingRole
from homing.push.links import Peer
from homing.push.places import by_connector
from homing.wire import relay
from homing.wire.publish import Publish

MAX_OWED: Final = 100_000
"""Publications taken and not done; beyond it the stream waits, and its journal holds the rest."""
MAX_OWED_BYTES: Final = 512 << 20
"""The same in bytes, for large payloads."""
MAX_KNOWN: Final = 262_144
"""Publications remembered as taken: several micro-batches, of which one can come again."""


class StandIn(OwingRole):
    """A homing.ports.Role. Plug: `dispatchers` (dials)."""

    dials = frozenset(("dispatchers",))

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        *,
        dispatchers: Sequence[str],
        tokens: Sequence[bytes] = (),
        recovered: Iterable[object] = (),
    ) -> None:
        super().__init__(port, node, wall, tokens)
        self.register = Register()
        self.owed = Handover(self._done)
        self.ready = False
        self.takes = 0  # publications of this life
        self.safe = 0  # everything journaled up to this number is durable
        self._dispatchers = len(dispatchers)
        self._behind: dict[Link, set[bytes]] = {}  # dispatcher -> connectors it must still tell of
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._unsynced: deque[tuple[int, PublicationTaken]] = deque()
        self._now = 0.0
        self._recover(recovered)
        for endpoint in dispatchers:
            port.connect("dispatchers", endpoint)

    # Publications

    def hand(self, publication: Publish, places: bytes, matched: int, now: float) -> int:
        """Owe it to these places; the number to wait for, 0 if it was taken before.

        Raises QueueFull while too much is owed or the disk takes nothing.
        """
        self._now = now
        if publication.message_id in self._known:
            return 0
        if len(self.owed) >= MAX_OWED or self.owed.held >= MAX_OWED_BYTES:
            raise QueueFull("connectors are behind: too much waits for them")
        # What concerns nobody is only recorded; nothing of it will be sent.
        content = (publication.attributes, publication.payload) if places else (b"", b"")
        taken = PublicationTaken(now, publication.message_id, places, *content, matched)
        try:
            number = self.port.journal(taken)
        except DiskFull as error:
            raise QueueFull(f"the journal's disk is full: {error}") from error
        self.takes += 1
        self._remember(taken.id)
        self._unsynced.append((number, taken))
        return number

    def forget(self) -> None:
        """Take again what was taken before: a replay is meant to."""
        self._known.clear()

    def journaled(self, number: int, now: float) -> None:
        self._now = now
        self.safe = number
        while self._unsynced and self._unsynced[0][0] <= number:
            self._owe(self._unsynced.popleft()[1])

    def _owe(self, taken: PublicationTaken) -> None:
        publication = Publish(taken.attrs, taken.payload, taken.id)
        self.owed.owe(publication, by_connector(taken.clients))

    def _done(self, message_id: bytes) -> None:
        self.tell(PublicationDone(self._now, message_id))

    def _remember(self, message_id: bytes) -> None:
        self._known[message_id] = None
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    # homing.ports.Role

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self._now = now
        super().receive(link, message, now)

    def wake(self, key: Hashable, now: float) -> None:
        if isinstance(key, bytes):
            self.owed.retry(key)
        else:
            super().wake(key, now)

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        """A dispatcher is there, or owns other connectors than before."""
        owned = {
            hello.connectors[at : at + NODE_ID_BYTES]
            for at in range(0, len(hello.connectors), NODE_ID_BYTES)
        }
        self._behind[link] = self._behind.get(link, owned) & owned
        self.owed.joined(link, hello.connectors)
        self._look_ready()

    def left(self, link: Link, peer: Peer, now: float) -> None:
        self._behind.pop(link, None)
        self.owed.left(link)

    # Subscriptions

    def change(self, change: relay.Subscribe | relay.Unsubscribe, now: float) -> None:
        client, connector, name = change.client, change.connector, change.name
        if isinstance(change, relay.Unsubscribe):
            self._gone(self.register.remove(client + connector, name), now)
            return
        try:
            changed = self.register.put(client + connector, connector, name, change.fields)
        except SubscriptionError as error:
            raise Malformed(str(error)) from error
        if changed:
            self.tell(SubscriptionSet(now, client, connector, name, change.fields))

    def sync(self, link: Link, sync: relay.Sync, now: float) -> None:
        if sync.phase == relay.SYNC_BEGIN:
            self.register.begin_sync(sync.connector)
            return
        self._gone(self.register.end_sync(sync.connector), now)
        if link in self._behind:
            self._behind[link].discard(sync.connector)
            self._look_ready()

    def _gone(self, entries: Sequence[Entry], now: float) -> None:
        for entry in entries:
            client, connector = _split(entry.place)
            self.tell(SubscriptionRemoved(now, client, connector, entry.name))

    def _look_ready(self) -> None:
        """Once every dispatcher has told of every connector it owns; from then on for good."""
        known = len(self._behind) >= self._dispatchers and not any(self._behind.values())
        self.ready = self.ready or known

    # Recovery

    def checkpoint(self) -> list[Event]:
        """The events that make what we know and owe anew."""
        events: list[Event] = []
        for entry in self.register:
            client, connector = _split(entry.place)
            events.append(SubscriptionSet(0.0, client, connector, entry.name, entry.fields))
        owed = {
            publication.message_id: (publication, p) for publication, p in self.owed.remaining()
        }
        for identity in self._known:
            publication, places = owed.pop(identity, (Publish(b"", b"", identity), b""))
            content = publication.attributes, publication.payload
            events.append(PublicationTaken(0.0, identity, places, *content))
            if not places:
                events.append(PublicationDone(0.0, identity))
        for publication, places in owed.values():  # older than what is remembered
            content = publication.attributes, publication.payload
            events.append(PublicationTaken(0.0, publication.message_id, places, *content))
        return events + [taken for _, taken in self._unsynced]

    def _recover(self, events: Iterable[object]) -> None:
        """What earlier lives knew and owed."""
        owed: dict[bytes, PublicationTaken] = {}
        for event in events:
            if isinstance(event, PublicationTaken):
                owed[event.id] = event
                self._remember(event.id)
            elif isinstance(event, PublicationDone):
                owed.pop(event.id, None)
            elif isinstance(event, SubscriptionSet):
                place = event.client + event.connector
                self.register.put(place, event.connector, event.name, event.fields)
            elif isinstance(event, SubscriptionRemoved):
                self.register.remove(event.client + event.connector, event.name)
        for taken in owed.values():
            self._owe(taken)


def _split(place: bytes) -> tuple[bytes, bytes]:
    return place[:-NODE_ID_BYTES], place[-NODE_ID_BYTES:]
