"""The same client and worker without asyncio, in threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from homing.errors import HomingError, LinkError, Malformed, NoService, Unavailable
from homing.sync import Client, Worker
from tests.service.rig import PATIENCE, broker

_gate = threading.Event()


@contextlib.contextmanager
def running_broker() -> Iterator[tuple[str, str]]:
    """A broker in a thread of its own: localfe and localbe."""
    ends: list[str] = []
    up, stop = threading.Event(), threading.Event()

    async def live() -> None:
        async with broker() as running:
            ends.extend((running.localfe, running.localbe))
            up.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    try:
        assert up.wait(PATIENCE)
        yield ends[0], ends[1]
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def running_worker(endpoint: str) -> Iterator[None]:
    worker = Worker(endpoint)

    @worker.service("double", concurrency=16)
    def double(number: int) -> int:
        return 2 * number

    @worker.service("count")
    def count(upto: int) -> Iterator[int]:
        yield from range(upto)

    @worker.service("gate")
    def gate(number: int) -> int:
        if number:
            assert _gate.wait(PATIENCE)
        return number

    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_request_map_and_stream() -> None:
    before = threading.active_count()
    with running_broker() as (localfe, localbe), running_worker(localbe):
        with Client(localfe, timeout=10) as client:
            client.connect()
            assert client.request("double", 21, returns=int, retries=5) == 42
            got = list(client.map("double", range(100), in_flight=16, returns=int))
            assert got == [2 * number for number in range(100)]
            assert list(client.stream("count", 5, returns=int)) == [0, 1, 2, 3, 4]
            for number in client.map("double", range(1000), returns=int):
                if number == 10:
                    break
            with pytest.raises(NoService):
                client.request("nobody")
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(client.request, "double", n, returns=int) for n in range(50)]
                assert [each.result() for each in asked] == [2 * n for n in range(50)]
        client.close()
    # The worker's pool is not waited for: what it ran may never end.
    deadline = time.monotonic() + PATIENCE
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_an_answer_is_there_before_the_next_one() -> None:
    _gate.clear()
    with (
        running_broker() as (localfe, localbe),
        running_worker(localbe),
        Client(localfe, timeout=10) as client,
    ):
        answers = client.map("gate", [0, 1, 2], returns=int, retries=5)
        assert next(answers) == 0  # while the worker waits in the second
        _gate.set()
        assert list(answers) == [1, 2]
        wrong = client.map("gate", [0, b"no number"], returns=int)
        assert next(wrong) == 0
        with pytest.raises(Malformed):
            next(wrong)


def test_nobody_there() -> None:
    with Client("tcp://127.0.0.1:1", timeout=0.2) as client, pytest.raises(Unavailable):
        client.connect()


def test_a_wrong_setting_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(ValueError, match="dialect"):
        Client(dialect="99")
    assert threading.active_count() == before


def test_a_closed_client_says_so_and_lets_go_of_who_waits() -> None:
    client = Client("tcp://127.0.0.1:1", timeout=60.0, retries=100)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.request, "echo", b"x", timeout=0.05)
        with pytest.raises(TimeoutError):
            waiting.result(0.3)  # it tries again and again
        client.close()
        with pytest.raises(HomingError):
            waiting.result(PATIENCE)
    with pytest.raises(LinkError, match="closed"):
        client.request("echo", b"x")
