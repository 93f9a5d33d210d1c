"""Simulated links: ordered within one, seeded delays, broken by faults.

Two SimLinks are the ends of one connection. What one sends becomes an arrival at the other,
never earlier than what was sent before it. While the way is cut, arrivals wait, as TCP's
retransmissions do; if the link is lost first they are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from homing.ports import Link
from homing.testing.conditions import Line, transit

if TYPE_CHECKING:
    from homing.testing.host import Dial, SimHost


class SimLink(Link):
    """One end of a simulated connection."""

    __slots__ = (
        "_arrives",
        "_clear",
        "_held",
        "_line",
        "_random",
        "_sent",
        "_taken",
        "cut",
        "cut_at",
        "dial",
        "host",
        "open",
        "other",
        "over",
        "title",
    )

    other: SimLink

    def __init__(
        self, host: SimHost, plug: str, peer: bytes, user: str, title: str, random: Random
    ) -> None:
        super().__init__(plug, peer, user)
        self.host = host
        self.title = title  # for the trace: plug, peer node, number
        self.open = False
        self.over = False  # closed or lost, maybe before it was ever open
        self.cut = False  # nothing arrives here for now
        self.cut_at = 0.0
        self.dial: Dial | None = None  # set where this end dialled
        self._random = random
        self._line = Line()
        self._arrives = 0.0  # when the last thing sent arrives: the next is no earlier
        self._clear = 0.0  # when the last thing sent has left a slow line
        self._sent = 0
        self._taken = 0
        self._held: list[tuple[Callable[[Any, Any], None], Any]] = []

    def send(self, message: bytes) -> None:
        """Put it under way; what is sent on a closed link goes nowhere."""
        if not self.open:
            return
        self._sent += len(message)
        other = self.other
        self.host.sim.push(self._arrival(len(message)), other.host, other._arrive, message)
        if self._sent - self._taken > self.host.sim.conditions.backlog_limit:
            self.host.lose(self, "backlog")

    def close(self, reason: str = "") -> None:
        """Close after what was sent; the other end's role is told, this end's is not."""
        if self.open:
            self.host.trace("close", self.title, reason.encode())
            self.vanish()
            other = self.other
            self.host.sim.push(self._arrival(0), other.host, other._hangup, reason)
            self.host.forget(self)

    def give_up(self) -> None:
        """No longer wanted, maybe before the handshake was done."""
        if self.open:
            self.close("disconnect")
        elif not self.over:
            self.vanish()
            self.host.forget(self)
            self.host.lose(self, "given up")

    @property
    def backlog(self) -> int:
        """Bytes sent and not yet arrived, beyond what a socket's buffer would hide."""
        return max(0, self._sent - self._taken - self.host.sim.conditions.window)

    def established(self, line: Line, not_before: float) -> None:
        """The handshake is done: from now on this end sends, nothing arriving before that time."""
        self.open = True
        self._line = line
        self._arrives = not_before

    def reroute(self, line: Line) -> None:
        """The way to the other end became slower or faster."""
        self._line = line

    def sever(self, now: float) -> None:
        """Nothing arrives here any more, until `release`."""
        self.cut = True
        self.cut_at = now

    def release(self) -> None:
        """The cut is healed: everything that waited arrives, in order."""
        self.cut = False
        held, self._held = self._held, []
        self.host.catch_up(held)

    def drop(self, reason: str) -> None:
        """This end finds the connection gone; its role is told if it ever had it."""
        if self.over:
            return
        told = self.open
        self.vanish()
        if told:
            self.host.gone(self, reason)
        else:
            self.host.forget(self)

    def vanish(self) -> None:
        """This end is no more: nothing arrives here."""
        self.open = False
        self.over = True
        self._held.clear()

    def _arrival(self, size: int) -> float:
        """When something sent now arrives."""
        line, leaves = self._line, self.host.sim.now
        if line.bandwidth is not None:
            leaves = max(leaves, self._clear) + size / line.bandwidth
            self._clear = leaves
        arrives = leaves + transit(line, self._random)
        if arrives < self._arrives:
            arrives = self._arrives
        self._arrives = arrives
        return arrives

    def _arrive(self, message: bytes, _: Any) -> None:
        if self.cut:
            self._held.append((self._arrive, message))
        elif self.open:
            self.other._taken += len(message)
            host = self.host
            host.trace("receive", self.title, message)
            host.role.receive(self, message, host.sim.now)

    def _hangup(self, reason: str, _: Any) -> None:
        if self.cut:
            self._held.append((self._hangup, reason))
        else:
            self.drop(reason or "closed by peer")
