"""When requests are due, without a timer for each.

Most requests are answered within one tick, so a new one is only noted in a list. What is still
open at the next tick goes into a bucket of its due time; a tick then looks at the buckets that
have passed. Entries of requests that ended meanwhile are skipped, and swept out when they are
the majority, so memory follows what is open, not what has been. Of very many that are due at once a
tick gives only a slice, and the next tick should come soon: one client's must not hold up everybody's.
"""

from __future__ import annotations

from collections import deque

from homing.service.pending import DONE, HELD, Holder, Pending

_SWEEP_FLOOR = 4096
"""Dead entries not worth a sweep: half a megabyte at most."""
SLICE = 4096
"""Requests that one tick may end: to refuse them takes some ten milliseconds."""


class Deadlines:
    """Buckets of open requests by due time; `grain` seconds wide."""

    __slots__ = ("_begun", "_buckets", "_entries", "_grain", "_next", "_overdue", "fresh")

    def __init__(self, grain: float, begun: dict[Holder, None]) -> None:
        """`begun` is told who holds what was new at a tick, and still open."""
        self._grain = grain
        self._begun = begun
        self.fresh: list[Pending] = []  # noted since the last tick; who adds many appends here
        self._buckets: dict[int, list[Pending]] = {}
        self._overdue: deque[Pending] = deque()  # due, and not told yet
        self._entries = 0
        self._next = 0  # the first bucket that has not been looked at

    def __len__(self) -> int:
        return self._entries + len(self.fresh) + len(self._overdue)

    @property
    def behind(self) -> bool:
        """Whether more is due than the last tick gave."""
        return bool(self._overdue)

    def add(self, pending: Pending) -> None:
        """Watch a request; its `due` may be moved until it comes up."""
        self.fresh.append(pending)

    def tick(self, now: float, live: int) -> list[Pending]:
        """Open requests that are due, the first SLICE of them; `live`: how many are open in all."""
        overdue = self._overdue
        fresh, self.fresh = self.fresh, []
        for pending in fresh:
            if pending.state != DONE:
                holder = pending.holder
                if pending.state == HELD and holder is not None:
                    self._begun[holder] = None
                if pending.due <= now:
                    overdue.append(pending)
                else:
                    self._file(pending)
        overdue.extend(self._passed(now))
        if self._entries > 2 * live + _SWEEP_FLOOR:
            self._sweep()
        due: list[Pending] = []
        while overdue and len(due) < SLICE:
            pending = overdue.popleft()
            if pending.state != DONE:
                due.append(pending)
        return due

    def _file(self, pending: Pending) -> None:
        slot = int(pending.due / self._grain) + 1
        bucket = self._buckets.get(slot)
        if bucket is None:
            bucket = self._buckets[slot] = []
        bucket.append(pending)
        self._entries += 1

    def _passed(self, now: float) -> list[Pending]:
        last = int(now / self._grain)
        if last - self._next > len(self._buckets):
            passed = sorted(slot for slot in self._buckets if slot <= last)
        else:
            passed = list(range(self._next, last + 1))
        self._next = last + 1
        due: list[Pending] = []
        for slot in passed:
            bucket = self._buckets.pop(slot, None)
            if bucket is not None:
                self._entries -= len(bucket)
                due.extend(pending for pending in bucket if pending.state != DONE)
        return due

    def _sweep(self) -> None:
        for slot, bucket in list(self._buckets.items()):
            kept = [pending for pending in bucket if pending.state != DONE]
            self._entries -= len(bucket) - len(kept)
            if kept:
                self._buckets[slot] = kept
            else:
                del self._buckets[slot]
