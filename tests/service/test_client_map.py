"""`map`: an answer that is there is given out, whatever the next body waits for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import homing
from homing import sync
from homing.errors import Malformed
from homing.testing import fabric
from tests.service.rig import broker, on_loop, serving, within


@contextlib.asynccontextmanager
async def doubling(**settings: Any) -> AsyncIterator[homing.Client]:
    """A client whose broker has a worker for `double`."""
    async with (
        broker() as running,
        serving(_worker(running.localbe)),
        homing.Client(running.localfe, **settings) as client,
    ):
        yield client


def _worker(endpoint: str) -> homing.Worker:
    worker = homing.Worker(endpoint)
    worker.service("double", concurrency=64)(_double)
    return worker


async def _double(number: int) -> int:
    return number * 2


@on_loop
async def test_no_answer_waits_for_the_next_body() -> None:
    async with doubling() as client:
        heard = asyncio.Event()

        async def bodies() -> AsyncIterator[int]:
            for number in range(5):
                yield number
                await heard.wait()  # the next body is made of this one's answer
                heard.clear()

        got = []
        async for answer in client.map("double", bodies(), returns=int, timeout=5.0):
            got.append(answer)
            heard.set()
        assert got == [0, 2, 4, 6, 8]


@on_loop
async def test_bodies_are_asked_for_while_an_answer_is_waited_for() -> None:
    async with doubling() as client:
        asked = asyncio.Event()

        async def bodies() -> AsyncIterator[int]:
            yield 0
            for number in range(1, 20):
                await asyncio.sleep(0)
                yield number
            asked.set()

        answers = client.map("double", bodies(), in_flight=64, returns=int)
        assert await within(anext(answers)) == 0
        await within(asked.wait())  # though nobody reads on
        assert [each async for each in answers] == [2 * number for number in range(1, 20)]


@on_loop
async def test_what_the_bodies_raise_comes_behind_the_answers() -> None:
    async with doubling() as client:

        async def bodies() -> AsyncIterator[Any]:
            yield 1
            yield 2
            raise LookupError("no more")

        answers = client.map("double", bodies(), returns=int)
        assert [await anext(answers), await anext(answers)] == [2, 4]
        with pytest.raises(LookupError, match="no more"):
            await anext(answers)

        async def unwritable() -> AsyncIterator[Any]:
            yield 1
            yield object()

        answers = client.map("double", unwritable(), returns=int)
        assert await anext(answers) == 2
        with pytest.raises(Malformed):
            await anext(answers)


@on_loop
async def test_who_stops_reading_stops_the_bodies() -> None:
    async with doubling() as client:
        taken = 0

        async def bodies() -> AsyncIterator[int]:
            nonlocal taken
            while True:
                taken += 1
                yield taken

        async with contextlib.aclosing(
            client.map("double", bodies(), in_flight=4, returns=int)
        ) as answers:
            assert await anext(answers) == 2
            assert await anext(answers) == 4
        assert taken <= 7, "two are answered, four may be under way, one waits for room"


@pytest.mark.parametrize("dialect", ["01", "02"])
@on_loop
async def test_one_at_a_time_is_given_out_one_at_a_time(dialect: str) -> None:
    async with doubling(dialect=dialect) as client:
        taken: list[int] = []

        def bodies() -> Iterator[int]:
            for number in range(20):
                taken.append(number)
                yield number

        answers = client.map("double", bodies(), in_flight=64, returns=int)
        assert await within(anext(answers)) == 0
        assert len(taken) <= 2
        assert [each async for each in answers] == [2 * number for number in range(1, 20)]


@on_loop
async def test_bodies_that_take_their_time_do_not_stop_the_loop() -> None:
    async with doubling() as client:
        taken: list[int] = []

        def bodies() -> Iterator[int]:
            for number in range(2000):
                time.sleep(0.002)  # work that a body needs
                taken.append(number)
                yield number

        answers = client.map("double", bodies(), in_flight=2000, returns=int)
        assert await within(anext(answers)) == 0
        assert len(taken) < 2000
        await answers.aclose()


def test_blocking_bodies_may_wait_for_answers() -> None:
    with doubling_blocked() as client:
        heard = threading.Event()

        def bodies() -> Iterator[int]:
            for number in range(5):
                yield number
                assert heard.wait(10)
                heard.clear()

        got = []
        for answer in client.map("double", bodies(), returns=int):
            got.append(answer)
            heard.set()
        assert got == [0, 2, 4, 6, 8]
        once = (client.request("double", number, returns=int) for number in range(5))
        assert list(client.map("double", once, returns=int)) == [0, 4, 8, 12, 16]


def test_blocking_bodies_end_with_their_reader() -> None:
    with doubling_blocked() as client:
        before = threading.active_count()

        def forever() -> Iterator[int]:
            number = 0
            while True:
                yield number
                number += 1

        for answer in client.map("double", forever(), in_flight=8, returns=int):
            if answer == 200:
                break

        def broken() -> Iterator[int]:
            yield 1
            raise LookupError("no more")

        answers = client.map("double", broken(), returns=int)
        assert next(answers) == 2
        with pytest.raises(LookupError, match="no more"):
            next(answers)
        deadline = time.monotonic() + 20
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() == before


@contextlib.contextmanager
def doubling_blocked() -> Iterator[sync.Client]:
    with (
        fabric() as here,
        here.serving(_worker(here.workers)),
        sync.Client(here.clients, timeout=5.0) as client,
    ):
        yield client
