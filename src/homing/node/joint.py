"""Links that are sent the same in one turn: what is written is joined once for all of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from homing.node.volley import ROOM

if TYPE_CHECKING:
    from homing.node.link import StreamLink
    from homing.node.turn import Turn
    from homing.node.volley import OneByOne, Volley


class Joint:
    """Links that are sent the same: queued once for all of them, joined once, one write a link.

    Within a turn a link is in one joint at most, and only while nothing else is queued for it. One
    that is sent something of its own leaves, taking what it was sent jointly before, so that its
    order holds; until the turn ends it is sent to alone.
    """

    __slots__ = ("_alone", "_fds", "_links", "_turn", "_volley", "out", "queued")

    def __init__(self, turn: Turn, links: Sequence[StreamLink], volley: Volley | OneByOne) -> None:
        self.out: list[bytes] = []
        self.queued = 0
        self._turn = turn
        self._links = links
        self._volley = volley
        self._fds = [link.fileno() for link in links]
        self._alone: list[StreamLink] = []

    def send(self, message: bytes) -> None:
        """Queue one message for every link, for the end of this turn."""
        if not self.out:
            self._begin()
        self.out.append(message)
        self.queued += len(message)
        for link in self._alone:
            link.send(message)

    def _begin(self) -> None:
        for link in self._links:
            if link._out or link._joint is not None or link._encode is not None or link.over:
                self._alone.append(link)
            else:
                link._joint = self
        self._turn.add(self)

    def left(self, link: StreamLink) -> None:
        """A link goes on by itself."""
        self._alone.append(link)

    def ripe(self) -> bool:
        """Never put off."""
        return True

    def flush(self) -> None:
        """The turn ends."""
        data = b"".join(self.out)
        self.out = []
        self.queued = 0
        self._alone = []
        direct: list[StreamLink] = []
        fds = array("i")
        small = len(data) <= ROOM
        for link, fd in zip(self._links, self._fds, strict=True):
            if link._joint is self:
                link._joint = None
                if fd >= 0 and small and link.is_clear():
                    direct.append(link)
                    fds.append(fd)
                else:
                    link.write(data)
        if direct:  # more than ROOM would not fit in there, whoever it is for
            for which, taken in self._volley.send(fds, data):
                direct[which].write(data[taken:])
