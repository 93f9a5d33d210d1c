"""Links and ports that only write down what a role asked of them.

The smallest way to test a role: call it, then look at the lists.

    port, link = RecordingPort(), RecordingLink("localfe", b"c1")
    broker = Broker("a", port)
    broker.receive(link, request, now=0.0)
    assert link.take() == [refusal]
"""

from __future__ import annotations

from collections.abc import Hashable

from homing.errors import DiskFull
from homing.journal.body import expand
from homing.journal.events import RequestRun
from homing.ports import Link
from homing.wire.frames import unpack


class RecordingLink(Link):
    """A link that keeps what was sent in `sent`, and why it was closed in `reason`."""

    __slots__ = ("_backlog", "reason", "sent")

    def __init__(self, plug: str, peer: bytes = b"", user: str = "") -> None:
        super().__init__(plug, peer, user)
        self.sent: list[bytes] = []
        self.reason: str | None = None  # None: still open
        self._backlog = 0

    def send(self, message: bytes) -> None:
        """Keep it; what is sent after `close` goes nowhere, as on a real link."""
        if self.reason is None:
            self.sent.append(message)

    def close(self, reason: str = "") -> None:
        """Remember the first reason."""
        if self.reason is None:
            self.reason = reason

    @property
    def backlog(self) -> int:
        """What the test says: set it to play a slow peer."""
        return self._backlog

    @backlog.setter
    def backlog(self, size: int) -> None:
        self._backlog = size

    def take(self) -> list[bytes]:
        """Everything sent since the last `take`."""
        sent, self.sent = self.sent, []
        return sent

    def take_frames(self) -> list[list[bytes]]:
        """The same, each ZeroMQ wire image as its list of frames."""
        return [unpack(image) for image in self.take()]


class RecordingPort:
    """A homing.ports.Port that keeps connections, timers and events in plain collections."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, str]] = []
        self.timers: dict[Hashable, float] = {}
        self.events: list[object] = []
        self.full = False  # True: `journal` raises DiskFull

    def connect(self, plug: str, endpoint: str) -> None:
        """Keep (plug, endpoint); asking twice is asking once."""
        if (plug, endpoint) not in self.connected:
            self.connected.append((plug, endpoint))

    def disconnect(self, plug: str, endpoint: str) -> None:
        """Forget it."""
        if (plug, endpoint) in self.connected:
            self.connected.remove((plug, endpoint))

    def later(self, deadline: float, key: Hashable) -> None:
        """Keep the deadline; a second call moves it."""
        self.timers[key] = deadline

    def cancel(self, key: Hashable) -> None:
        """Forget it."""
        self.timers.pop(key, None)

    def journal(self, event: object) -> int:
        """Keep the event; numbers count from 1. The test calls `journaled` itself."""
        if self.full:
            raise DiskFull("the test says so")
        if isinstance(event, RequestRun):
            event.first = len(self.events) + 1
            self.events += expand(event)
        else:
            self.events.append(event)
        return len(self.events)

    def due(self, now: float) -> list[Hashable]:
        """Take the keys whose moment has come, earliest first: pass each to `wake`."""
        ripe = sorted(
            ((at, order, key) for order, (key, at) in enumerate(self.timers.items()) if at <= now),
            key=lambda timer: timer[:2],
        )
        for _, _, key in ripe:
            del self.timers[key]
        return [key for _, _, key in ripe]
