"""homing's metrics: each declared once, with what it is read from.

A role and its host keep plain figures for themselves; nothing here touches a hot path. Names are
`homing_<room>_<what>`, counters end in `_total`; docs/reference/metrics.md is made from METRICS.
"""

from __future__ import annotations

from collections.abc import Iterator

import homing
from homing.journal.writer import Journal
from homing.metrics import Metric, Registry, Sample
from homing.node.host import Host
from homing.service.switch import Broker

BUILD = Metric("homing_build_info", "gauge", "", "Always 1; the version is a label.", ("version",))
LINKS = Metric("homing_node_links", "gauge", "links", "Links that exist, by plug.", ("plug",))
HELD = Metric("homing_node_held_bytes", "gauge", "bytes", "Kept for peers that do not take it.")

EVENTS = Metric("homing_journal_events_total", "counter", "events", "Events appended by this node.")
LAG = Metric("homing_journal_lag", "gauge", "events", "Appended and not yet durable.")
TROUBLE = Metric("homing_journal_trouble", "gauge", "", "1 while the disk takes nothing.")

ACCEPTED = Metric("homing_service_accepted_total", "counter", "requests", "Requests accepted.")
ANSWERED = Metric("homing_service_answered_total", "counter", "requests", "Requests answered.")
REFUSED = Metric(
    "homing_service_refused_total", "counter", "requests", "Requests refused, by code.", ("code",)
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
PEER_UP = Metric("homing_service_peer_up", "gauge", "", "1 while a peer is reached.", ("peer",))
PEER_HOLDS = Metric(
    "homing_service_peer_holds", "gauge", "requests", "Reposted and not answered.", ("peer",)
)

METRICS: tuple[Metric, ...] = tuple(one for one in list(globals().values()) if type(one) is Metric)


def watch_node(registry: Registry, host: Host) -> None:
    """What every node tells, whatever its role."""
    registry.watch(lambda: _node(host))


def watch_broker(registry: Registry, broker: Broker) -> None:
    """What a broker tells."""
    registry.watch(lambda: _broker(broker))


def _node(host: Host) -> Iterator[Sample]:
    yield Sample(BUILD, (homing.__version__,), 1)
    for name, plug in host.plugs.items():
        yield Sample(LINKS, (name,), len(plug.links))
    yield Sample(HELD, (), host.held_bytes)
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
    for service in broker.core.services.values():
        labels = (_text(service.name),)
        yield Sample(WAITING, labels, service.waiting)
        yield Sample(WAITING_BYTES, labels, service.waiting_bytes)
        yield Sample(RUNNING, labels, service.live - service.waiting)
        yield Sample(WORKERS, labels, service.workers)
        yield Sample(FREE, labels, service.free)
    for peer in broker.federation.peers.values():
        labels = (_text(peer.known_as),)
        yield Sample(PEER_UP, labels, peer.link is not None)
        yield Sample(PEER_HOLDS, labels, len(peer.held))


def _text(name: bytes) -> str:
    """A name as a label: any bytes may be asked for."""
    return name.decode("utf-8", "backslashreplace")
