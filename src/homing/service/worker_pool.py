"""Workers as the dispatch core sees them: credit, what they hold, which pool they idle in."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING

from homing.ports import Link
from homing.service.pending import Holder

if TYPE_CHECKING:
    from homing.service.queues import Service


class Worker(Holder):
    """A worker of any dialect. `room`: how many more requests it may be given."""

    __slots__ = ("credit", "pool", "room", "seen", "service")

    def __init__(self, link: Link, credit: int, now: float) -> None:
        super().__init__(link, link.peer)
        self.credit = credit
        self.room = credit
        self.seen = now
        self.service: Service | None = None  # None: any
        self.pool: OrderedDict[Worker, None] | None = None  # None: not registered

    @abstractmethod
    def beat(self) -> None:
        """Send a heartbeat."""

    @abstractmethod
    def dismiss(self) -> None:
        """Send the last message of the conversation."""

    @abstractmethod
    def successor(self) -> object:
        """What its link's state becomes when the conversation is over."""
