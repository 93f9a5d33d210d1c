"""How the simulated world behaves while nothing is wrong: delays, sizes, patience."""

from __future__ import annotations

from random import Random

import msgspec


class Line(msgspec.Struct, frozen=True):
    """One direction between two nodes: a fixed delay, a long-tailed jitter, a bandwidth."""

    delay: float = 0.0002
    jitter: float = 0.0002
    bandwidth: float | None = None  # bytes/s; None: no limit


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The weather: one profile for a whole simulation. See LOCAL, LAN and WAN."""

    line: Line = Line()
    # Bytes that a socket takes before they count as backlog: Linux's usual send buffer.
    window: int = 64 << 10
    # A link with more unsent bytes is broken, as a node's own hard limit does.
    backlog_limit: int = 64 << 20
    # A link over which nothing can pass for this long is given up: heartbeats of 5 s, three missed.
    patience: float = 15.0
    # A dial that gets no answer at all ends after this long.
    dial_timeout: float = 3.0
    # First and last pause between dials; each time twice as long, with jitter.
    backoff: tuple[float, float] = (0.05, 5.0)
    # A sync takes this long plus up to as much again: an SSD with its cache flushed.
    sync: float = 0.001
    # A timer is up to this late: one tick of a timer wheel.
    lateness: float = 0.001


LOCAL = Conditions(line=Line(delay=0.00002, jitter=0.00001))
LAN = Conditions()
WAN = Conditions(line=Line(delay=0.04, jitter=0.005))


def transit(line: Line, random: Random) -> float:
    """Seconds that a message is under way: most near `delay`, 1 in 100 many jitters later."""
    late = random.random()
    return line.delay + line.jitter * late / (1.01 - late)
