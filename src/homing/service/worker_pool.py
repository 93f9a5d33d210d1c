"""Workers as the dispatch core sees them: credit, what they hold, which pool they idle in.

A worker stands in its pool once while it has room. One that leaves stays in the line, marked by having no pool; it
is passed over later, or swept out when such places are the majority.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from homing.ports import Link
from homing.service.pending import Holder

if TYPE_CHECKING:
    from homing.service.queues import Service

_SWEEP_FLOOR = 64
"""Left places in a line not worth a sweep."""


class Worker(Holder):
    """A worker of any dialect. `room`: how many more requests it may be given."""

    __slots__ = (
        "credit",
        "due",
        "interval",
        "pace",
        "pool",
        "room",
        "seen",
        "service",
        "slowest",
        "spared",
    )

    def __init__(self, link: Link, credit: int, now: float) -> None:
        super().__init__(link, link.peer)
        self.credit = credit
        self.room = credit
        self.seen = now
        # Of homing.service.beats, in seconds.
        self.due = now  # when it is sent our next heartbeat
        self.slowest = 0.0  # between heartbeats that it can keep to while it is idle
        self.interval = 0.0  # between heartbeats while it is idle, as it was told
        self.pace = 0.0  # between ours now
        self.spared = 0.0  # until when it is not taken for dead, whatever its silence
        self.service: Service | None = None  # None: any
        self.pool: Pool | None = None  # None: not registered

    @abstractmethod
    def beat(self) -> None:
        """Send a heartbeat."""

    def tell(self, interval: float) -> None:
        """Send a heartbeat that says how often from now on; only to who said that it can keep to slow ones."""
        self.beat()

    @abstractmethod
    def dismiss(self) -> None:
        """Send the last message of the conversation."""

    @abstractmethod
    def successor(self) -> object:
        """What its link's state becomes when the conversation is over."""


class Pool:
    """Workers with room, least recently used first."""

    __slots__ = ("_left", "_line")

    def __init__(self) -> None:
        self._line: deque[Worker] = deque()
        self._left = 0  # places of workers that are gone

    def __len__(self) -> int:
        return len(self._line) - self._left

    def __iter__(self) -> Iterator[Worker]:
        return iter([worker for worker in self._line if worker.pool is self])

    @property
    def places(self) -> int:
        """Places in the line, left ones too: what memory follows."""
        return len(self._line)

    def take(self) -> Worker | None:
        """The one that was used least recently; its room is less by one."""
        line = self._line
        while line:
            worker = line.popleft()
            if worker.pool is not None:
                worker.room -= 1
                if worker.room:
                    line.append(worker)
                return worker
            self._left -= 1
        return None

    def give_back(self, worker: Worker, count: int = 1) -> None:
        """It has room for so many more."""
        if not worker.room:
            self._line.append(worker)
        worker.room += count

    def join(self, worker: Worker) -> None:
        """A worker that is new here."""
        worker.pool = self
        if worker.room:
            self._line.append(worker)

    def leave(self, worker: Worker) -> None:
        """It is gone, and not asked any more."""
        worker.pool = None
        if worker.room:
            self._left += 1
            if self._left > len(self) + _SWEEP_FLOOR:
                self._line = deque(one for one in self._line if one.pool is not None)
                self._left = 0
