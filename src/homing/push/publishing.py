"""A publisher without sockets: publications in, acknowledgements out, whatever the link does.

Publications are pipelined and kept until acknowledged; on a new link, to the same matcher
or the next of the list, all that are open go out again in order, under the same ids.

A matcher may tell of one that has less to do. Then that one is dialled; once it is there new publications
wait until those under way are acknowledged, and go there: so their order holds. Should that not succeed
within PATIENCE seconds, all stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from homing.endpoint import parse_endpoint
from homing.errors import ConfigError, HomingError, QueueFull, Refused
from homing.ports import Link, Port
from homing.push.calling import PATIENCE, Calling
from homing.push.links import HEARTBEAT, SILENCE
from homing.wire import publish
from homing.wire.assembly import Assembler
from homing.wire.packet import Message

MAX_OPEN: Final = 65_536
"""Publications not acknowledged: a second of the fastest publisher."""
MAX_OPEN_BYTES: Final = 256 << 20
"""The same in bytes."""
REST: Final = 30.0
"""Seconds between two moves: matchers need some beats to see what the last one did."""
STAY: Final = "stay"

Outcome = Callable[[bytes, int | HomingError], None]


class Publishing(Calling):
    """A homing.ports.Role. Plug: `matcher` (dials)."""

    plug = "matcher"
    beat = HEARTBEAT
    silence = SILENCE
    sign = publish.HEARTBEAT

    def __init__(
        self,
        port: Port,
        ids: Callable[[], bytes],
        matchers: Sequence[str],
        outcome: Outcome,
        token: bytes = b"",
    ) -> None:
        """`outcome(message_id, result)`: how many subscriptions matched, or why it was refused."""
        super().__init__(port, matchers)
        self._ids = ids
        self._outcome = outcome
        self._token = token
        self._assembler = Assembler(publish.MESSAGE_ID)
        self._open: dict[bytes, bytes] = {}
        self._bytes = 0
        self._given = self._endpoints
        self._bound = ""  # the matcher that we are on the way to
        self._there: Link | None = None  # to it
        self._held: list[bytes] | None = None  # what shall go there, once it is there
        self._rested = 0.0  # when the next move may begin
        self.moves = 0
        self.greeted = False  # what it is connected to has answered as a matcher does

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
        if self._held is not None:
            self._held.append(image)
        elif self._link is not None:
            self._link.send(image)
        return identity

    # homing.push.calling

    def greet(self, link: Link) -> None:
        self.greeted = False
        self._assembler = Assembler(publish.MESSAGE_ID)
        link.send(publish.Hello(self._token).encode())
        for image in self._open.values():
            link.send(image)

    def take(self, message: bytes, now: float) -> None:
        for one in self._assembler.receive(message, now):
            self._one(one, now)
        self._go_if_free(now)

    def _one(self, message: Message, now: float) -> None:
        typed = publish.from_matcher(message)
        self.greeted = self.greeted or typed is not None
        if isinstance(typed, publish.Accepted):
            self._settle(typed.message_id, typed.matched)
        elif isinstance(typed, publish.Hello):
            self._told(typed.elsewhere, now)
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

    # To a matcher that has less to do

    def opened(self, link: Link, now: float) -> None:
        if self._bound and self._link is not None:
            self._there = link
            self._held = []
            self._go_if_free(now)
        else:
            super().opened(link, now)

    def closed(self, link: Link, now: float) -> None:
        if link is self._there:
            self._stay(now)
            return
        lost = link is self._link
        super().closed(link, now)
        if lost and self._bound:  # nothing to wait for any more
            self._go(now)

    def wake(self, key: Hashable, now: float) -> None:
        if key == STAY:
            self._stay(now)
        else:
            super().wake(key, now)

    def _told(self, elsewhere: str, now: float) -> None:
        """The matcher says where there is less to do, or that it has thought better of it."""
        if self._bound and not elsewhere:
            self._stay(now)
        elif elsewhere and not self._bound and now >= self._rested:
            try:
                where = parse_endpoint(elsewhere)
            except ConfigError:
                return  # it knows no better
            same = [one for one in self._given if parse_endpoint(one) == where]
            bound = same[0] if same else elsewhere
            if bound != self.endpoint:
                self._bound = bound
                self._port.connect(self.plug, bound)
                self._port.later(now + PATIENCE, STAY)

    def _go_if_free(self, now: float) -> None:
        """All that was sent to the old matcher is acknowledged."""
        if self._held is not None and len(self._open) == len(self._held):
            self._go(now)

    def _go(self, now: float) -> None:
        self._port.disconnect(self.plug, self.endpoint)
        there, bound = self._there, self._bound
        self._endpoints = self._given if bound in self._given else (*self._given, bound)
        self._at = self._endpoints.index(bound)
        self._end_move(now)
        self.moves += 1
        if there is not None:
            super().opened(there, now)

    def _stay(self, now: float) -> None:
        if not self._bound:
            return
        self._port.disconnect(self.plug, self._bound)
        held = self._held or ()
        self._end_move(now)
        if self._link is not None:
            for image in held:
                self._link.send(image)

    def _end_move(self, now: float) -> None:
        self._bound, self._there, self._held = "", None, None
        self._rested = now + REST
        self._port.cancel(STAY)
