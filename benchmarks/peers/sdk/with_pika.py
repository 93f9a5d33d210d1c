"""aio-pika against RabbitMQ, answers by direct reply-to; see the package's docstring."""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

import aio_pika  # type: ignore[import-not-found]  # installed by the benchmark, not by the lock
import uvloop

from benchmarks.peers.sdk.clockwork import CREDIT, drive, until_input_ends

REPLIES = "amq.rabbitmq.reply-to"


async def serve(endpoint: str) -> None:
    """An echo that holds as many requests as the others have credit, and acknowledges each."""
    connection = await aio_pika.connect(endpoint)
    # Nobody else's answers are confirmed to their worker either: a lost one is asked for again.
    channel = await connection.channel(publisher_confirms=False)
    await channel.set_qos(prefetch_count=CREDIT)
    queue = await channel.declare_queue("echo", auto_delete=True)

    async def echo(message: Any) -> None:
        answer = aio_pika.Message(message.body, correlation_id=message.correlation_id)
        await channel.default_exchange.publish(answer, message.reply_to, mandatory=False)
        await message.ack()

    await queue.consume(echo)
    await until_input_ends()
    await connection.close()


async def ask(endpoint: str) -> None:
    """Requests over one channel, told apart by their correlation ids."""
    connection = await aio_pika.connect(endpoint)
    channel = await connection.channel(publisher_confirms=False)
    waiting: dict[str, asyncio.Future[bytes]] = {}
    numbers = itertools.count()

    async def receive(message: Any) -> None:
        waiting.pop(message.correlation_id).set_result(message.body)

    replies = await channel.get_queue(REPLIES, ensure=False)
    await replies.consume(receive, no_ack=True)

    async def request(body: bytes) -> bytes:
        number = str(next(numbers))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting[number] = answer
        message = aio_pika.Message(body, correlation_id=number, reply_to=REPLIES)
        await channel.default_exchange.publish(message, "echo", mandatory=False)
        return await answer

    await drive(request)
    await connection.close()


if __name__ == "__main__":
    uvloop.run({"worker": serve, "client": ask}[sys.argv[1]](sys.argv[2]))
