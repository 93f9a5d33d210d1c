"""Heartbeats: whose is due when, how often idle workers are beaten to, who has been silent for too long.

                 holds a request                     told another interval
    every `heartbeat` ◄──────────► every `interval`, while idle ──► …

All workers beat and are beaten to every `heartbeat`, but those that said that they can keep to slower ones: these are asked to, while
they are idle, where the fleet's heartbeats would be more than the broker wants (ADR 0095). An interval is told in a heartbeat that is due
anyway, and holds from then on; that a worker has work again both sides know without a word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import Final

from homing.service.pending import Holder
from homing.service.policy import BrokerPolicy
from homing.service.worker_pool import Worker

SLOWEST: Final = 30.0
"""Seconds between heartbeats, at most, that a broker asks for: a worker whose machine vanished stands in line for three of them, and
firewalls forget connections that are silent for a few minutes."""
SOON: Final = 0.75
"""Of an interval: a heartbeat of ours that is due within it goes as the answer to a worker's own."""
SLACK: Final = 1.25
"""Intervals after which a worker that was answered is beaten to all the same: its own may come a little late."""

Line = deque[tuple[float, Worker]]


def rungs(heartbeat: float) -> list[float]:
    """The intervals that workers are asked for: few, so that each has a line of its own in the order of time.

    Once, one and a half times, twice, three, four, six, eight, twelve times the heartbeat: at most half as much again as is needed.
    """
    found, doubled = [heartbeat], heartbeat
    while doubled < SLOWEST:
        found += [rung for rung in (doubled * 1.5, doubled * 2) if rung < SLOWEST]
        doubled *= 2
    if heartbeat < SLOWEST:
        found.append(SLOWEST)
    return found


class Beats:
    """The heartbeats of one broker to all its workers, and theirs to it."""

    def __init__(self, policy: BrokerPolicy, roster: Sized) -> None:
        self._roster = roster
        self._beats = policy.idle_beats
        self._liveness = policy.liveness
        self._heartbeat = policy.heartbeat
        self._rungs = rungs(policy.heartbeat)
        self._wanted = policy.heartbeat  # of idle workers, as of the last tick
        # By interval, each in the order of time: those who wait for ours, those whose own it answers.
        self._waiting: dict[float, Line] = {rung: deque() for rung in self._rungs}
        self._answered: dict[float, Line] = {rung: deque() for rung in self._rungs}

    @property
    def wanted(self) -> float:
        """The interval that idle workers are asked for."""
        return self._wanted

    def join(self, worker: Worker, now: float) -> None:
        """A worker is there; whatever it had agreed upon with somebody before, it begins anew."""
        slowest = self._heartbeat
        for rung in self._rungs:
            if rung <= worker.slowest:
                slowest = rung
        worker.slowest = slowest
        worker.interval = worker.pace = self._heartbeat
        worker.due = now + self._heartbeat
        self._waiting[self._heartbeat].append((worker.due, worker))

    def tick(self, begun: dict[Holder, None], now: float) -> list[Worker]:
        """Beat to those whose turn it is; the workers that have been silent for too long.

        `begun`: who was given work since the last tick and may have it still.
        """
        self._wanted = self._wish()
        for holder in begun:
            if isinstance(holder, Worker) and holder.held and holder.pace > self._heartbeat:
                self._hurry(holder, now)
        begun.clear()
        silent: list[Worker] = []
        for lines in (self._answered, self._waiting):
            for line in lines.values():
                while line and line[0][0] <= now:
                    due, worker = line.popleft()
                    if worker.pool is None or worker.due != due:
                        continue
                    if now - worker.seen > worker.pace * self._liveness and now > worker.spared:
                        silent.append(worker)
                    else:
                        self._beat(worker, now, self._waiting, 1.0)
        return silent

    def _wish(self) -> float:
        """The shortest interval within the budget."""
        needed = len(self._roster) / self._beats
        for rung in self._rungs:
            if rung >= needed:
                return rung
        return self._rungs[-1]

    def beaten_to(self, worker: Worker, now: float) -> None:
        """A worker's heartbeat: ours goes with the acknowledgement, if it is due soon (ADR 0024).

        Or if it has work that we did not know of: what we refused while it is at it still.
        """
        slow = worker.pace > self._heartbeat and worker.held
        if slow or worker.due - now <= worker.pace * SOON:
            self._beat(worker, now, self._answered, SLACK)

    def _beat(self, worker: Worker, now: float, lines: dict[float, Line], slack: float) -> None:
        interval = min(self._wanted, worker.slowest)
        if interval == worker.interval:
            worker.beat()
        else:
            worker.interval = interval
            worker.tell(interval)
        if worker.held:
            interval = self._heartbeat
        self._turn_to(worker, interval, now)
        worker.due = now + interval * slack
        lines[interval].append((worker.due, worker))

    def _hurry(self, worker: Worker, now: float) -> None:
        """An idle worker has work: the REQUEST was a sign of life from us, the next comes after a heartbeat's time."""
        self._turn_to(worker, self._heartbeat, now)
        worker.due = now + self._heartbeat
        self._waiting[self._heartbeat].append((worker.due, worker))

    def _turn_to(self, worker: Worker, pace: float, now: float) -> None:
        """Another pace from now on; a worker that has not heard of a faster one yet is given the time to.

        But no more than it had: one that is gone does not stay for being told something over and over.
        """
        if pace < worker.pace:
            until = max(worker.seen + worker.pace * self._liveness, worker.spared)
            worker.spared = min(until, now + pace * self._liveness)
        worker.pace = pace
