"""Waiting for somebody else, and saying so before a person wonders whether anything happens."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from homing.cli.outcome import say

PATIENCE = 2.0
"""Seconds that people wait without asking themselves what for."""

T = TypeVar("T")


async def awaited(arrival: Coroutine[Any, Any, T], what: str) -> T:
    """What `arrival` gives; `what` is said on stderr, once, where it takes a while."""
    coming = asyncio.ensure_future(arrival)
    try:
        if not (await asyncio.wait([coming], timeout=PATIENCE))[0]:
            say(what)
        return await coming
    finally:
        coming.cancel()
