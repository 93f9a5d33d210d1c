"""The only file that asks the operating system for the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one that never goes back, for deadlines; one for people, for records."""

    def monotonic(self) -> float:
        """Seconds that never go back; meaningful only as a difference."""
        ...

    def wall(self) -> float:
        """Unix time in seconds; may jump."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)
