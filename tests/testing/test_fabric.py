"""Users' tests get a real broker by one `with`, whether they block or await."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import homing
import homing.sync
from homing.errors import ConfigError, NoService
from homing.testing import Fabric, fabric
from homing.wire.pushed import Push


def adder(endpoint: str) -> homing.Worker:
    """A worker as a user would write it."""
    worker = homing.Worker(endpoint)

    @worker.service("sum")
    def total(numbers: list[float]) -> float:
        return sum(numbers)

    @worker.service("echo", concurrency=4)
    async def echo(body: bytes) -> bytes:
        return body

    return worker


def ask(here: Fabric) -> float:
    with homing.sync.Client(here.clients, timeout=5.0) as client:
        return client.request("sum", [1, 2, 3.5], returns=float)


def test_a_blocking_test_gets_answers() -> None:
    with fabric() as here, here.serving(adder(here.workers)):
        assert ask(here) == 6.5


def test_a_coroutine_gets_answers() -> None:
    async def scenario() -> list[bytes]:
        with fabric() as here, here.serving(adder(here.workers)):
            async with homing.Client(here.clients, timeout=5.0) as client:
                return [answer async for answer in client.map("echo", [b"a", b"b", b"c"])]

    assert asyncio.run(scenario()) == [b"a", b"b", b"c"]


def test_fabrics_do_not_see_each_other_and_leave_nothing_behind() -> None:
    threads = threading.active_count()
    with fabric() as one, fabric() as other, one.serving(adder(one.workers)):
        assert ask(one) == 6.5
        with homing.sync.Client(other.clients, timeout=5.0) as client, pytest.raises(NoService):
            client.request("sum", [1])
        folder = Path(one.clients.removeprefix("ipc://")).parent
        assert folder.is_dir()
    assert not folder.exists()
    assert threading.active_count() == threads


def test_settings_reach_the_broker() -> None:
    with (
        fabric("service.max_message=1KiB") as here,
        here.serving(adder(here.workers)),
        homing.sync.Client(here.clients, timeout=5.0) as client,
    ):
        assert client.request("echo", bytes(1000)) == bytes(1000)
        with pytest.raises(homing.HomingError, match="1024"):
            client.request("echo", bytes(2000))


def test_a_wrong_setting_is_told_at_once() -> None:
    told = pytest.raises(ConfigError, match="no_such_thing")
    with told, fabric("service.no_such_thing=1"):
        raise AssertionError("it started")


def test_a_worker_without_services_is_told_at_once() -> None:
    told = pytest.raises(ValueError, match="without a service")
    with fabric() as here, told, here.serving(homing.Worker(here.workers)):
        raise AssertionError("it serves")


def test_publications_reach_those_they_concern() -> None:
    async def scenario() -> list[bytes]:
        with fabric(push=True) as here:
            async with (
                here.subscriber() as subscriber,
                homing.Publisher(here.publishers) as publisher,
            ):
                await subscriber.subscribe("price > 10")
                matched = [
                    await publisher.publish({"price": price}, b"%d" % price)
                    for price in (5, 12, 7, 20)
                ]
                assert matched == [0, 1, 0, 1]
                got: list[bytes] = []
                async for push in subscriber:
                    assert isinstance(push, Push)
                    got.append(push.body)
                    if len(got) == 2:
                        break
                return got

    assert asyncio.run(scenario()) == [b"12", b"20"]
