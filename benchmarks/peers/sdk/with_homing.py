"""homing.Client and homing.Worker; see the package's docstring."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from benchmarks.peers.sdk.clockwork import CREDIT, drive, until_input_ends
from homing import Client, Worker


async def serve(endpoint: str) -> None:
    """An echo, run on the loop itself."""
    worker = Worker(endpoint)

    @worker.service("echo", concurrency=CREDIT, run="inline")
    def echo(body: bytes) -> bytes:
        return body

    running = asyncio.ensure_future(worker.run())
    await worker.ready()
    await until_input_ends()
    worker.stop()
    await running


async def ask(endpoint: str) -> None:
    """Requests over one connection."""
    async with Client(endpoint) as client:

        async def request(body: bytes) -> bytes:
            return await client.request("echo", body)

        await drive(request)


if __name__ == "__main__":
    uvloop.run({"worker": serve, "client": ask}[sys.argv[1]](sys.argv[2]))
