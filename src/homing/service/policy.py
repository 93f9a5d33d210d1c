"""What a broker promises and where it stops, each limit with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """One service's promises and limits."""

    timeout: float = 60.0
    """Seconds from acceptance to an answer or a `timeout`: a client has given up long before."""
    absent_grace: float = 2.5
    """Seconds to wait for a service nobody serves before `no-service`: one heartbeat, so that a
    worker that restarts is not noticed. Dialects without a NAK wait the whole timeout."""
    at_most_once: bool = False
    """Never give a request to a second worker: the client hears `worker-lost` instead."""
    max_waiting: int = 1_000_000
    """Requests that may wait: with small bodies about 400 MB, the most a broker should hold."""
    max_waiting_bytes: int = 256 << 20
    """Bytes of data that may wait: keeps a queue of large bodies from taking the machine."""
    max_attempts: int = 10
    """Workers that may die with the same request before it is taken for their murderer."""


@dataclass(frozen=True, slots=True)
class BrokerPolicy:
    """The broker's own promises and limits, and those of its services."""

    heartbeat: float = 2.5
    """Seconds between heartbeats, both directions."""
    idle_beats: float = 500.0
    """Heartbeats a second, in all, that idle workers should send: beyond, those that can are asked to beat more slowly. To read one and
    to answer it takes some 20 µs."""
    liveness: int = 3
    """Heartbeats that may be missed: one for a lost packet, one for a pause, one for luck."""
    max_body: int = 16 << 20
    """Bytes of data in one message: larger things belong in a store, their name in a message."""
    max_services: int = 10_000
    """Names a broker keeps queues for: clients make them up, so there must be an end."""
    max_credit: int = 65_536
    """Requests one worker may hold, whatever it announces: what one death puts back."""
    max_workers: int = 100_000
    """Workers at one broker: their heartbeats alone may be 40 000 messages a second."""
    max_client_requests: int = 500_000
    """Requests of one client under way: half a queue, so that no client fills what all share."""
    max_waiting_bytes: int = 512 << 20
    """Bytes of data waiting in all queues together: the broker stays below 1 GiB."""
    drain: float = 8.0
    """Seconds that what is under way has left after SIGTERM: supervisors kill after 10."""
    refuse_unjournaled: bool = True
    """While the journal's disk is full: whether new requests are refused, or served unrecorded."""
    default: ServicePolicy = ServicePolicy()
    services: Mapping[bytes, ServicePolicy] = field(default_factory=dict)

    @property
    def grain(self) -> float:
        """Seconds between ticks: deadlines want them as fine where heartbeats are slow."""
        return min(max(self.heartbeat / 25, 0.01), 0.1)

    @property
    def expiry(self) -> float:
        """Seconds of silence after which a worker or peer is taken for dead."""
        return self.heartbeat * self.liveness

    def of(self, service: bytes) -> ServicePolicy:
        """The policy of a service."""
        return self.services.get(service, self.default)
