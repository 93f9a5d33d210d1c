"""Clients that are closed, and requests that are left, while others wait: nobody waits for ever."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

import homing
from homing.errors import Closed
from homing.sync import Client
from tests.service.rig import FakeBroker, broker, eventually, on_loop, serving, within
from tests.service.test_client import sample_worker
from tests.service.test_client_blocking import running_broker, running_worker


@on_loop
async def test_closing_tells_those_who_wait_for_room_and_asks_no_more() -> None:
    read: list[bytes] = []

    def take(images: list[bytes]) -> list[bytes]:
        read.extend(images)
        return []

    async with FakeBroker(take).listening() as peer:
        client = homing.Client(peer.endpoint, in_flight=1)
        asked = [asyncio.create_task(client.request("echo", b"%d" % n)) for n in range(4)]
        await eventually(lambda: len(read) == 1)
        await client.close()
        ends = await within(asyncio.gather(*asked, return_exceptions=True))
        assert [type(end) for end in ends] == [Closed] * 4
        assert len(read) == 1


@pytest.mark.parametrize("dialect", ["01", "02"])
@on_loop
async def test_where_requests_have_no_id_one_that_is_over_leaves_the_next_alone(
    dialect: str,
) -> None:
    async with (
        broker() as running,
        serving(sample_worker(running.localbe)),
        homing.Client(running.localfe, timeout=10.0, dialect=dialect) as client,
    ):
        parts = client.stream("count", 3)
        await anext(parts)
        await eventually(lambda: not len(client._asking))  # its last part is there, unread
        next_one = asyncio.create_task(client.request("wait", 0.2))
        await eventually(lambda: len(client._asking) == 1)
        await parts.aclose()
        assert await within(next_one) == b"0.2"


def test_an_iterator_that_outlives_its_client_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    with running_broker() as (localfe, localbe), running_worker(localbe):
        client = Client(localfe, timeout=10.0)
        answers = client.map("double", iter(range(10_000)), returns=int, retries=5)
        assert next(answers) == 0
        client.close()
        del answers
        gc.collect()
    assert unraisable == []
    assert "never retrieved" not in caplog.text
