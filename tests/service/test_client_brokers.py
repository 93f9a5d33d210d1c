"""A client that has several brokers to choose from."""

from __future__ import annotations

import asyncio

import pytest

import homing
from homing.errors import ShuttingDown
from homing.service.switch import Broker
from tests.service.rig import broker, eventually, on_loop, serving
from tests.service.test_client import sample_worker


@pytest.mark.parametrize("mapped", [False, True])
@on_loop
async def test_a_broker_that_shuts_down_is_left_for_another(mapped: bool) -> None:
    async with (
        broker() as leaving,
        broker() as staying,
        serving(sample_worker(leaving.localbe)),
        serving(sample_worker(staying.localbe)),
        homing.Client([leaving.localfe, staying.localfe], timeout=10.0) as client,
    ):
        slow = asyncio.create_task(client.request("wait", 0.3))
        await client.request("echo", b"x")
        assert isinstance(leaving.host.role, Broker)
        leaving.host.role.drain(leaving.host.now())
        with pytest.raises(ShuttingDown):
            await client.request("echo", b"x")
        assert await slow == b"0.3"  # what it owed us was waited for
        if mapped:
            got = [one async for one in client.map("echo", [b"y"] * 9, retries=5)]
            assert got == [b"y"] * 9
        else:
            assert await client.request("echo", b"y", retries=5) == b"y"
        await eventually(lambda: not leaving.host.plugs["localfe"].links)
