"""Links that are sent the same: queued once for all of them, one write a link.

Within a turn of the loop a link belongs to one joint at most, and only while nothing else has
been queued for it. A link that is sent something of its own leaves, taking what it was sent
jointly before, so that its order holds; until the turn ends it is then sent to by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homing.node.link import StreamLink
    from homing.node.turn import Turn


class Joint:
    """The links, and what they are all sent in this turn."""

    __slots__ = ("_alone", "_links", "_turn", "out", "queued")

    def __init__(self, turn: Turn, links: Sequence[StreamLink]) -> None:
        self.out: list[bytes] = []
        self.queued = 0
        self._turn = turn
        self._links = links
        self._alone: list[StreamLink] = []

    def send(self, message: bytes) -> None:
        """Queue one message for every link, for the end of this turn."""
        if not self.out:
            self._alone = [link for link in self._links if not link.join(self)]
            self._turn.add(self)
        self.out.append(message)
        self.queued += len(message)
        for link in self._alone:
            link.send(message)

    def left(self, link: StreamLink) -> None:
        """A link goes on by itself."""
        self._alone.append(link)

    def flush(self) -> None:
        """The turn ends: one write a link, all of the same bytes."""
        data = b"".join(self.out)
        self.out = []
        self.queued = 0
        self._alone = []
        for link in self._links:
            link.flush_jointly(self, data)
