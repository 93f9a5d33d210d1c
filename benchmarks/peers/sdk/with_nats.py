"""nats-py against a nats-server; see the package's docstring."""

from __future__ import annotations

import sys
from typing import Any

import nats  # type: ignore[import-not-found]  # installed by the benchmark, not by the lock
import uvloop

from benchmarks.peers.sdk.clockwork import drive, until_input_ends


async def serve(endpoint: str) -> None:
    """An echo in a queue group."""
    connection = await nats.connect(endpoint)

    async def echo(message: Any) -> None:
        await message.respond(message.data)

    await connection.subscribe("echo", "workers", cb=echo)
    await connection.flush()
    await until_input_ends()
    await connection.close()


async def ask(endpoint: str) -> None:
    """Requests over one connection."""
    connection = await nats.connect(endpoint)

    async def request(body: bytes) -> bytes:
        answer = await connection.request("echo", body, timeout=30)
        return bytes(answer.data)

    await drive(request)
    await connection.close()


if __name__ == "__main__":
    uvloop.run({"worker": serve, "client": ask}[sys.argv[1]](sys.argv[2]))
