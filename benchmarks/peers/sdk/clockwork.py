"""What the scripts here share: the measured loop around one awaitable request."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable

BODY = bytes(64)
CREDIT = 16
IN_FLIGHT = 64
WARM = 0.5
SECONDS = 2.0


async def drive(request: Callable[[bytes], Awaitable[bytes]]) -> None:
    """Keep requests under way from as many tasks, count those that end in the window."""
    done = 0
    running = True

    async def one() -> None:
        nonlocal done
        while running:
            answer = await request(BODY)
            assert answer == BODY
            done += 1

    tasks = [asyncio.ensure_future(one()) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(WARM)
    before, began, cpu = done, time.perf_counter(), _cpu()
    await asyncio.sleep(SECONDS)
    seconds, requests, spent = time.perf_counter() - began, done - before, _cpu() - cpu
    running = False
    await asyncio.gather(*tasks)
    told = {"requests": requests, "seconds": seconds, "cpu_us": spent / max(1, requests) * 1e6}
    print("end", json.dumps(told), flush=True)


async def until_input_ends() -> None:
    """A worker's life: says that it is ready, ends when whoever started it says so."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
