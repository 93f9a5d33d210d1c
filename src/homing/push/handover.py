"""What a matcher still owes, and over which dispatcher each connector is reached.

OwingRole is what a matcher and whoever stands in for one have in common towards dispatchers.

A publication is owed to every connector concerned until that one has taken it over. It
goes to the dispatcher that owns the connector, else to any, which redirects it. A connector
keeps its way while anything is owed to it, so that nothing overtakes; when the way is lost
all that is owed goes, in order, over another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from homing.errors import Malformed
from homing.ids import ID_BYTES, NODE_ID_BYTES
from homing.journal.events import Dropped
from homing.ports import Link
from homing.push.eras import Era, Eras
from homing.push.links import PacketRole
from homing.push.outbox import Outbox, Parcel
from homing.push.places import PLACE_BYTES, places
from homing.wire import relay
from homing.wire.assembly import MAX_MESSAGE
from homing.wire.publish import Publish

PARCEL_CLIENTS: Final = 10_000
"""Clients in one parcel: acknowledged together, so neither one by one nor all at once."""
MAX_PUBLICATION: Final = MAX_MESSAGE - (64 << 10)
"""Payload and attributes: the rest of a message is room for a list of 3 000 clients."""
RETRY: Final = 0.25
"""Seconds before a connector whose parcels were refused is tried again."""
_NEVER: Final = frozenset(("malformed", "too-large"))
"""Refusals that no retry can change."""
_MARGIN: Final = 1 << 12
"""Item headers of the longest message: 3 bytes in every packet of 2000, and the ids."""


class Handover:
    """Outboxes by connector, dispatchers by link, publications by what is left of them."""

    def __init__(
        self,
        done: Callable[[bytes], None],
        must_wait: Callable[[bytes, int], bool] = lambda connector, era: False,
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`done(message_id)`: every connector concerned has taken it over.

        `must_wait(connector, era)`: another matcher goes before what we took in that era; `retry` comes
        when it has gone.
        `caught_up()`: a connector is no longer in `late`, or owed nothing any more of an era.
        """
        self._done = done
        self._must_wait = must_wait
        self._caught_up = caught_up
        self.eras = Eras()
        # Connector -> the newest publication it is owed that its publisher believes delivered.
        self.late: dict[bytes, bytes] = {}
        self._owed: dict[bytes, int] = {}  # publication -> parcels not taken over
        self._outboxes: dict[bytes, Outbox] = {}
        self._owners: dict[bytes, Link] = {}  # connector -> dispatcher
        self._dispatchers: dict[Link, None] = {}
        # Connector -> answers to it, each behind the newest parcel that it was owed.
        self._behind: dict[bytes, list[tuple[Parcel, Link, bytes]]] = {}

    def __len__(self) -> int:
        """Publications owed."""
        return len(self._owed)

    @property
    def held(self) -> int:
        """What they hold of memory, shared payloads counted once per connector."""
        return sum([outbox.held for outbox in self._outboxes.values()])

    # Publications

    def owe(
        self, publication: Publish, clients: Mapping[bytes, bytes], listed: bytes = b""
    ) -> None:
        """Owe it to every connector concerned, and send it: once per dispatcher if it fits.

        `listed`: the same clients as places, where the caller has them.
        """
        room = _room(publication)
        if listed and len(clients) == 1 and len(listed) <= room * PLACE_BYTES:
            self._owe_one(publication, *next(iter(clients.items())), listed)
            return
        leaving: dict[Link, list[bytes]] = {}
        owed = 0
        for connector, ids in clients.items():
            outbox = self._outbox(connector)
            for at in range(0, len(ids), room * ID_BYTES):
                part = ids[at : at + room * ID_BYTES]
                outbox.add(_parcel(publication, part, self.eras.current))
                owed += 1
                if outbox.link is not None and not outbox.stalled:
                    leaving.setdefault(outbox.link, []).append(places(part, connector))
        if owed:
            self._owed[publication.message_id] = owed
        else:
            self._done(publication.message_id)
        for link, lists in leaving.items():
            _send(link, publication, lists, room * PLACE_BYTES)

    def _owe_one(self, publication: Publish, connector: bytes, ids: bytes, listed: bytes) -> None:
        """What most publications need: one connector, one message."""
        outbox = self._outbox(connector)
        outbox.add(_parcel(publication, ids, self.eras.current))
        identity = publication.message_id
        self._owed[identity] = 1
        if outbox.link is not None and not outbox.stalled:
            push = relay.Push(identity, publication.payload, listed, publication.attributes)
            outbox.link.send(push.encode())

    def acked(self, message_id: bytes, clients: bytes, connector: bytes) -> None:
        """A connector has taken a parcel over."""
        outbox = self._outboxes.get(connector)
        lowest = outbox.lowest if outbox is not None and connector in self.late else None
        if outbox is None or outbox.acked(message_id, clients) is None:
            return
        if not outbox:
            del self._outboxes[connector]  # the next publication may go a better way
        if connector in self._behind:
            self._answer(connector, outbox)
        if self.late.get(connector) == message_id and not outbox.owes(message_id):
            del self.late[connector]
            self._caught_up()
        elif lowest is not None and lowest is not outbox.lowest:
            self._caught_up()
        left = self._owed[message_id] - 1
        if left:
            self._owed[message_id] = left
        else:
            del self._owed[message_id]
            self._done(message_id)

    def answer_behind(self, connector: bytes, link: Link, answer: bytes) -> None:
        """Send it when the connector has all that it is owed now.

        What went the same way is there before it; what waits, or goes another way, may not be.
        """
        outbox = self._outboxes.get(connector)
        newest = outbox.newest if outbox is not None else None
        if outbox is None or newest is None or (outbox.link is link and not outbox.stalled):
            link.send(answer)
        else:
            self._behind.setdefault(connector, []).append((newest, link, answer))

    def _answer(self, connector: bytes, outbox: Outbox) -> None:
        waiting = self._behind.pop(connector)
        late = [one for one in waiting if outbox.has(one[0])]
        if late:
            self._behind[connector] = late
        for parcel, link, answer in waiting:
            if not outbox.has(parcel) and link in self._dispatchers:
                link.send(answer)

    def mark_late(self, message_id: bytes, clients: Mapping[bytes, bytes]) -> bool:
        """Its publisher is told that it is safe; whether the others must hear something before."""
        news = False
        for connector, ids in clients.items():
            outbox = self._outboxes.get(connector)
            parcel = outbox.find(message_id, ids) if outbox is not None else None
            if parcel is not None and parcel.era is not None:
                news |= connector not in self.late
                news |= self.eras.tell(parcel.era)
                self.late[connector] = message_id
        return news

    @property
    def lowest(self) -> list[int]:
        """Of each connector in `late` the oldest era of which it is owed something."""
        found = [self._outboxes[one].lowest for one in self.late]
        return [era.number if era is not None else 0 for era in found]

    def mark_all_late(self) -> None:
        """All of this was owed by an earlier life."""
        for connector, outbox in self._outboxes.items():
            self.late[connector] = [parcel.message_id for parcel in outbox][-1]
            self.eras.tell(self.eras.current)

    def give_up(self, message_id: bytes) -> bytes:
        """Nobody can ever take it: owe it no more. The clients that miss it."""
        missed = []
        for connector, outbox in list(self._outboxes.items()):
            for parcel in [one for one in outbox if one.message_id == message_id]:
                missed.append(parcel.clients)
                self.acked(message_id, parcel.clients, connector)
        return b"".join(missed)

    def abandon(self, connector: bytes) -> list[tuple[bytes, bytes]]:
        """A connector will not come again: publications and clients it is owed no more."""
        missed = [(one.message_id, one.clients) for one in self._outboxes.get(connector, ())]
        for message_id, clients in missed:
            self.acked(message_id, clients, connector)
        return missed

    def stall(self, connector: bytes) -> bool:
        """Refused for now: all for this connector waits. False if it waits already."""
        outbox = self._outboxes.get(connector)
        if outbox is not None:
            outbox.gone = -1
        if outbox is None or outbox.stalled:
            return False
        outbox.stalled = True
        return True

    def hold(self, connector: bytes) -> bool:
        """What comes next waits; what was sent need not go again. False if it waits already."""
        outbox = self._outboxes.get(connector)
        if outbox is None or outbox.stalled:
            return False
        newest = outbox.newest
        outbox.stalled = True
        outbox.gone = newest.era.place if newest is not None and newest.era is not None else -1
        return True

    def retry(self, connector: bytes) -> None:
        """Send what one connector has not taken over and may have, by the best way there is now."""
        outbox = self._outboxes.get(connector)
        if outbox is not None:
            outbox.stalled = False
            self._send_again(outbox)

    def remaining(self) -> list[tuple[Publish, bytes]]:
        """Every publication owed, oldest first, with the places that have not taken it over."""
        found: dict[bytes, tuple[Publish, list[bytes]]] = {}
        for connector, outbox in self._outboxes.items():
            for one in outbox:
                publication = Publish(one.attributes, one.payload, one.message_id)
                entry = found.setdefault(one.message_id, (publication, []))
                entry[1].append(places(one.clients, connector))
        return [(found[i][0], b"".join(found[i][1])) for i in self._owed if i in found]

    def numbers(self) -> dict[bytes, int]:
        """The eras of the publications owed."""
        parcels = [one for outbox in self._outboxes.values() for one in outbox]
        return {one.message_id: one.era.number for one in parcels if one.era is not None}

    # Dispatchers

    def joined(self, link: Link, connectors: bytes) -> None:
        """A dispatcher is there, or owns other connectors than before."""
        self._dispatchers[link] = None
        self._disown(link)
        for at in range(0, len(connectors), NODE_ID_BYTES):
            self._owners[connectors[at : at + NODE_ID_BYTES]] = link
        for outbox in self._outboxes.values():
            if outbox.link is None:
                self._send_again(outbox)

    def left(self, link: Link) -> None:
        """A dispatcher is gone: what it had not passed on goes another way."""
        self._dispatchers.pop(link, None)
        self._disown(link)
        for outbox in self._outboxes.values():
            if outbox.link is link:
                self._send_again(outbox)

    def reaches(self, connector: bytes) -> bool:
        """Whether some dispatcher says that it holds this connector."""
        return connector in self._owners

    def _disown(self, link: Link) -> None:
        for connector in [c for c, owner in self._owners.items() if owner is link]:
            del self._owners[connector]

    def _outbox(self, connector: bytes) -> Outbox:
        outbox = self._outboxes.get(connector)
        if outbox is None:
            outbox = self._outboxes[connector] = Outbox(connector)
            outbox.link = self._route(connector)
            outbox.stalled = self._must_wait(connector, self.eras.current.number)
        return outbox

    def _send_again(self, outbox: Outbox) -> None:
        """All that one connector has not taken over, in order, up to what must wait for another matcher."""
        way = self._route(outbox.connector)
        if way is not outbox.link:
            outbox.link, outbox.gone = way, -1
        if way is None or outbox.stalled:
            return
        begun, era = outbox.gone, None
        for number, parcel in enumerate(outbox):
            if parcel.era is not None and parcel.era is not era:
                if self._must_wait(outbox.connector, parcel.era.number):
                    outbox.stalled = True
                    return
                era = parcel.era
                outbox.gone = era.place
            if era is None or era.place > begun:
                way.send(_again(outbox.connector, parcel, not number))
        if era is not self.eras.current:  # what comes next is of another
            outbox.stalled = self._must_wait(outbox.connector, self.eras.current.number)

    def _route(self, connector: bytes) -> Link | None:
        owner = self._owners.get(connector)
        return owner if owner is not None else next(iter(self._dispatchers), None)


class OwingRole(PacketRole):
    """Base of whoever hears of subscriptions from dispatchers and owes them publications."""

    role = b"matcher"
    owed: Handover

    @abstractmethod
    def change(self, change: relay.Subscribe | relay.Unsubscribe, now: float) -> None:
        """A subscription is set or removed."""

    @abstractmethod
    def sync(self, link: Link, sync: relay.Sync, now: float) -> None:
        """A connector begins to tell all its subscriptions, or has told them."""

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        if isinstance(message, relay.Ack):
            self.owed.acked(message.message_id, message.clients, message.connector)
        elif isinstance(message, relay.Nak):
            self._refused(message, now)
        elif isinstance(message, relay.Sync):
            self.sync(link, message, now)
        elif isinstance(message, relay.Subscribe | relay.Unsubscribe):
            self.change(message, now)
            self.confirm(link, message)
        else:
            raise Malformed("a matcher takes acks and subscriptions from a dispatcher")

    def confirm(self, link: Link, change: relay.Subscribe | relay.Unsubscribe) -> None:
        """A change is in force."""
        link.send(relay.Ack(change.message_id).encode())

    def _refused(self, nak: relay.Nak, now: float) -> None:
        """Not now: all for that connector waits behind it. Not ever: it is dropped, and told."""
        if nak.connector:
            self.stall(nak.connector, now)
        elif nak.message_id and nak.reason.partition(" ")[0] in _NEVER:
            missed = self.owed.give_up(nak.message_id)
            if missed:
                self.tell(Dropped(now, nak.message_id, missed, nak.reason.encode()))

    def stall(self, connector: bytes, now: float) -> None:
        """Send nothing to a connector for a moment, then all again."""
        if self.owed.stall(connector):
            self.port.later(now + RETRY, connector)


def _room(publication: Publish) -> int:
    """How many clients fit beside it into one message."""
    left = MAX_MESSAGE - len(publication.payload) - len(publication.attributes)
    return max(1, min(PARCEL_CLIENTS, (left - _MARGIN) // PLACE_BYTES))


def _parcel(publication: Publish, clients: bytes, era: Era) -> Parcel:
    identity, payload, attributes = (
        publication.message_id,
        publication.payload,
        publication.attributes,
    )
    return Parcel(identity, payload, attributes, clients, era=era)


def _send(link: Link, publication: Publish, lists: list[bytes], most: int) -> None:
    """A publication to one dispatcher, in as few messages as fit; a list is never cut."""
    batch: list[bytes] = []
    size = 0
    for listed in [*lists, b""]:
        if batch and (not listed or size + len(listed) > most):
            link.send(
                relay.Push(
                    publication.message_id,
                    publication.payload,
                    b"".join(batch),
                    publication.attributes,
                ).encode()
            )
            batch, size = [], 0
        batch.append(listed)
        size += len(listed)


def _again(connector: bytes, parcel: Parcel, first: bool) -> bytes:
    listed = places(parcel.clients, connector)
    push = relay.Push(parcel.message_id, parcel.payload, listed, parcel.attributes, first=first)
    return push.encode()
