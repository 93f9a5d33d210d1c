"""Client and worker in wrong hands: what has no meaning is told at once, and in words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from homing.errors import Closed, HomingError, Malformed
from homing.service.client import Client
from homing.service.worker import Worker
from homing.testing import fabric
from homing.testing.fabric import Fabric

PATIENCE = 20.0


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric() as nodes:
        yield nodes


def test_an_option_that_is_misspelt_is_no_option(here: Fabric) -> None:
    """`timout=1` was taken, and waited for half a minute."""

    async def main() -> None:
        async with Client(here.clients) as client:
            wrong: Any = {"timout": 1.0}
            with pytest.raises(TypeError, match="no option timout; there are: priority, retries"):
                await anext(client.map("mmi.services", [b""], **wrong))
            with pytest.raises(TypeError, match="timout"):
                await anext(client.stream("mmi.services", **wrong))
            nameless: Any = b"mmi.services"
            with pytest.raises(TypeError, match=r"bytes|str"):
                await client.request(nameless)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"timeout": 0}, "more than 0 seconds"),
        ({"priority": 10}, "a priority is 0 to 9, got 10"),
        ({"service": "\ud800"}, "UTF-8"),
        ({"body": "\ud800"}, "UTF-8"),
    ],
)
def test_what_a_request_cannot_say_is_malformed(
    here: Fabric, wrong: dict[str, Any], match: str
) -> None:
    async def main() -> None:
        async with Client(here.clients) as client:
            with pytest.raises(Malformed, match=match):
                await client.request(**{"service": "mmi.services", **wrong})

    asyncio.run(main())


def test_a_client_is_told_what_is_wrong_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="in_flight is at least 1"):
        Client(in_flight=0)
    with pytest.raises(ValueError, match="heartbeat is more than 0"):
        Client(heartbeat=0)


def test_a_client_that_was_closed_is_not_worth_another_try(here: Fabric) -> None:
    async def main() -> None:
        client = Client(here.clients)
        await client.close()
        with pytest.raises(Closed) as told:
            await client.request("mmi.services")
        assert not told.value.retryable
        assert isinstance(told.value, HomingError)

    asyncio.run(main())


def test_a_service_has_a_name() -> None:
    """The decorator without its parentheses is what everybody tries first."""
    worker: Any = Worker()
    with pytest.raises(TypeError, match=r'@worker.service\("name"\)'):
        worker.service(lambda body: body)


def test_a_worker_runs_once_at_a_time(here: Fabric) -> None:
    """The first run never ended: `stop` was for the second."""
    worker = Worker(here.workers)
    worker.service("echo")(lambda body: body)

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            for _ in range(2):
                running = asyncio.create_task(worker.run(grace=0.1))
                await worker.ready()
                with pytest.raises(RuntimeError, match="runs already"):
                    await worker.run()
                worker.stop()
                await running

    asyncio.run(main())
