"""A node without a mind of its own: connects, keeps what it gets, sends what it is told."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from homing.ports import Link

if TYPE_CHECKING:
    from homing.testing.host import SimHost


class Probe:
    """A role for the other end of a test: `links` are open now, `received` all that came.

    sim.node("client", lambda host: Probe(host, {"client": "tcp://a:5555"}))
    sim.at(1.0, lambda: sim.nodes["client"].role.send(request))
    """

    def __init__(self, host: SimHost, connect: Mapping[str, str] | None = None) -> None:
        self.host = host
        self.links: list[Link] = []
        self.received: list[tuple[float, bytes]] = []
        self.events: list[tuple[float, str]] = []  # opened, closed, wake and journaled
        for plug, endpoint in (connect or {}).items():
            host.connect(plug, endpoint)

    @property
    def messages(self) -> list[bytes]:
        """All that came, without the times."""
        return [message for _, message in self.received]

    def send(self, message: bytes) -> bool:
        """Send on the newest link; False if there is none."""
        if self.links:
            self.links[-1].send(message)
        return bool(self.links)

    def opened(self, link: Link, now: float) -> None:
        self.links.append(link)
        self.events.append((now, "opened"))

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self.received.append((now, message))

    def closed(self, link: Link, now: float) -> None:
        self.links.remove(link)
        self.events.append((now, "closed"))

    def wake(self, key: Hashable, now: float) -> None:
        self.events.append((now, f"wake {key}"))

    def journaled(self, number: int, now: float) -> None:
        self.events.append((now, f"journaled {number}"))
