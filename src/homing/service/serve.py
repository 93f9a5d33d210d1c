"""How a worker's function is called: on the loop, elsewhere, at once or part by part."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from homing.errors import Failed, Refused
from homing.service.bodies import Read

_END = object()
# A reason is a line for people, not a traceback.
_MAX_REASON = 200


class Serve:
    """A function, how to run it, and how its argument and its result are read and written."""

    def __init__(
        self, function: Callable[..., Any], way: str, read: Read, write: Callable[[Any], bytes]
    ) -> None:
        self.function = function
        self.way = way
        self.read = read
        self.write = write
        self.pool: Executor | None = None
        self.parted = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)

    def now(self, data: bytes) -> bytes:
        """One answer, made here and now."""
        return self.write(self.function(self.read(data)))

    async def on_loop(self, data: bytes) -> bytes:
        """One answer of a coroutine function."""
        return self.write(await self.function(self.read(data)))

    async def elsewhere(self, data: bytes) -> bytes:
        """One answer of a plain function, in its pool."""
        run = asyncio.get_running_loop().run_in_executor
        try:
            return self.write(await run(self.pool, self.function, self.read(data)))
        except BrokenProcessPool:
            raise Failed("a process died, of this request or of one beside it") from None

    async def parts(self, data: bytes) -> AsyncGenerator[bytes, None]:
        """An answer in parts."""
        parts = self.function(self.read(data))
        if self.way == "loop":
            async for part in parts:
                yield self.write(part)
        elif self.pool is None:
            for part in parts:
                yield self.write(part)
        else:
            run = asyncio.get_running_loop().run_in_executor
            while (part := await run(self.pool, next, parts, _END)) is not _END:
                yield self.write(part)


def reason_of(error: Exception) -> str:
    """A refusal in one short line, its code first."""
    if isinstance(error, Refused):
        text = f"{error.code} {error}"
    else:
        text = f"{Failed.code} {type(error).__name__}: {error}"
    return " ".join(text.split())[:_MAX_REASON]
