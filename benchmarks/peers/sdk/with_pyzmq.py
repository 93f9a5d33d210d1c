"""zmq.asyncio sockets that speak 7/MDP to a Majordomo broker; see the package's docstring."""

from __future__ import annotations

import asyncio
import itertools
import sys

import uvloop
import zmq
import zmq.asyncio

from benchmarks.peers.sdk.clockwork import CREDIT, drive, until_input_ends


async def serve(endpoint: str) -> None:
    """As many one-at-a-time workers as the others have credit."""
    tasks = [asyncio.ensure_future(_worker(endpoint)) for _ in range(CREDIT)]
    await asyncio.sleep(0.5)
    await until_input_ends()
    for task in tasks:
        task.cancel()


async def _worker(endpoint: str) -> None:
    socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    socket.connect(endpoint)
    await socket.send_multipart([b"", b"MDPW01", b"\x01", b"echo"])
    while True:
        _, header, command, *rest = await socket.recv_multipart()
        if command == b"\x02":
            await socket.send_multipart([b"", header, b"\x03", *rest])
        elif command == b"\x04":
            await socket.send_multipart([b"", header, b"\x04"])


async def ask(endpoint: str) -> None:
    """One DEALER; answers are told apart by a number in a frame of their own."""
    socket = zmq.asyncio.Context.instance().socket(zmq.DEALER)
    socket.connect(endpoint)
    waiting: dict[bytes, asyncio.Future[bytes]] = {}
    numbers = itertools.count()

    async def receive() -> None:
        while True:
            *_, number, body = await socket.recv_multipart()
            waiting.pop(number).set_result(body)

    async def request(body: bytes) -> bytes:
        number = b"%d" % next(numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting[number] = answer
        await socket.send_multipart([b"", b"MDPC01", b"echo", number, body])
        return await answer

    receiving = asyncio.ensure_future(receive())
    await drive(request)
    receiving.cancel()


if __name__ == "__main__":
    uvloop.run({"worker": serve, "client": ask}[sys.argv[1]](sys.argv[2]))
