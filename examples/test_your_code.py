"""How to test what you build on homing: a real fabric inside the test, gone when it ends.

    pytest examples/test_your_code.py

`shop` below stands for your application. Nothing is mocked: the broker, the matcher, the connector
and every byte between them are real; only the ports and files are the test's own.
"""

from __future__ import annotations

import asyncio

import pytest

import homing
import homing.sync
from homing.testing import Fabric, fabric

# --- your application --------------------------------------------------------------------------


def shop(broker: str) -> homing.Worker:
    """A worker with two services."""
    worker = homing.Worker(broker)

    @worker.service("price")
    def price(basket: dict[str, int]) -> float:
        prices = {"tea": 4.5, "cake": 3.0}
        return sum(prices[article] * number for article, number in basket.items())

    @worker.service("slow", concurrency=4)
    async def slow(body: bytes) -> bytes:
        await asyncio.sleep(30)
        return body

    return worker


async def watch_prices(subscriber: homing.Subscriber, below: float) -> float:
    """The first price below a limit."""
    await subscriber.subscribe(f"price < {below}")
    async for push in subscriber:
        if isinstance(push, homing.Push):
            return float(push.attrs["price"])
    raise EOFError


# --- its tests ---------------------------------------------------------------------------------


def test_a_basket_is_priced() -> None:
    with (
        fabric() as here,
        here.serving(shop(here.workers)),
        homing.sync.Client(here.clients) as client,
    ):
        assert client.request("price", {"tea": 2, "cake": 1}, returns=float) == 12.0


def test_an_unknown_article_is_an_error_for_the_caller() -> None:
    with (
        fabric() as here,
        here.serving(shop(here.workers)),
        homing.sync.Client(here.clients) as client,
        pytest.raises(homing.Refused) as refused,
    ):
        client.request("price", {"coffee": 1})
    assert refused.value.code == "failed"
    assert "KeyError" in str(refused.value)


def test_nobody_waits_for_ever() -> None:
    """Settings are those of `homing broker --set`."""
    with (
        fabric("service.request_timeout=200ms") as here,
        here.serving(shop(here.workers)),
        homing.sync.Client(here.clients) as client,
        pytest.raises(TimeoutError),
    ):
        client.request("slow", b"", timeout=0.2)


def test_the_first_low_price_is_found() -> None:
    async def scenario(here: Fabric) -> None:
        async with here.subscriber() as subscriber, homing.Publisher(here.publishers) as publisher:
            watching = asyncio.create_task(watch_prices(subscriber, below=10))
            prices = iter((12.5, 11.0, 9.5, 3.0))
            while not watching.done():  # until somebody is there, and then until it is found
                await publisher.publish({"price": next(prices, 9.5)})
                await asyncio.sleep(0.02)
            assert await watching < 10

    with fabric(push=True) as here:
        asyncio.run(scenario(here))
