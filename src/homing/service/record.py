"""What a broker writes down: counters for people, events for the journal.

The journal records what the service plane did; no answer waits for it. Most requests are answered
within a tick of the broker: what they came to is written when the tick comes, in columns, at a
quarter of what events on the way would cost. A request that anything else is told of before, or that is
still open at the tick, has its acceptance written first.

While the journal's disk is full new requests are refused, or, where the policy says so, served and
the events that could not be written are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from homing.errors import DiskFull
from homing.journal.events import (
    AnswerOrphaned,
    Event,
    MemberJoined,
    MemberLeft,
    NodeStopped,
    Odd,
    Parties,
    RequestAccepted,
    RequestAnswered,
    RequestRefused,
    RequestReposted,
    RequestRequeued,
    RequestRun,
    WorkerJoined,
    WorkerLeft,
)
from homing.service.federation import Peer
from homing.service.pending import DONE, NOT_YET, Asker, Holder, Pending
from homing.service.queues import Service
from homing.service.worker_pool import Worker

RUN: Final = 4096
"""Requests in one run: some 200 KB of a block. A tick has 512 of them, and few more."""


class Record:
    """Counters, and the journal where there is one."""

    def __init__(self, journal: Callable[[object], int] | None, strict: bool = True) -> None:
        """`strict`: what cannot be written down is not to be done."""
        self._journal = journal
        self._strict = strict
        self.full = False  # the journal takes nothing on: it is asked about every request
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
            self.full = True
            self.unwritten += 1
            return 0

    def admits(self, pending: Pending) -> bool:
        """While the disk is full: False if the request must be refused."""
        if self._journal is not None:
            try:
                pending.number = self._journal(_acceptance(pending))
                self.full = False
            except DiskFull:
                if self._strict:
                    return False
                self.unwritten += 1
        return True

    def note(self, pending: Pending) -> None:
        """Write that it was accepted and reposted, if that is not written yet."""
        if pending.number == NOT_YET and self._journal is not None:
            pending.number = self._write(_acceptance(pending))
            holder = pending.holder
            if holder is not None and holder.remote:
                self._write(RequestReposted(pending.handed, pending.number, holder.name))

    def gather(self, fresh: list[Pending]) -> None:
        """Write what requests since the last tick have come to."""
        if self._journal is None:
            return
        done: list[Pending] = []
        for pending in fresh:
            if pending.number == NOT_YET:
                if pending.state == DONE:
                    done.append(pending)
                else:
                    self.note(pending)
        for at in range(0, len(done), RUN):
            try:
                self._journal(_run(done[at : at + RUN]))
            except DiskFull:
                self.full = True

    def answered(self, pending: Pending) -> None:
        """The answer to a request whose acceptance was written, or could not be."""
        self._write(_answer(pending))

    def refused(self, pending: Pending, reason: bytes, now: float) -> None:
        code = reason.split(b" ", 1)[0]
        if code not in self.refusals and len(self.refusals) >= 64:
            code = b"other"  # workers make up codes of their own
        self.refusals[code] = self.refusals.get(code, 0) + 1
        self.note(pending)
        self._write(
            RequestRefused(
                now,
                pending.number,
                code,
                pending.service.name,
                pending.asker.name,
                pending.size,
                pending.attempts,
                pending.asker.origin,
            )
        )

    def reposted(self, pending: Pending, peer: Holder, now: float) -> None:
        self.reposts += 1
        if pending.number == NOT_YET and not pending.attempts:
            return  # told together with its acceptance
        self.note(pending)
        self._write(RequestReposted(now, pending.number, peer.name))

    def requeued(self, pending: Pending, holder: Holder, now: float) -> None:
        self.requeues += 1
        self.note(pending)
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


def _acceptance(pending: Pending) -> Event:
    asker = pending.asker
    return RequestAccepted(
        pending.accepted,
        pending.service.name,
        asker.name,
        pending.size,
        asker.origin,
        pending.message_id.encode(),
    )


def _answer(pending: Pending) -> Event:
    holder = pending.holder
    assert holder is not None
    return RequestAnswered(
        pending.ended,
        pending.number,
        b"" if holder.remote else holder.name,
        pending.answer_size,
        pending.handed - pending.accepted,
        pending.attempts,
        pending.partials,
        holder.name if holder.remote else b"",
    )


def _run(done: list[Pending]) -> RequestRun:
    """Requests from acceptance to answer, in columns. Every request passes here."""
    asker: Asker | None = None  # of the request before: most come in rows
    service: Service | None = None
    known: dict[Holder, int] = {}  # where its parties with these two are
    all_known: dict[tuple[Asker, Service], dict[Holder, int]] = {}
    parties: list[Parties] = []
    who: list[int] = []
    odd: dict[int, Odd] = {}
    count = 2 * len(done)
    for pending in done:
        holder = pending.holder
        assert holder is not None
        if pending.asker is not asker or pending.service is not service:
            asker, service = pending.asker, pending.service
            known = all_known.setdefault((asker, service), {})
        place = known.get(holder)
        if place is None:
            place = known[holder] = len(parties)
            parties.append(_parties(pending, holder))
        if holder.remote:
            count += 1  # it was reposted
        if pending.attempts != 1 or pending.partials or pending.message_id:
            odd[len(who)] = pending.attempts, pending.partials, pending.message_id.encode()
        who.append(place)
    return RequestRun(
        done[0].accepted,
        0,
        count,
        parties,
        who,
        [pending.accepted for pending in done],
        [pending.handed for pending in done],
        [pending.ended for pending in done],
        [pending.size for pending in done],
        [pending.answer_size for pending in done],
        odd,
    )


def _parties(pending: Pending, holder: Holder) -> Parties:
    asker = pending.asker
    worker, peer = (b"", holder.name) if holder.remote else (holder.name, b"")
    return pending.service.name, asker.name, asker.origin, worker, peer
