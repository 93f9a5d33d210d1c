"""A connector's durable sessions, read back from its journal after a restart."""

from __future__ import annotations

from collections.abc import Iterable

from homing.ids import ID_BYTES
from homing.journal.events import (
    Acknowledged,
    DeliveryQueued,
    Dropped,
    SessionClosed,
    SessionOpened,
    SubscriptionRemoved,
    SubscriptionSet,
)
from homing.push.recent import Recent
from homing.push.sessions import Session, Shared
from homing.push.subscription import parse_fields

ENDED = b"ended"
"""The reason in the SessionClosed of a session that is over, not only its connection."""


def recover(events: Iterable[object], recent: Recent) -> dict[bytes, Session]:
    """The sessions as the events left them; `recent` learns what they were sent."""
    sessions: dict[bytes, Session] = {}
    for event in events:
        if isinstance(event, SessionOpened):
            _opened(sessions, event)
        elif isinstance(event, SessionClosed):
            if event.reason == ENDED:
                sessions.pop(event.client, None)
        elif isinstance(event, SubscriptionSet | SubscriptionRemoved):
            session = sessions.get(event.client)
            if session is not None:
                _subscription(session, event)
        elif isinstance(event, DeliveryQueued):
            recent.add(event.id, event.clients)
            shared = Shared(event.id, event.payload, event.attrs)
            for session in _named(sessions, event.clients):
                session.owe(shared)
        elif isinstance(event, Acknowledged | Dropped):
            for session in _named(sessions, event.clients):
                session.acknowledge(event.id)
    return sessions


def _opened(sessions: dict[bytes, Session], event: SessionOpened) -> None:
    if not event.durable:
        sessions.pop(event.client, None)
    elif event.client not in sessions:
        sessions[event.client] = Session(event.client, True, "spill")


def _subscription(session: Session, event: SubscriptionSet | SubscriptionRemoved) -> None:
    name = event.name.decode()
    if isinstance(event, SubscriptionSet):
        session.subscribe(name, parse_fields(event.fields))
        return
    for gone in [name] if name else list(session.subscriptions):
        session.unsubscribe(gone)


def _named(sessions: dict[bytes, Session], clients: bytes) -> list[Session]:
    ids = [clients[at : at + ID_BYTES] for at in range(0, len(clients), ID_BYTES)]
    return [sessions[client] for client in ids if client in sessions]
