"""A client's one link: to the first of a list of nodes that answers, for as long as it does.

Base of homing.push.publishing and homing.push.subscribing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Final

from homing.errors import HomingError, Malformed, RemoteProtocolError
from homing.ports import Link, Port
from homing.push.links import BEAT

PATIENCE: Final = 2.0
"""Seconds without a word before the next node of the list is tried."""
NEXT: Final = "next"


class Calling(ABC):
    """A homing.ports.Role with one plug, on which it dials."""

    plug: str
    beat: float
    """Seconds between two signs of life."""
    silence: float
    """Seconds without one of the other's after which the link is given up."""
    sign: bytes

    def __init__(self, port: Port, endpoints: Sequence[str]) -> None:
        self._port = port
        self._endpoints = tuple(endpoints)
        self._at = 0
        self._link: Link | None = None
        self._heard = 0.0
        self._leaving = False  # the next node is tried soon
        self._listening = True
        port.connect(self.plug, self._endpoints[0])
        port.later(0.0, BEAT)

    @property
    def endpoint(self) -> str:
        """Where it is connected, or tries to be."""
        return self._endpoints[self._at]

    @abstractmethod
    def greet(self, link: Link) -> None:
        """A new link: say who we are, and again what matters; raises what ends it."""

    @abstractmethod
    def take(self, message: bytes, now: float) -> None:
        """Something came over the link; raises what ends it."""

    # homing.ports.Role

    def opened(self, link: Link, now: float) -> None:
        self._link = link
        self._heard = now
        self._listening = True
        try:
            self.greet(link)
        except HomingError as error:  # it has nothing to say who it is with
            link.close(str(error))
            self.closed(link, now)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        if link is not self._link:
            return
        self._heard = now
        if self._leaving:
            self._leaving = False
            self._port.cancel(NEXT)
        try:
            self.take(message, now)
        except (RemoteProtocolError, Malformed) as error:
            link.close(str(error))
            self.closed(link, now)

    def closed(self, link: Link, now: float) -> None:
        if link is self._link:
            self._link = None
            self._leave(now)

    def wake(self, key: Hashable, now: float) -> None:
        if key == NEXT:
            self._next(now)
        elif key == BEAT:
            self._beat(now)

    def listen(self, on: bool, now: float) -> None:
        """Whether the link is read: who does not listen cannot call the other silent."""
        self._listening = on
        self._heard = now

    def journaled(self, number: int, now: float) -> None:
        """A client keeps no journal."""

    def _beat(self, now: float) -> None:
        self._port.later(now + self.beat, BEAT)
        link = self._link
        if link is None:
            self._leave(now)
        elif self._listening and now - self._heard > self.silence:
            link.close("silent for too long")
            self.closed(link, now)
        else:
            link.send(self.sign)

    def _leave(self, now: float) -> None:
        """Go on to the next node soon, unless this one says something: a link alone is no answer."""
        if not self._leaving:
            self._leaving = True
            self._port.later(now + PATIENCE, NEXT)

    def _next(self, now: float) -> None:
        """Nobody answers here: try the next one, in turn; a link that is there is given the same time."""
        if self._link is None and len(self._endpoints) > 1:
            self._port.disconnect(self.plug, self.endpoint)
            self._at = (self._at + 1) % len(self._endpoints)
            self._port.connect(self.plug, self.endpoint)
        self._port.later(now + PATIENCE, NEXT)
