"""What a broker writes down: counters for people, events for the journal.

The journal records what the service plane did; no answer waits for it. While its disk is full
new requests are refused, or, where the policy says so, served and the events that could not be
written are counted.
"""

from __future__ import annotations

from collections.abc import Callable

from homing.errors import DiskFull
from homing.journal.events import (
    AnswerOrphaned,
    Event,
    MemberJoined,
    MemberLeft,
    NodeStopped,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
    WorkerJoined,
    WorkerLeft,
)
from homing.service.federation import Peer
from homing.service.pending import Holder, Pending
from homing.service.worker_pool import Worker


class Record:
    """Counters, and the journal where there is one."""

    def __init__(self, journal: Callable[[object], int] | None, strict: bool = True) -> None:
        """`strict`: what cannot be written down is not to be done."""
        self._journal = journal
        self._strict = strict
        self.accepts = 0
        self.answers = 0
        self.refusals: dict[bytes, int] = {}  # by code: one of a fixed few
        self.reposts = 0
        self.requeues = 0
        self.orphans = 0
        self.malformed = 0
        self.unwritten = 0

    def _write(self, event: Event) -> int:
        if self._journal is None:
            return 0
        try:
            return self._journal(event)
        except DiskFull:
            self.unwritten += 1
            return 0

    def accepted(self, pending: Pending, now: float) -> bool:
        """False: the journal takes no more, and the request must be refused."""
        if self._journal is not None:
            asker = pending.asker
            event = RequestAccepted(
                now,
                pending.service.name,
                asker.name,
                len(pending.data),
                asker.origin,
                pending.message_id.encode() if pending.message_id else b"",
            )
            try:
                pending.number = self._journal(event)
            except DiskFull:
                if self._strict:
                    return False
                self.unwritten += 1
        self.accepts += 1
        return True

    def answered(self, pending: Pending, holder: Holder, size: int, now: float) -> None:
        self.answers += 1
        if self._journal is not None:
            remote = holder.__class__ is Peer
            event = RequestAnswered(
                now,
                pending.number,
                b"" if remote else holder.name,
                size,
                pending.handed - pending.accepted,
                pending.attempts,
                pending.partials,
                holder.name if remote else b"",
            )
            try:
                self._journal(event)
            except DiskFull:
                self.unwritten += 1

    def refused(self, pending: Pending, reason: bytes, now: float) -> None:
        code = reason.split(b" ", 1)[0]
        if code not in self.refusals and len(self.refusals) >= 64:
            code = b"other"  # workers make up codes of their own
        self.refusals[code] = self.refusals.get(code, 0) + 1
        self._write(
            RequestRefused(
                now,
                pending.number,
                code,
                pending.service.name,
                pending.asker.name,
                len(pending.data),
                pending.attempts,
                pending.asker.origin,
            )
        )

    def reposted(self, pending: Pending, peer: Holder, now: float) -> None:
        self.reposts += 1
        self._write(RequestReposted(now, pending.number, peer.name))

    def requeued(self, pending: Pending, holder: Holder, now: float) -> None:
        self.requeues += 1
        self._write(RequestRequeued(now, pending.number, holder.name))

    def orphaned(self, holder: Holder, service: bytes, now: float) -> None:
        self.orphans += 1
        self._write(AnswerOrphaned(now, service, holder.name))

    def joined(self, worker: Worker, now: float) -> None:
        service = worker.service.name if worker.service is not None else b""
        self._write(WorkerJoined(now, worker.name, service, worker.credit))

    def left(self, worker: Worker, reason: bytes, now: float) -> None:
        service = worker.service.name if worker.service is not None else b""
        self._write(WorkerLeft(now, worker.name, service, reason))

    def peer_reached(self, peer: Peer, now: float) -> None:
        self._write(MemberJoined(now, peer.name, b"broker", peer.endpoints[0].encode()))

    def peer_lost(self, peer: Peer, reason: bytes, now: float) -> None:
        self._write(MemberLeft(now, peer.name, b"broker", reason))

    def stopped(self, now: float) -> None:
        self._write(NodeStopped(now, b"drained"))
