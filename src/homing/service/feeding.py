"""The bodies of `map`: asked for as they come, while an answer that is there waits for none of them.

A plain iterable is taken from between answers, from an async one a task takes. A blocking client has plain ones that may wait taken from by
a thread (homing.loops.Elsewhere).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, Final

from homing.loops import Ahead
from homing.service.asking import Asked, Asking, Plan
from homing.service.lifeline import Lifeline

MOMENT: Final = 0.001
"""Seconds of asking after which answers are looked for: bodies may be work to make."""

Window = deque[tuple[Asked, bytes]]
"""What is under way, oldest first, with its data."""
Ask = Callable[[bytes], Awaitable[Asked]]
Write = Callable[[Any], bytes]


class Filling:
    """Asks for the items of a plain iterable."""

    def __init__(
        self, items: Iterable[Any], write: Write, plan: Plan, asking: Asking, lifeline: Lifeline
    ) -> None:
        self.window: Window = deque()
        self._items = iter(items)
        self._write = write
        self._plan = plan
        self._asking = asking
        self._lifeline = lifeline
        self._kept = b""  # data that could not be sent at once

    def fill(self, most: int) -> bool:
        """Have so many under way, if that needs no waiting; False if it does: ask `go_on`."""
        window, plan, lifeline = self.window, self._plan, self._lifeline
        at_once, write = self._asking.at_once, self._write
        rest_at = 0.0
        while len(window) < most:
            data = self._kept
            if not data:
                for item in self._items:
                    data = write(item)
                    break
                else:
                    return True
            asked = at_once(plan, b"", data, lifeline.stream)
            if asked is None:
                self._kept = data
                return False
            self._kept = b""
            window.append((asked, data))
            if not rest_at:
                rest_at = asked.deadline + MOMENT
            elif asked.deadline > rest_at:
                return False
        return True

    async def go_on(self, full: Callable[[], bool], ask: Ask) -> bool:
        """Let the loop turn, or wait for one's turn to send; False: the oldest's answer comes first."""
        window, data = self.window, self._kept
        if not data:
            await asyncio.sleep(0)
            return not window[0][0].done.done()
        if window and full():
            return False
        self._kept = b""
        window.append((await ask(data), data))
        return True

    async def stop(self) -> None:
        """Nothing runs."""


class Feeding(Ahead[tuple[Asked, bytes]]):
    """Asks for the items of an async iterable, in a task."""

    def __init__(self, items: AsyncIterable[Any], write: Write, ask: Ask) -> None:
        async def begin(item: Any) -> tuple[Asked, bytes]:
            data = write(item)
            return await ask(data), data

        super().__init__(items, begin)

    def fill(self, most: int) -> bool:
        """So many may be under way; False if none is."""
        return self.allow(most)

    async def go_on(self, full: Callable[[], bool], ask: Ask) -> bool:
        """Until one is under way, or none will be; what the items raised comes behind their answers."""
        await self.first()
        return False
