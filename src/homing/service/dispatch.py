"""The dispatch core: every request gets a holder, waits, or is refused, and ends exactly once.

    take on ─ idle worker ──► held ──► answered            FINAL goes to the asker, DONE
       │  └── free peer ────► held ──► bounced             to the head of the queue again
       │                       ├─────► lost                likewise, or `worker-lost`
       └── nobody ─► waiting ──┴─────► due                 `timeout` or `no-service`, DONE

A request that timed out while held stays in its holder's `held`, DONE: the holder's late answer
frees its credit and goes nowhere. Who gets what is in homing.service.handing. Pure: no clocks, no
sockets; askers and holders do the sending.
"""

from __future__ import annotations

from typing import Final

from homing.service.deadlines import Deadlines
from homing.service.federation import LINE_OF_REPOSTS, Federation, Peer
from homing.service.handing import Handing
from homing.service.pending import DONE, HELD, NOT_YET, WAITING, Asker, Holder, Pending
from homing.service.policy import BrokerPolicy
from homing.service.queues import Service
from homing.service.record import Record
from homing.service.worker_pool import Worker
from homing.wire.frames import unpack
from homing.wire.mdp_fields import chained
from homing.wire.mdp_messages import Kind, Options

FINAL: Final = Kind.FINAL
PARTIAL: Final = Kind.PARTIAL
FAILED: Final = Kind.FAILED

MAX_FRESH: Final = 512
"""Requests since the last tick at which the next one comes early: everybody waits while their events are made, some 0.4 µs each."""
LONG_HEAD: Final = 9
"""Bytes of a long frame's flags and size: a body of exactly the limit is within it."""
TIME_IN_LINE: Final = 0.25
"""Seconds that a repost may stand in line: its turn should have come ten times over (ADR 0017)."""
REROUTABLE = (b"no-service", b"queue-full", b"shutting-down")
"""What a peer may say of a repost that another place could still serve."""
BEGUN: Final = b"worker-lost but it may run again"
"""What a peer says of a repost that one of its workers had: whether it runs again its origin decides."""
MAX_REASON: Final = 400
"""Bytes of a refusal that came from elsewhere: a line for people, and short enough for a task's header."""


class DispatchCore(Handing):
    """Every request under way at one broker: how it comes, is answered, and ends."""

    def __init__(self, policy: BrokerPolicy, federation: Federation, record: Record) -> None:
        super().__init__(policy, federation, record)
        self.draining = False
        self._turnover = 0  # of workers, and requests that came back from peers
        self.deadlines = Deadlines(policy.grain, self.begun)
        self._max_body = policy.max_body + LONG_HEAD
        self._max_client_requests = policy.max_client_requests
        self._max_waiting_bytes = policy.max_waiting_bytes
        self._peers = federation.peers

    @property
    def changes(self) -> int:
        """Grows with whatever may change what could be taken now."""
        record = self.record
        ended = record.answers + record.orphans + sum(record.refusals.values())
        return record.accepts + ended + record.requeues + self._turnover + self.draining

    # --- requests come ------------------------------------------------------------------------

    def take_on(
        self,
        asker: Asker,
        service: Service,
        data: bytes,
        envelope: bytes,
        options: Options | None,
        now: float,
        message_id: str = "",
    ) -> None:
        """A request for a known service that may be asked for, within the limits.

        Once accepted it ends in exactly one answer or refusal. Every request passes here: what a
        call of its own would say better is written out where most requests pass.
        """
        pending = Pending(asker, service, data, envelope, now, now + service.timeout)
        if message_id:
            pending.message_id = message_id
        if options is not None:
            self._wish(pending, options, now)
        if (
            (pending.size > self._max_body and self._is_too_large(data))
            or asker.outstanding >= self._max_client_requests
            or self.draining
        ):
            self._turn_away(pending, now)
            return
        record = self.record
        if not record.full:
            pending.number = NOT_YET
        elif not record.admits(pending):
            self.turn_away(pending, b"queue-full the journal's disk", now)
            return
        record.accepts += 1
        service.live += 1
        self.live += 1
        asker.outstanding += 1
        worker = service.idle.take()
        if worker is not None:  # as in _give
            pending.state = HELD
            pending.holder = worker
            pending.attempts = 1
            worker.hand(pending)
        elif not self._find(pending, now):
            return
        self.deadlines.fresh.append(pending)

    def tick_early(self, now: float) -> None:
        """Many were taken on at once: is there enough for a tick?"""
        if len(self.deadlines.fresh) >= MAX_FRESH:
            self.tick(now)

    def _wish(self, pending: Pending, options: Options, now: float) -> None:
        pending.priority = options.priority
        pending.streams = pending.streams or options.partials
        if options.timeout_ms:
            pending.deadline = pending.due = now + options.timeout_ms / 1000

    def _is_too_large(self, data: bytes) -> bool:
        """What several frames hold together, without their heads."""
        return sum(map(len, unpack(data))) > self.policy.max_body

    def _turn_away(self, pending: Pending, now: float) -> None:
        policy = self.policy
        if self.draining:
            self.turn_away(pending, b"shutting-down", now)
        elif pending.size > self._max_body and self._is_too_large(pending.data):
            self.turn_away(pending, b"too-large over %d bytes" % policy.max_body, now)
        else:
            self.turn_away(pending, b"queue-full of this client", now)

    def turn_away(self, pending: Pending, reason: bytes, now: float) -> None:
        """Refuse at the door: it was never taken on."""
        self.record.refused(pending, reason, now)
        pending.asker.refuse(pending, reason)

    def _find(self, pending: Pending, now: float) -> bool:
        """None of the service's own is idle: a worker for any, a peer, or the queue; False: refused."""
        if self.anyone:
            self._employ(self.anyone, pending, now)
            return True
        if self._peers and not pending.asker.origin:
            peer = self.federation.choose(pending.service.name)
            if peer is not None:
                self._repost(peer, pending, now)
                return True
        return self._wait(pending, now)

    def _wait(self, pending: Pending, now: float) -> bool:
        """Queue it, unless that breaks a limit, or it is a repost whose origin knows better places."""
        service, size = pending.service, pending.size
        policy = service.policy
        if pending.asker.origin and (
            service.waiting >= LINE_OF_REPOSTS * service.workers or not pending.asker.flows(now)
        ):
            self._refuse_repost(pending, now)
            return False
        waiting_bytes = self.waiting_bytes + size
        if (
            service.waiting >= policy.max_waiting
            or service.waiting_bytes + size > policy.max_waiting_bytes
            or waiting_bytes > self._max_waiting_bytes
        ):
            self.refuse(pending, b"queue-full %d wait" % service.waiting, now)
            return False
        if (
            not (service.workers or self.generalists)
            and pending.asker.hears_refusals
            and not self.federation.knows(service.name)
        ):
            pending.due = min(pending.deadline, now + policy.absent_grace)
        if pending.asker.origin:
            pending.due = min(pending.deadline, now + TIME_IN_LINE)
        service.put(pending)
        self.waiting_bytes = waiting_bytes
        if service.waiting == 1:
            self._hungry[service] = None
        return True

    def _refuse_repost(self, pending: Pending, now: float) -> None:
        if pending.service.workers:
            self.refuse(pending, b"queue-full no idle worker", now)
        else:
            self.refuse(pending, b"no-service", now)

    # --- holders ------------------------------------------------------------------------------

    def join(self, worker: Worker, service: Service | None, now: float) -> None:
        """A worker is ready: for a service, or (None) for any."""
        self._turnover += 1
        worker.service = service
        (self.anyone if service is None else service.idle).join(worker)
        self.roster[worker] = None
        if service is None:
            self.generalists += 1
            self._feed(now)
        else:
            service.workers += 1
            self.pump(service, now)
        self.record.joined(worker, now)

    def leave(self, worker: Worker, reason: bytes, now: float) -> None:
        """A worker is gone: what it held finds another one or is refused."""
        if worker.pool is None:
            return
        self._turnover += 1
        worker.pool.leave(worker)
        del self.roster[worker]
        if worker.service is None:
            self.generalists -= 1
        else:
            worker.service.workers -= 1
        self.record.left(worker, reason, now)
        self.lose_held(worker, now)
        if worker.service is not None and not worker.service.workers:
            self._send_home(worker.service, now)

    def _send_home(self, service: Service, now: float) -> None:
        """Nobody serves it here any more: reposts in line find another place from where they came."""
        for pending in service.line():
            if pending.asker.origin:
                self._expire(pending, b"no-service", now)

    def lose_held(self, holder: Holder, now: float) -> None:
        """Everything a holder had: back to the head, in order, or refused."""
        held, holder.held = holder.held, {}
        if isinstance(holder, Peer):
            holder.ahead = 0
        touched: dict[Service, None] = {}
        for pending in reversed(held.values()):
            if pending.state == HELD and pending.holder is holder:
                self._retry(pending, holder, now)
                touched[pending.service] = None
        for service in touched:
            self.pump(service, now)

    def overlong(self, worker: Worker, now: float) -> None:
        """Its answer is past the limits, as the next worker's would be: the one it had is refused.

        Of several nobody knows which it was.
        """
        held = [p for p in worker.held.values() if p.state == HELD and p.holder is worker]
        if len(held) == 1:
            self.refuse(held[0], b"too-large its answer", now)

    def _retry(self, pending: Pending, holder: Holder, now: float) -> None:
        policy = pending.service.policy
        told = pending.partials and pending.streams
        if policy.at_most_once or told or pending.attempts >= policy.max_attempts:
            self.refuse(pending, b"worker-lost after %d attempts" % pending.attempts, now)
        elif pending.asker.origin:
            self.refuse(pending, BEGUN, now)
        else:
            self.record.requeued(pending, holder, now)
            self._put_back(pending)

    # --- answers come -------------------------------------------------------------------------

    def finish(self, pending: Pending, data: bytes, now: float) -> None:
        """`answer` for what nearly all answers are: whole, and to a request that is under way.

        It was HELD by a holder that has let go of it, and is to be told `freed` or `returned`; no
        parts of an answer are kept.
        """
        service, asker = pending.service, pending.asker
        pending.ended = now
        asker.report(pending, FINAL, data)
        pending.answer_size = len(data)
        self.record.answers += 1
        if pending.number != NOT_YET:
            self.record.answered(pending)
        service.times.observe(now - pending.accepted)
        pending.state = DONE
        pending.data = b""
        service.live -= 1
        asker.outstanding -= 1
        self.live -= 1

    def answer(
        self,
        holder: Holder,
        address: bytes,
        service: bytes,
        kind: Kind,
        data: bytes,
        now: float,
        origin: bytes | None = None,
    ) -> None:
        """A holder's answer, or part of one; one that nobody waits for goes nowhere.

        `service` and `origin` must be those of the request, where the holder's dialect tells them.
        """
        pending = holder.held.get(address)
        if (
            pending is None
            or (service and service != pending.service.name)
            or (origin is not None and origin != pending.asker.origin and kind is not FAILED)
        ):
            self.record.orphaned(holder, service, now)
            return
        current = pending.state == HELD and pending.holder is holder
        if kind is PARTIAL:
            if current:
                self._part(pending, data, now)
            return
        del holder.held[address]
        if not current:
            self.record.orphaned(holder, service, now)
        elif kind is FINAL:
            if pending.parts is not None:
                data = bytes(pending.parts) + data
                pending.parts = None
            self.finish(pending, data, now)
        else:
            self.refuse(pending, data[:MAX_REASON] or b"failed", now)
        if isinstance(holder, Peer):
            self.returned(holder, pending, now)
        elif isinstance(holder, Worker):
            self.freed(holder, now)

    def _part(self, pending: Pending, data: bytes, now: float) -> None:
        pending.partials += 1
        if pending.streams:
            pending.asker.report(pending, PARTIAL, data)
            return
        if pending.parts is None:
            pending.parts = bytearray()
        pending.parts += chained(data)
        if len(pending.parts) > self.policy.max_body:
            self.refuse(pending, b"too-large the parts of its answer", now)

    def bounce(self, peer: Peer, address: bytes, reason: bytes, now: float) -> None:
        """B10: a peer could not serve a repost; try elsewhere while the deadline allows."""
        pending = peer.held.pop(address, None)
        if pending is None:
            return
        self._turnover += 1
        begun = reason == BEGUN
        elsewhere = begun or reason.split(b" ", 1)[0] in REROUTABLE
        if elsewhere:
            peer.bounced(now)
            if not begun:
                peer.forget_capacity(pending.service.name)
        if pending.state == HELD and pending.holder is peer:
            if elsewhere and now < pending.deadline:
                self._reroute(pending, peer, begun, now)
            else:
                self.refuse(pending, reason[:MAX_REASON], now)
        if not elsewhere:  # it was dealt with there: its place is free again
            self.returned(peer, pending, now)

    def _reroute(self, pending: Pending, peer: Peer, begun: bool, now: float) -> None:
        self.record.note(pending)
        if begun:
            self._retry(pending, peer, now)
        else:
            pending.attempts -= 1  # nobody died with it
            self._put_back(pending)
        self.pump(pending.service, now)

    # --- requests end -------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Have the journal told of what is new; refuse what is due."""
        self.record.gather(self.deadlines.fresh)
        for pending in self.deadlines.tick(now, self.live):
            self._due(pending, now)

    def _due(self, pending: Pending, now: float) -> None:
        if now >= pending.deadline:
            self._expire(pending, b"timeout after %.1f s" % (now - pending.accepted), now)
        elif pending.state == WAITING and not self.served(pending.service):
            self._expire(pending, b"no-service", now)
        elif pending.state == WAITING and pending.asker.origin:
            self._expire(pending, b"queue-full no idle worker", now)
        else:
            pending.due = pending.deadline
            self.deadlines.add(pending)

    def _expire(self, pending: Pending, reason: bytes, now: float) -> None:
        if pending.state == WAITING:
            self.waiting_bytes -= pending.size
            pending.service.drop(pending)
            if not pending.service.waiting:
                self._hungry.pop(pending.service, None)
        self.refuse(pending, reason, now)

    def shut(self, now: float) -> None:
        """The drain is over: refuse everything still under way."""
        self.draining = True
        for service in list(self.services.values()):
            while (pending := self._next(service, now)) is not None:
                self.refuse(pending, b"shutting-down", now)
        for holder in (*self.roster, *self.federation.peers.values()):
            for pending in list(holder.held.values()):
                if pending.state == HELD and pending.holder is holder:
                    # A repost has begun: "shutting-down" would have it run again, whatever it is.
                    if pending.asker.origin:
                        self._retry(pending, holder, now)
                    else:
                        self.refuse(pending, b"shutting-down", now)

    def sweep(self) -> None:
        """Forget services that nobody serves, asks for or configured."""
        for name, service in list(self.services.items()):
            if not (service.live or service.workers) and name not in self.policy.services:
                del self.services[name]
