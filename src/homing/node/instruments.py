"""homing's metrics: each declared once, with what it is read from.

A role and its host keep plain figures for themselves; nothing here touches a hot path. Names are
`homing_<room>_<what>`, counters end in `_total`; docs/reference/metrics.md is made from METRICS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import homing
from homing.clock import SystemClock
from homing.journal.writer import Journal
from homing.metrics import Metric, Registry, Sample
from homing.node.host import Host
from homing.push.connector import Connector
from homing.push.dispatcher import Dispatcher
from homing.push.matcher import Matcher
from homing.service.switch import Broker

BUILD = Metric("homing_build_info", "gauge", "", "Always 1; the version is a label.", ("version",))
LINKS = Metric("homing_node_links", "gauge", "links", "Links that exist, by plug.", ("plug",))
HELD = Metric("homing_node_held_bytes", "gauge", "bytes", "Kept for peers that do not take it.")
TURNED_AWAY = Metric(
    "homing_node_turned_away_total",
    "counter",
    "links",
    "Closed for who is there (key, password, name) or for what it sent.",
)

EVENTS = Metric("homing_journal_events_total", "counter", "events", "Events appended by this node.")
LAG = Metric("homing_journal_lag", "gauge", "events", "Appended and not yet durable.")
TROUBLE = Metric("homing_journal_trouble", "gauge", "", "1 while the disk takes nothing.")

ACCEPTED = Metric("homing_service_accepted_total", "counter", "requests", "Requests accepted.")
ANSWERED = Metric("homing_service_answered_total", "counter", "requests", "Requests answered.")
REFUSED = Metric(
    "homing_service_refused_total", "counter", "requests", "Requests refused, by code.", ("code",)
)
SENT_AWAY = Metric(
    "homing_service_workers_refused_total",
    "counter",
    "workers",
    "Workers sent away at their READY or CONNECT, by code.",
    ("code",),
)
REPOSTED = Metric("homing_service_reposted_total", "counter", "requests", "Handed to a peer.")
REQUEUED = Metric(
    "homing_service_requeued_total", "counter", "requests", "Back in the queue: holder lost."
)
ORPHANED = Metric(
    "homing_service_orphaned_total", "counter", "answers", "Late, repeated or forged answers."
)
MALFORMED = Metric("homing_service_malformed_total", "counter", "messages", "Without a meaning.")
UNWRITTEN = Metric(
    "homing_service_unwritten_total", "counter", "events", "Not journaled: the disk was full."
)
WAITING = Metric("homing_service_waiting", "gauge", "requests", "Requests that wait.", ("service",))
WAITING_BYTES = Metric(
    "homing_service_waiting_bytes", "gauge", "bytes", "Bodies that wait.", ("service",)
)
RUNNING = Metric(
    "homing_service_running", "gauge", "requests", "Requests with a worker or peer.", ("service",)
)
WORKERS = Metric("homing_service_workers", "gauge", "workers", "Workers known.", ("service",))
FREE = Metric("homing_service_free", "gauge", "requests", "What workers could take.", ("service",))
TIMES = Metric(
    "homing_service_request_seconds",
    "histogram",
    "seconds",
    "From acceptance to the answer.",
    ("service",),
)
PEER_UP = Metric(
    "homing_service_peer_up", "gauge", "", "1 while a peer is reached and heard of.", ("peer",)
)
PEER_HOLDS = Metric(
    "homing_service_peer_holds", "gauge", "requests", "Reposted and not answered.", ("peer",)
)
ROUTERS = Metric("homing_service_routers", "gauge", "processes", "Router processes that answer.")
UNDECIDED = Metric(
    "homing_service_undecided", "gauge", "messages", "Messages no router has decided on yet."
)

SUBSCRIPTIONS = Metric(
    "homing_push_subscriptions", "gauge", "subscriptions", "Subscriptions a matcher knows."
)
UNSETTLED = Metric(
    "homing_push_unsettled", "gauge", "publications", "Accepted, not yet handed over by a matcher."
)
PUBLICATIONS = Metric(
    "homing_push_publications_total", "counter", "publications", "Publications a matcher took."
)
SENT_ON = Metric(
    "homing_push_publishers_sent_on_total",
    "counter",
    "publishers",
    "Publishers a matcher sent to a less busy one.",
)
PUBLISH_TIMES = Metric(
    "homing_push_publish_seconds",
    "histogram",
    "seconds",
    "From taking a publication to its delivery by every connector concerned.",
)
PLAN_EPOCH = Metric("homing_push_plan_epoch", "gauge", "", "Epoch of the newest plan followed.")
TILES = Metric("homing_push_tiles", "gauge", "tiles", "Tiles a matcher can answer for.")
MOVING = Metric(
    "homing_push_tiles_moving", "gauge", "tiles", "Tiles a matcher is to hold and does not yet."
)
RING_EPOCH = Metric(
    "homing_push_ring_epoch", "gauge", "", "Grows whenever a matcher comes or goes."
)
RING = Metric("homing_push_ring_matchers", "gauge", "matchers", "Matchers on the ring.")
RING_SHARE = Metric("homing_push_ring_share", "gauge", "", "Of the ring, this matcher's part of 1.")
ASKED = Metric(
    "homing_push_asked_total", "counter", "questions", "Asked of other matchers, whom one is for."
)
TOLD = Metric("homing_push_told_total", "counter", "questions", "Answered for other matchers.")
SURVEYS = Metric(
    "homing_push_surveys", "gauge", "publications", "Taken, and not yet known whom they are for."
)
OWED = Metric(
    "homing_push_owed", "gauge", "parcels", "Not acknowledged by a connector.", ("connector",)
)
SESSIONS = Metric("homing_push_sessions", "gauge", "clients", "Sessions a connector keeps.")
CONNECTED = Metric("homing_push_connected", "gauge", "clients", "Subscribers connected now.")
UNDELIVERED = Metric(
    "homing_push_undelivered_bytes", "gauge", "bytes", "Kept for sessions: slow, away or unacked."
)
TAKEN_OVER = Metric(
    "homing_push_taken_over_total", "counter", "publications", "Publications a connector took over."
)
DELIVERIES = Metric(
    "homing_push_deliveries_total",
    "counter",
    "deliveries",
    "Pushed to a client for the first time.",
)
MOVES = Metric(
    "homing_push_session_moves_total",
    "counter",
    "sessions",
    "Durable sessions that followed their client to another connector, or came with it.",
    ("direction",),
)
SESSIONS_WAITING = Metric(
    "homing_push_sessions_waiting",
    "gauge",
    "clients",
    "Durable sessions that wait for a connector that is away and may hold something older.",
)
WAITS = Metric(
    "homing_push_session_waits_total",
    "counter",
    "sessions",
    "Durable sessions that had to wait so.",
)
REDELIVERIES = Metric(
    "homing_push_redeliveries_total", "counter", "deliveries", "Pushed to a client again."
)
ACKNOWLEDGED = Metric(
    "homing_push_acknowledged_total", "counter", "deliveries", "Acknowledged by clients."
)
DROPPED = Metric(
    "homing_push_dropped_total", "counter", "deliveries", "Will never reach the client."
)
SLOW = Metric("homing_push_slow", "gauge", "clients", "Connected clients that do not keep up.")

METRICS: tuple[Metric, ...] = tuple(one for one in list(globals().values()) if type(one) is Metric)


def watch_node(registry: Registry, host: Host) -> None:
    """What every node tells, whatever its role."""
    registry.gauge(BUILD, homing.__version__).value = 1  # samples of several nodes would add up
    registry.watch(lambda: _node(host))


def watch_role(registry: Registry, role: object) -> None:
    """What a role tells, whichever it is; one without figures tells nothing."""
    for kind, tell in _TELLERS.items():
        if isinstance(role, kind):
            registry.watch(partial(tell, role))


def _node(host: Host) -> Iterator[Sample]:
    for name, plug in host.plugs.items():
        yield Sample(LINKS, (name,), len(plug.links))
    yield Sample(HELD, (), host.held_bytes)
    yield Sample(TURNED_AWAY, (), host.turned_away)
    if isinstance(host.journal_writer, Journal):
        yield from _journal(host.journal_writer)


def _journal(writer: Journal) -> Iterator[Sample]:
    yield Sample(EVENTS, (), writer.number - writer.recovered.number)
    yield Sample(LAG, (), writer.number - writer.durable)
    yield Sample(TROUBLE, (), bool(writer.trouble))


def _broker(broker: Broker) -> Iterator[Sample]:
    record = broker.record
    yield Sample(ACCEPTED, (), record.accepts)
    yield Sample(ANSWERED, (), record.answers)
    yield Sample(REPOSTED, (), record.reposts)
    yield Sample(REQUEUED, (), record.requeues)
    yield Sample(ORPHANED, (), record.orphans)
    yield Sample(MALFORMED, (), record.malformed)
    yield Sample(UNWRITTEN, (), record.unwritten)
    for code, number in record.refusals.items():
        yield Sample(REFUSED, (_text(code),), number)
    for code, number in broker.denials.workers.items():
        yield Sample(SENT_AWAY, (_text(code),), number)
    for service in broker.core.services.values():
        labels = (_text(service.name),)
        yield Sample(WAITING, labels, service.waiting)
        yield Sample(WAITING_BYTES, labels, service.waiting_bytes)
        yield Sample(RUNNING, labels, service.live - service.waiting)
        yield Sample(WORKERS, labels, service.workers)
        yield Sample(FREE, labels, service.free)
        yield Sample(TIMES, labels, service.times.histogram())
    now = SystemClock.monotonic()
    for peer in broker.federation.peers.values():
        labels = (_text(peer.name),)
        yield Sample(PEER_UP, labels, peer.reached(now, broker.policy.expiry))
        yield Sample(PEER_HOLDS, labels, len(peer.held))
    pool = broker.pool
    yield Sample(ROUTERS, (), 0 if pool is None else pool.ready)
    yield Sample(UNDECIDED, (), 0 if pool is None else pool.open)


def _matcher(matcher: Matcher) -> Iterator[Sample]:
    yield Sample(SUBSCRIPTIONS, (), len(matcher.table))
    yield Sample(UNSETTLED, (), len(matcher.owed))
    share, ring = matcher.table.newest, matcher.ring
    yield Sample(PLAN_EPOCH, (), share.plan.epoch)
    yield Sample(TILES, (), len(share.held))
    yield Sample(MOVING, (), matcher.table.moving)
    yield Sample(RING_EPOCH, (), ring.epoch)
    yield Sample(RING, (), len(ring))
    yield Sample(RING_SHARE, (), ring.shares()[matcher.node.hex().encode()])
    yield Sample(ASKED, (), matcher.surveys.asks)
    yield Sample(TOLD, (), matcher.neighbours.answers)
    yield Sample(SURVEYS, (), len(matcher.surveys))
    yield Sample(PUBLICATIONS, (), matcher.intake.taken)
    yield Sample(SENT_ON, (), matcher.intake.balance.sent_on)
    yield Sample(PUBLISH_TIMES, (), matcher.intake.times)


def _dispatcher(dispatcher: Dispatcher) -> Iterator[Sample]:
    for connector, outbox in dispatcher.outboxes.items():
        yield Sample(OWED, (connector.hex(),), len(outbox))


def _connector(connector: Connector) -> Iterator[Sample]:
    sessions = connector.sessions.values()
    yield Sample(SESSIONS, (), len(sessions))
    yield Sample(CONNECTED, (), sum(session.link is not None for session in sessions))
    yield Sample(UNDELIVERED, (), connector.store.held)
    yield Sample(SLOW, (), len(connector.delivery.slow))
    tally = connector.delivery.tally
    yield Sample(TAKEN_OVER, (), tally.publications)
    yield Sample(DELIVERIES, (), tally.deliveries)
    yield Sample(REDELIVERIES, (), tally.redeliveries)
    yield Sample(MOVES, ("in",), connector.moves.arrivals)
    yield Sample(MOVES, ("out",), connector.moves.departures)
    yield Sample(SESSIONS_WAITING, (), connector.moves.waiting)
    yield Sample(WAITS, (), connector.moves.waits)
    yield Sample(ACKNOWLEDGED, (), tally.acks)
    yield Sample(DROPPED, (), tally.drops)


_TELLERS: dict[type, Callable[[Any], Iterator[Sample]]] = {
    Broker: _broker,
    Matcher: _matcher,
    Dispatcher: _dispatcher,
    Connector: _connector,
}


def _text(name: bytes) -> str:
    """A name as a label: any bytes may be asked for."""
    return name.decode("utf-8", "backslashreplace")
