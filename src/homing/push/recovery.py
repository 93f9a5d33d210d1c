"""A connector's durable sessions as journal events: read back after a restart, or told anew.

A checkpoint is the list of events that make the present state; a restart reads it and then
only what was journaled since.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from homing.push.gaps import read_lost
from homing.push.recent import Recent
from homing.push.sessions import Session, Store
from homing.push.shared import Shared

ENDED = b"ended"
"""The reason in the SessionClosed of a session that is over, not only its connection."""
MOVED = b"moved"
"""The reason in the Dropped of what another connector owes now."""


def recover(events: Iterable[object], recent: Recent, store: Store) -> dict[bytes, Session]:
    """The sessions as the events left them; `recent` learns what they were sent."""
    sessions: dict[bytes, Session] = {}
    arrival = 0
    queued: set[bytes] = set()  # ids of what some durable session was owed
    for event in events:
        if isinstance(event, SessionOpened):
            _opened(sessions, event, store)
        elif isinstance(event, SessionClosed):
            if event.reason == ENDED:
                _ended(sessions, event.client)
        elif isinstance(event, SubscriptionSet | SubscriptionRemoved):
            session = sessions.get(event.client)
            if session is not None:
                _subscription(session, event)
        elif isinstance(event, Delivered | Redelivered):
            if isinstance(event, Delivered):
                recent.add(event.id, recent.fresh(event.id, event.clients))
            for session in _named(sessions, event.clients) if event.id in queued else ():
                if event.id in session.waiting:
                    session.note_sent((event.id,))
        elif isinstance(event, DeliveryQueued):
            recent.add(event.id, recent.fresh(event.id, event.clients))
            arrival += 1
            shared = Shared(event.id, event.payload, event.attrs, arrival)
            queued.add(event.id)
            for session in _named(sessions, event.clients):
                session.take(shared)  # the limits' doing is told by what follows
        elif isinstance(event, Acknowledged):
            for session in _named(sessions, event.clients):
                session.acknowledge(event.id)
        elif isinstance(event, Dropped):
            _dropped(sessions, event)
            if event.reason == MOVED:
                recent.forget(event.id, event.clients)
    for session in sessions.values():
        session.mixed = True  # nobody knows which of it other connectors sent
    return sessions


def _dropped(sessions: dict[bytes, Session], event: Dropped) -> None:
    lost = read_lost(event.reason)
    for session in _named(sessions, event.clients):
        if lost is not None:
            session.gaps = {**session.gaps, event.id: lost}
        elif event.reason == MOVED:
            session.hand_over(event.id)
        else:
            session.drop(event.id)


def checkpoint(
    node: bytes,
    sessions: Iterable[Session],
    storing: Iterable[tuple[Shared, bytes]],
    recent: Recent,
) -> list[Event]:
    """The events that `recover` makes this state of; `storing` is owed but not yet durable."""
    sessions = list(sessions)
    events: list[Event] = [Delivered(0.0, identity, listed) for identity, listed in recent]
    owed: dict[bytes, tuple[Shared, list[bytes]]] = {}
    for session in sessions:
        events.append(SessionOpened(0.0, session.client, durable=True))
        events += [
            SubscriptionSet(0.0, session.client, node, name.encode(), fields)
            for name, fields in session.subscriptions.items()
        ]
        early = session.early.values() if session.early else ()
        for shared in (*session.unacked.values(), *early, *session.waiting.values()):
            owed.setdefault(shared.message_id, (shared, []))[1].append(session.client)
    for shared, clients in storing:
        owed.setdefault(shared.message_id, (shared, []))[1].append(clients)
    events += [
        DeliveryQueued(0.0, one.message_id, b"".join(clients), one.attributes, one.payload)
        for one, clients in sorted(owed.values(), key=lambda pair: pair[0].arrival)
    ]
    for session in sessions:
        sent = (*session.unacked, *session.before)
        events += [Redelivered(0.0, identity, session.client) for identity in sent]
        events += [
            Dropped(0.0, identity, session.client, lost.told())
            for identity, lost in session.gaps.items()
        ]
    return events


def _opened(sessions: dict[bytes, Session], event: SessionOpened, store: Store) -> None:
    if not event.durable:
        _ended(sessions, event.client)
    elif event.client not in sessions:
        sessions[event.client] = Session(event.client, True, "spill", store)


def _ended(sessions: dict[bytes, Session], client: bytes) -> None:
    session = sessions.pop(client, None)
    if session is not None:
        session.clear()


def _subscription(session: Session, event: SubscriptionSet | SubscriptionRemoved) -> None:
    name = event.name.decode()
    if isinstance(event, SubscriptionSet):
        session.subscribe(name, event.fields)
        return
    for gone in [name] if name else list(session.subscriptions):
        session.unsubscribe(gone)


def _named(sessions: dict[bytes, Session], clients: bytes) -> list[Session]:
    ids = [clients[at : at + ID_BYTES] for at in range(0, len(clients), ID_BYTES)]
    return [sessions[client] for client in ids if client in sessions]
