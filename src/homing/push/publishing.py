"""A publisher without sockets: publications in, acknowledgements out, whatever the link does.

Publications are pipelined and kept until acknowledged; on a new link, to the same matcher
or the next of the list, all that are open go out again in order, under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from homing.errors import HomingError, Malformed, QueueFull, Refused, RemoteProtocolError
from homing.ports import Link, Port
from homing.push.links import BEAT, HEARTBEAT, SILENCE
from homing.wire import publish
from homing.wire.assembly import Assembler
from homing.wire.packet import Message

MAX_OPEN: Final = 65_536
"""Publications not acknowledged: a second of the fastest publisher."""
MAX_OPEN_BYTES: Final = 256 << 20
"""The same in bytes."""
PATIENCE: Final = 2.0
"""Seconds without a link before the next matcher of the list is tried."""
PLUG: Final = "matcher"
NEXT: Final = "next"

Outcome = Callable[[bytes, int | HomingError], None]


class Publishing:
    """A homing.ports.Role. Plug: `matcher` (dials)."""

    def __init__(
        self,
        port: Port,
        ids: Callable[[], bytes],
        matchers: Sequence[str],
        outcome: Outcome,
        token: bytes = b"",
    ) -> None:
        """`outcome(message_id, result)`: how many subscriptions matched, or why it was refused."""
        self._port = port
        self._ids = ids
        self._matchers = tuple(matchers)
        self._outcome = outcome
        self._token = token
        self._at = 0
        self._link: Link | None = None
        self._assembler = Assembler(publish.MESSAGE_ID)
        self._heard = 0.0
        self._open: dict[bytes, bytes] = {}
        self._bytes = 0
        port.connect(PLUG, self._matchers[0])
        port.later(0.0, BEAT)

    def __len__(self) -> int:
        """Publications not acknowledged yet."""
        return len(self._open)

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def full(self) -> bool:
        """Whether `publish` would be refused."""
        return len(self._open) >= MAX_OPEN or self._bytes >= MAX_OPEN_BYTES

    def publish(self, attributes: bytes, payload: bytes, identity: bytes = b"") -> bytes:
        """Send one as soon as possible; its id. QueueFull while too many are open."""
        if self.full:
            raise QueueFull(f"{len(self._open)} publications wait for their acknowledgement")
        identity = identity or self._ids()
        if identity in self._open:
            return identity  # it is under way already
        image = publish.Publish(attributes, payload, identity).encode()
        self._open[identity] = image
        self._bytes += len(image)
        if self._link is not None:
            self._link.send(image)
        return identity

    # homing.ports.Role

    def opened(self, link: Link, now: float) -> None:
        self._link = link
        self._heard = now
        self._assembler = Assembler(publish.MESSAGE_ID)
        self._port.cancel(NEXT)
        link.send(publish.Hello(self._token).encode())
        for image in self._open.values():
            link.send(image)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        if link is not self._link:
            return
        self._heard = now
        try:
            for one in self._assembler.receive(message, now):
                self._one(one)
        except (RemoteProtocolError, Malformed) as error:
            link.close(str(error))
            self.closed(link, now)

    def closed(self, link: Link, now: float) -> None:
        if link is self._link:
            self._link = None
            self._port.later(now + PATIENCE, NEXT)

    def wake(self, key: Hashable, now: float) -> None:
        if key == NEXT and self._link is None:
            self._next(now)
        elif key == BEAT:
            self._beat(now)

    def journaled(self, number: int, now: float) -> None:
        """A publisher keeps no journal."""

    def _one(self, message: Message) -> None:
        typed = publish.from_matcher(message)
        if isinstance(typed, publish.Accepted):
            self._settle(typed.message_id, typed.matched)
        elif isinstance(typed, publish.Refusal):
            error = Refused.from_reason(typed.reason)
            if typed.message_id:
                self._settle(typed.message_id, error)
            else:  # not about one of them: the matcher will take none
                for identity in list(self._open):
                    self._settle(identity, error)

    def _settle(self, identity: bytes, result: int | HomingError) -> None:
        image = self._open.pop(identity, None)
        if image is not None:
            self._bytes -= len(image)
            self._outcome(identity, result)

    def _beat(self, now: float) -> None:
        self._port.later(now + HEARTBEAT, BEAT)
        link = self._link
        if link is None:
            self._port.later(now + PATIENCE, NEXT)
        elif now - self._heard > SILENCE:
            link.close("silent for too long")
            self.closed(link, now)
        else:
            link.send(publish.HEARTBEAT)

    def _next(self, now: float) -> None:
        """Nobody answers here: try the next one, in turn."""
        if len(self._matchers) > 1:
            self._port.disconnect(PLUG, self._matchers[self._at])
            self._at = (self._at + 1) % len(self._matchers)
            self._port.connect(PLUG, self._matchers[self._at])
        self._port.later(now + PATIENCE, NEXT)
