"""Who may send next, when no more requests may be under way: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque

from homing.errors import RequestTimeout


class Turns:
    """A queue of those who wait for room; its owner wakes them and rings when time is up."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[None], float]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, deadline: float) -> None:
        """One's turn; RequestTimeout when it did not come in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, deadline))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.wake(1)  # it had come: the next in line takes it
            raise

    def wake(self, room: int) -> None:
        """Let so many go on."""
        while self._waiting and room > 0:
            turn, _ = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room -= 1

    def expire(self, now: float) -> float:
        """Fail those whose time is up; when the next one's will be."""
        first = float("inf")
        kept: deque[tuple[asyncio.Future[None], float]] = deque()
        for turn, deadline in self._waiting:
            if turn.done():
                continue
            if deadline <= now:
                turn.set_exception(RequestTimeout("no room to send in time"))
                continue
            kept.append((turn, deadline))
            first = min(first, deadline)
        self._waiting = kept
        return first
