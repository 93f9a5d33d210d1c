"""homing's own publisher in Python: how many publications a second are acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.push.servers import Server
from homing.node.run import run
from homing.push.publisher import Publisher

PAYLOAD = b"x" * 128


def publications_per_second(server: Server, under_way: int, seconds: float) -> float:
    """Publish to a fresh server for a while, each publication acknowledged."""
    with server.start() as running:
        return run(_publish(running.publishers, under_way, seconds))


async def _publish(port: int, under_way: int, seconds: float) -> float:
    async with Publisher(f"127.0.0.1:{port}", window=under_way) as publisher:
        await publisher.publish({"price": 0.0}, PAYLOAD)  # connected, and the matcher is ready
        began = time.monotonic()
        count = 0
        async for _ in publisher.publish_all(_for(began + seconds)):
            count += 1
        return count / (time.monotonic() - began)


def _for(end: float) -> Iterator[tuple[dict[str, float], bytes]]:
    number = 0
    while time.monotonic() < end:
        number += 1
        yield {"price": float(number)}, PAYLOAD
