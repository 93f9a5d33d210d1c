"""Clocks that move only when told: by a test, or by a simulation's virtual time."""

from __future__ import annotations

# Wall clocks of tests start here (2023-11-14 22:13:20 UTC): late enough that no id or token
# looks like 1970, round enough to subtract by eye.
EPOCH = 1_700_000_000.0


class ManualClock:
    """A homing.clock.Clock whose two clocks move only by `advance` and `jump`."""

    __slots__ = ("_now", "_skew")

    def __init__(self, now: float = 0.0, skew: float = 0.0) -> None:
        self._now = now
        self._skew = skew

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._now

    def wall(self) -> float:
        """The unix time this machine believes in: EPOCH + monotonic + its skew."""
        return EPOCH + self._now + self._skew

    def advance(self, seconds: float) -> float:
        """Let time pass on both clocks; returns the new monotonic time."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        self._now += seconds
        return self._now

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP would."""
        self._skew += seconds
