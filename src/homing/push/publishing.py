"""A publisher without sockets: publications in, acknowledgements out, whatever the link does.

Publications are pipelined and kept until acknowledged; on a new link, to the same matcher
or the next of the list, all that are open go out again in order, under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from homing.errors import HomingError, QueueFull, Refused
from homing.ports import Link, Port
from homing.push.calling import Calling
from homing.push.links import HEARTBEAT, SILENCE
from homing.wire import publish
from homing.wire.assembly import Assembler
from homing.wire.packet import Message

MAX_OPEN: Final = 65_536
"""Publications not acknowledged: a second of the fastest publisher."""
MAX_OPEN_BYTES: Final = 256 << 20
"""The same in bytes."""

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

    # homing.push.calling

    def greet(self, link: Link) -> None:
        self._assembler = Assembler(publish.MESSAGE_ID)
        link.send(publish.Hello(self._token).encode())
        for image in self._open.values():
            link.send(image)

    def take(self, message: bytes, now: float) -> None:
        for one in self._assembler.receive(message, now):
            self._one(one)

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
