"""A new token key in three rounds, as docs/how-to/secure.md has it: nobody who may come in is kept out."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from homing import Publisher, Push, Subscriber
from homing.push.tickets import Ticket, ask_authority
from tests.push.processes import KINDS, Processes

TTL = 15
SPARE = 5  # of a ticket's life: a machine may be busy while it is tried
NODES = ("authority", *KINDS)
ROUNDS = (("old", "new"), ("new", "old"), ("new", ""))


def keys(key: str, others: str) -> tuple[str, ...]:
    return (
        f"security.token_key={key}",
        f"security.previous_token_keys={others}",
        f"push.token_ttl={TTL}s",
    )


class Tickets:
    """Those that were given out, each tried at the connector for as long as it lives."""

    def __init__(self, nodes: Processes) -> None:
        self.authority = f"http://{nodes.port(7006)}"
        self.tried = 0
        self._connector = nodes.port(7005)
        self._out: list[Ticket] = []

    async def take(self) -> None:
        client = os.urandom(12).hex()
        self._out.append(await asyncio.to_thread(ask_authority, self.authority, client))

    async def try_all(self) -> None:
        """Raises what keeps one of them out."""
        self._out = [one for one in self._out if time.time() - one.timestamp < TTL - SPARE]
        for one in self._out:
            async with Subscriber(
                one.client_id, self._connector, token=one.token, timestamp=one.timestamp
            ) as source:
                await source.subscribe("never = 1")
            self.tried += 1


async def comes_back(source: Subscriber, publisher: Publisher, number: int) -> None:
    """Whatever was under way: a subscriber that has lost its connection is let in again."""
    assert source._moorings is not None
    assert source._moorings.link is not None
    source._moorings.link.close()
    async with asyncio.timeout(60):
        assert await publisher.publish({"n": number}) == 1
        push = await anext(source)
    assert isinstance(push, Push)
    assert push.attrs == {"n": number}


async def rotate(directory: Path) -> None:
    async with Processes(directory, *keys("old", "")) as nodes:
        await nodes.start("authority")
        tickets = Tickets(nodes)
        async with (
            Subscriber(os.urandom(12).hex(), authority=tickets.authority, durable=True) as source,
            Publisher(nodes.port(7001)) as publisher,
        ):
            await source.subscribe("n >= 0")
            number = 0
            for key, others in ROUNDS:
                if not others:
                    await asyncio.sleep(TTL)
                nodes.set(*keys(key, others))
                for kind in NODES:
                    await tickets.take()
                    await nodes.kill(kind, signal.SIGTERM)
                    await nodes.start(kind)
                    await tickets.try_all()
                    await comes_back(source, publisher, number := number + 1)
    assert tickets.tried >= len(ROUNDS) * len(NODES)


@pytest.mark.slow
def test_whoever_may_come_in_is_let_in_while_the_key_changes(tmp_path: Path) -> None:
    asyncio.run(rotate(tmp_path))
