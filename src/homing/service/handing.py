"""Handing out: what a broker has to do finds who can do it.

Local workers come first, then workers for any service, then the peer with most free capacity. A
request leaves its queue only when somebody takes it, and ends here only if nobody wants its answer
any more. The invariant behind the short ways: as long as anything of a service waits, nobody idles
who could take it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from homing.service.federation import Federation, Peer
from homing.service.pending import DONE, HELD, NOT_YET, Holder, Pending
from homing.service.policy import BrokerPolicy
from homing.service.queues import Service
from homing.service.record import Record
from homing.service.worker_pool import Pool, Worker

LINE: Final = 8
"""Requests in line for a service at which time may be traded for fewer system calls (ADR 0016)."""
BUSY: Final = 8
"""Requests of a client, or in a worker's hands, beside which one more message may wait for the turns that
come at once: whoever gets it has enough to do until then (ADR 0018)."""
QUICK: Final = 0.02
"""Seconds that a peer may take for an answer and still be sent requests ahead: one that waits in its line
could be served elsewhere sooner by no more than that."""


class Handing:
    """Services, those who can serve them, and how requests get from the ones to the others."""

    def __init__(self, policy: BrokerPolicy, federation: Federation, record: Record) -> None:
        self.policy = policy
        self.federation = federation
        self.record = record
        self.services: dict[bytes, Service] = {}
        self.anyone = Pool()
        self.roster: dict[Worker, None] = {}
        self.generalists = 0  # workers here that serve any service
        self.live = 0  # requests that wait or are held
        self.waiting_bytes = 0
        # Who was given work and may have it still, until a tick looks: of what is answered quickly nothing is noted here.
        self.begun: dict[Holder, None] = {}
        self._hungry: OrderedDict[Service, None] = OrderedDict()

    def service(self, name: bytes) -> Service | None:
        """The service of that name, made when it is new; None when there are too many."""
        found = self.services.get(name)
        if found is None and len(self.services) < self.policy.max_services:
            found = self.services[name] = Service(name, self.policy.of(name))
        return found

    def served(self, service: Service) -> bool:
        """Whether anybody serves it: here by name, here by anyone, or at a peer."""
        return bool(service.workers or self.generalists or self.federation.knows(service.name))

    def _employ(self, pool: Pool, pending: Pending, now: float) -> Worker:
        """Give a request to the worker of a pool, which has one, that was used least recently."""
        worker = pool.take()
        assert worker is not None
        self._give(worker, pending, now)
        return worker

    def _repost(self, peer: Peer, pending: Pending, now: float) -> None:
        """Give one of our own clients' requests to a peer."""
        self.record.reposted(pending, peer, now)
        self._give(peer, pending, now)

    def _give(self, holder: Holder, pending: Pending, now: float) -> None:
        pending.state = HELD
        pending.holder = holder
        pending.handed = now
        pending.attempts += 1
        holder.hand(pending)

    def _put_back(self, pending: Pending) -> None:
        pending.parts = None
        pending.partials = 0
        pending.service.put_back(pending)
        self.waiting_bytes += pending.size
        self._hungry[pending.service] = None

    def pump(self, service: Service, now: float) -> None:
        """Hand out what waits as long as anybody can take it."""
        while service.waiting:
            pool = service.idle or self.anyone
            peer = None if pool else self.federation.choose(service.name)
            if not pool and peer is None:
                return
            if peer is None:
                pending = self._next(service, now)
                if pending is None:
                    return
                self.begun[self._employ(pool, pending, now)] = None
            else:
                pending = self._next_of_ours(service, now)
                if pending is None:
                    return
                self._repost(peer, pending, now)

    def pump_hungry(self, now: float) -> None:
        """Peers changed: see what of all that waits can go now."""
        for service in list(self._hungry):
            self.pump(service, now)

    def _next(self, service: Service, now: float) -> Pending | None:
        """The next waiting request whose asker is still there."""
        pending = service.take()
        if pending is not None and pending.asker.link is not None and service.waiting:
            self.waiting_bytes -= pending.size
            return pending
        return self._checked(service, pending, now)

    def _next_of_ours(self, service: Service, now: float) -> Pending | None:
        """The next that may go to a peer; reposts (ADR 0017) keep their places, for workers here."""
        pending = self._next(service, now)
        reposts: list[Pending] = []
        while pending is not None and pending.asker.origin:
            reposts.append(pending)
            pending = self._next(service, now)
        for repost in reversed(reposts):
            self._put_back(repost)
        return pending

    def _checked(self, service: Service, pending: Pending | None, now: float) -> Pending | None:
        """A request that was taken from its queue, or the next whose asker is still there."""
        while True:
            if not service.waiting:
                self._hungry.pop(service, None)
            if pending is None:
                return None
            self.waiting_bytes -= pending.size
            if pending.asker.link is not None:
                return pending
            self.record.refused(pending, b"client-gone", now)
            self._end(pending)
            pending = service.take()

    def _feed(self, now: float) -> None:
        """Give workers for any service what waits, the services taking turns."""
        while self._hungry and self.anyone:
            service = next(iter(self._hungry))
            pending = self._next(service, now)
            if pending is None:
                continue
            if service in self._hungry:
                self._hungry.move_to_end(service)
            self._employ(self.anyone, pending, now)

    def returned(self, peer: Peer, answered: Pending, now: float) -> None:
        """A peer has room again: for what waits, where no other peer has a claim to it."""
        service = answered.service
        quick = now - answered.handed < QUICK
        replaces = service.waiting and (quick if peer.ahead else peer is self.federation.only)
        # One for one: what is known of its capacity stays as it is.
        if not (replaces and peer.claims(service.name) and self._repost_next(peer, service, now)):
            if peer.ahead:
                peer.ahead -= 1
            else:
                peer.regain(service.name)
            if service.waiting:
                self.pump(service, now)
        if quick and service.waiting >= LINE and peer.may_go_ahead():
            self._send_ahead(peer, service, now)

    def _repost_next(self, peer: Peer, service: Service, now: float) -> bool:
        """Give a peer what waits next, whatever is known of its capacity."""
        pending = self._next_of_ours(service, now) if peer.link is not None else None
        if pending is None:
            return False
        if pending.attempts or pending.number != NOT_YET:
            self.record.reposted(pending, peer, now)
        else:
            self.record.reposts += 1
        pending.state = HELD
        pending.holder = peer
        pending.handed = now
        pending.attempts += 1
        peer.hand_next(pending)
        return True

    def _send_ahead(self, peer: Peer, service: Service, now: float) -> None:
        """One more than a peer has room for, to be there when a worker is free (ADR 0017)."""
        patient = now >= peer.patient_until
        # What runs once at most is lost with a peer in whose line it only waits.
        if patient and not service.policy.at_most_once and self._repost_next(peer, service, now):
            peer.ahead += 1

    def freed(self, worker: Worker, now: float) -> None:
        """A worker has room again: for what waits, or to idle."""
        pool = worker.pool
        if pool is None:
            return
        service = worker.service
        if service is not None and service.waiting:
            pending = service.take()
            if pending is not None and pending.asker.link is not None and service.waiting:
                self.waiting_bytes -= pending.size
            else:
                pending = self._checked(service, pending, now)
            if pending is not None:
                # One for one: its room stays as it is.
                pending.state = HELD
                pending.holder = worker
                pending.handed = now
                pending.attempts += 1
                worker.hand(pending)
                return
        pool.give_back(worker)
        if service is None and self._hungry:
            self._feed(now)

    def refuse(self, pending: Pending, reason: bytes, now: float) -> None:
        """End a request with a NAK."""
        self.record.refused(pending, reason, now)
        pending.asker.refuse(pending, reason)
        self._end(pending)

    def _end(self, pending: Pending) -> None:
        pending.state = DONE
        pending.service.live -= 1
        pending.asker.outstanding -= 1
        self.live -= 1
        pending.data = b""
        pending.parts = None
