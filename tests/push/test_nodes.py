"""The push plane as real processes: every node killed once, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from homing import sync
from homing.errors import Denied, Malformed, Replaced, RequestTimeout, SubscriptionError
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.wire.pushed import Push
from tests.push.processes import KINDS, Processes

pytestmark = pytest.mark.slow


def subscriber(nodes: Processes, client: str, *, durable: bool = True) -> Subscriber:
    keys = Keyring([nodes.token_key()])

    def credentials() -> tuple[int, str]:
        stamp = int(time.time())
        return stamp, keys.issue(client, stamp)

    where = nodes.port(7005)
    return Subscriber(client, where, credentials=credentials, durable=durable)


async def collect(source: Subscriber, into: list[Push]) -> None:
    async for one in source:
        assert isinstance(one, Push)
        into.append(one)


async def wait_for(reached: object, seconds: float = 60.0) -> None:
    assert callable(reached)
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached in time"
        await asyncio.sleep(0.02)


async def publish_on(publisher: Publisher, accepted: list[int], stop: asyncio.Event) -> None:
    """Some hundred a second, several under way, until told to stop."""
    number = 0
    under_way: set[asyncio.Task[None]] = set()

    async def one(n: int) -> None:
        await publisher.publish({"n": n}, f"payload {n}")
        accepted.append(n)

    while not stop.is_set():
        task = asyncio.create_task(one(number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        number += 1
        await asyncio.sleep(0.005)
    await asyncio.gather(*under_way)


async def killed_in_turn(directory: Path) -> None:
    async with (
        Processes(directory) as nodes,
        Publisher(nodes.port(7001), timeout=60.0) as publisher,
        subscriber(nodes, os.urandom(12).hex()) as durable,
    ):
        await durable.subscribe("n >= 0")
        accepted: list[int] = []
        got: list[Push] = []
        stop = asyncio.Event()
        reader = asyncio.create_task(collect(durable, got))
        writer = asyncio.create_task(publish_on(publisher, accepted, stop))
        for kind in KINDS:
            before = len(accepted)
            await wait_for(lambda before=before: len(accepted) > before + 50)
            await nodes.kill(kind)
            await nodes.start(kind)
        after = len(accepted)
        await wait_for(lambda: len(accepted) > after + 50)
        stop.set()
        await writer
        await wait_for(lambda: len(got) >= len(accepted))
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader
        numbers = [int(one.attrs["n"]) for one in got]
        assert numbers == sorted(accepted) == list(range(len(accepted)))
        assert all(one.body == f"payload {one.attrs['n']}".encode() for one in got)


def test_every_node_killed_once_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    asyncio.run(killed_in_turn(tmp_path))


async def clients_at_work(directory: Path) -> None:
    async with (
        Processes(directory, "journal.durability=os") as nodes,
        Publisher(nodes.port(7001)) as publisher,
        subscriber(nodes, os.urandom(12).hex(), durable=False) as plain,
    ):
        await plain.subscribe('price in 10..20 and city = "Paris" or vip = true')
        assert await publisher.publish({"price": 12.5, "city": "Paris"}, "text\r\n") == 1
        assert await publisher.publish({"vip": True}, b"\xff\x00\r\n") == 1
        assert await publisher.publish({"price": 12.5, "city": "paris"}) == 0
        first, second = await anext(plain), await anext(plain)
        assert isinstance(first, Push)
        assert isinstance(second, Push)
        assert (first.body, second.body) == (b"text\r\n", b"\xff\x00\r\n")
        await plain.subscribe("price < 0")
        assert await publisher.publish({"vip": True}) == 0
        await plain.unsubscribe()
        assert await publisher.publish({"price": -1}) == 0
        await twice_under_one_id(publisher, plain)
        await rivals(nodes)
        with pytest.raises(SubscriptionError):
            await publisher.publish({"a": float("nan")})
        with pytest.raises(Malformed):
            await plain.subscribe({}, "empty")
        counts = [
            count
            async for count in publisher.publish_all(({"n": n}, b"x" * 100) for n in range(300))
        ]
        assert counts == [0] * 300
        await asyncio.to_thread(without_asyncio, nodes)
        await refused(nodes)
        assert await nodes.kill("connector", signal.SIGTERM) == 0


async def twice_under_one_id(publisher: Publisher, plain: Subscriber) -> None:
    """A publication sent again under its own id is answered alike and goes nowhere."""
    identity = os.urandom(12)
    await plain.subscribe("vip = true")
    counts = await asyncio.gather(
        *[publisher.publish({"vip": True}, "same", identity=identity) for _ in range(3)]
    )
    counts.append(await publisher.publish({"vip": True}, "same", identity=identity))
    assert counts == [1] * 4
    await publisher.publish({"vip": True}, "other")
    got = [await anext(plain), await anext(plain)]
    assert [one.body for one in got if isinstance(one, Push)] == [b"same", b"other"]
    assert isinstance(got[0], Push)
    assert got[0].id == identity.hex()
    with pytest.raises(Malformed, match="12 bytes"):
        await publisher.publish({"vip": True}, identity=b"short")
    await plain.unsubscribe()


async def rivals(nodes: Processes) -> None:
    """Of two with one client id, one stays and the other is told and ends."""
    client = os.urandom(12).hex()
    async with (
        subscriber(nodes, client, durable=False) as one,
        subscriber(nodes, client, durable=False) as other,
    ):

        async def take_part(source: Subscriber) -> None:
            await source.subscribe("vip = true")
            await collect(source, [])

        readers = [asyncio.create_task(take_part(source)) for source in (one, other)]
        done, staying = await asyncio.wait(
            readers, timeout=60.0, return_when=asyncio.FIRST_COMPLETED
        )
        [loser], [winner] = done, staying
        assert isinstance(loser.exception(), Replaced)
        ended = one if loser is readers[0] else other
        for ask in (anext(ended), ended.subscribe("vip = false")):
            with pytest.raises(Replaced, match="client id"):
                await ask
        winner.cancel()


def without_asyncio(nodes: Processes) -> None:
    """The blocking forms, from a thread without a loop."""
    keys, client = Keyring([nodes.token_key()]), os.urandom(12).hex()
    stamp = int(time.time())
    token = keys.issue(client, stamp)
    with (
        sync.Publisher(nodes.port(7001)) as publisher,
        sync.Subscriber(client, nodes.port(7005), token=token, timestamp=stamp) as subscriber,
    ):
        subscriber.subscribe("m >= 1", name="Mine")
        assert publisher.publish({"m": 1}, "one") == 1
        assert publisher.publish_all([({"m": n}, b"") for n in range(3)]) == [0, 1, 1]
        got = [next(subscriber) for _ in range(3)]
        assert [(one.attrs["m"], one.subs) for one in got if isinstance(one, Push)] == [
            (1, ["Mine"]),
            (1, ["Mine"]),
            (2, ["Mine"]),
        ]
        with pytest.raises(TimeoutError):
            subscriber.get(timeout=0.05)
        subscriber.unsubscribe("Mine")
        assert publisher.publish({"m": 1}) == 0


async def refused(nodes: Processes) -> None:
    """A wrong token is told; a matcher that is not there is named."""
    async with Subscriber("0" * 24, nodes.port(7005), token="00", timestamp=1) as stranger:
        with pytest.raises(Denied, match="not this client's"):
            await anext(stranger)
    async with Publisher("127.0.0.1:1", timeout=0.5) as lonely:
        with pytest.raises(RequestTimeout, match="no matcher answers at 127"):
            await lonely.publish({"a": 1})


def test_publisher_and_subscriber_on_real_nodes(tmp_path: Path) -> None:
    asyncio.run(clients_at_work(tmp_path))
