"""The worker: functions of every kind, refusals, heartbeats, and stopping without losing work."""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import homing
from homing.errors import Failed, LinkError, Malformed
from homing.service import station
from homing.service.station import FEW, TURN
from homing.wire import mdp
from homing.wire.frames import pack, unpack
from homing.wire.mdp_messages import Dialect
from tests.service.rig import (
    PATIENCE,
    FakeBroker,
    Running,
    broker,
    eventually,
    on_loop,
    serving,
    within,
)


def client_of(running: Running) -> homing.Client:
    return homing.Client(running.localfe, timeout=10.0)


def process_id(body: bytes) -> int:
    return os.getpid()


@on_loop
async def test_functions_run_where_they_are_told_to() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)
        together = threading.Barrier(4)

        @worker.service("thread", concurrency=4)
        def in_thread(body: bytes) -> str:
            together.wait(PATIENCE)  # passes only if four run at once
            return threading.current_thread().name

        @worker.service("inline", run="inline")
        def inline(body: bytes) -> str:
            return threading.current_thread().name

        worker.service("process", run="process")(process_id)
        async with serving(worker), client_of(running) as client:
            names = [each async for each in client.map("thread", [b""] * 4, returns=str)]
            assert all(name.startswith("homing-worker") for name in names)
            assert await client.request("inline", returns=str) == threading.main_thread().name
            assert await client.request("process", returns=int) != os.getpid()


async def requests_a_turn(count: int, serve: Callable[[], None]) -> Counter[int]:
    """How many of so many requests a worker serves in each turn of the loop."""
    turns = 0
    seen: Counter[int] = Counter()

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with broker() as running:
        worker = homing.Worker(running.localbe)

        @worker.service("echo", concurrency=count, run="inline")
        def echo(body: bytes) -> bytes:
            seen[turns] += 1
            serve()
            return body

        async with serving(worker), client_of(running) as client:
            turning = asyncio.ensure_future(turn())
            bodies = [b"%d" % number for number in range(count)]
            assert [each async for each in client.map("echo", bodies, in_flight=count)] == bodies
            turning.cancel()
    assert sum(seen.values()) == count
    return seen


@on_loop
async def test_slow_inline_functions_leave_the_loop_its_turns() -> None:
    """Many requests in one chunk: heartbeats and the first answers go out between them."""
    seen = await requests_a_turn(100, lambda: time.sleep(2 * TURN))
    assert max(seen.values()) <= FEW


@on_loop
async def test_quick_inline_functions_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(station, "TURN", math.inf)
    seen = await requests_a_turn(2000, lambda: None)
    assert max(seen.values()) > FEW


@on_loop
async def test_generators_of_every_kind_answer_in_parts() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)

        @worker.service("async")
        async def one(upto: int) -> AsyncIterator[int]:
            for number in range(upto):
                yield number

        @worker.service("thread")
        def two(upto: int) -> Iterator[int]:
            yield from range(upto)

        @worker.service("inline", run="inline")
        def three(upto: int) -> Iterator[int]:
            yield from range(upto)

        @worker.service("broken")
        async def four(upto: int) -> AsyncIterator[int]:
            yield 1
            raise Malformed("half way")

        async with serving(worker), client_of(running) as client:
            for name in ("async", "thread", "inline"):
                got = [each async for each in client.stream(name, 5, returns=int)]
                assert got == [0, 1, 2, 3, 4], name
            parts = client.stream("broken", 5, returns=int)
            assert await anext(parts) == 1
            with pytest.raises(Malformed, match="half way"):
                await anext(parts)


@on_loop
async def test_an_inline_function_s_exceptions_are_refusals_too() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)

        @worker.service("divide", run="inline")
        def divide(by: int) -> float:
            return 1 / by

        async with serving(worker), client_of(running) as client:
            with pytest.raises(Failed, match="ZeroDivisionError"):
                await client.request("divide", 0)
            with pytest.raises(Malformed):
                await client.request("divide", b"not json")
            assert await client.request("divide", 2, returns=float) == 0.5


@on_loop
async def test_a_worker_for_any_service() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)

        @worker.service("", concurrency=2)
        async def anything(body: bytes) -> bytes:
            return body.upper()

        async with serving(worker), client_of(running) as client:
            assert await client.request("whatever", b"x") == b"X"
            assert await client.request("another", b"y") == b"Y"


@on_loop
async def test_a_long_request_is_not_a_dead_worker() -> None:
    async with broker(heartbeat=0.2) as running:
        worker = homing.Worker(running.localbe, heartbeat=0.2)
        runs = 0

        @worker.service("slow")
        async def slow(body: bytes) -> bytes:
            nonlocal runs
            runs += 1
            await asyncio.sleep(1.3)
            return body

        async with serving(worker), client_of(running) as client:
            assert await client.request("slow", b"x") == b"x"
        assert runs == 1


@on_loop
async def test_a_silent_broker_is_left_and_dialled_again() -> None:
    ready: list[bytes] = []

    def react(images: list[bytes]) -> list[bytes]:
        ready.extend(image for image in images if unpack(image)[2] == mdp.W_READY)
        return []

    fake = FakeBroker(react)
    async with fake.listening():
        worker = homing.Worker(fake.endpoint, heartbeat=0.05, liveness=2)
        worker.service("x", concurrency=7)(_nothing)
        async with serving(worker):
            await eventually(lambda: fake.connections >= 2 and len(ready) >= 2)
        assert unpack(ready[0]) == [b"", b"MDPW0X", b"\x01", b"x", b"7", b"30000"]


async def _nothing(body: bytes) -> None:
    return None


@pytest.mark.parametrize(
    "sent",
    [
        mdp.DISCONNECTS[Dialect.D0X],
        pack([b"", b"MDPW0X", b"\x02"]),
        pack([b"", b"MDPW0X", b"\x02", b"x", b"client"]),
        pack([b"", b"MDPW0X", b"\x63", b"x"]),
        pack([b"nonsense"]),
    ],
)
@on_loop
async def test_a_broker_that_parts_or_talks_nonsense_is_dialled_again(sent: bytes) -> None:
    fake = FakeBroker(lambda images: [sent] if images else [])
    async with fake.listening():
        worker = homing.Worker(fake.endpoint)
        worker.service("x")(_nothing)
        async with serving(worker):
            await eventually(lambda: fake.connections >= 2)


@on_loop
async def test_a_broker_that_sends_a_worker_away_is_asked_ever_later() -> None:
    """It denies the service, say: pauses of 50 ms for ever would fill both sides' logs."""
    fake = FakeBroker(lambda images: [mdp.DISCONNECTS[Dialect.D0X]] if images else [])
    async with fake.listening():
        worker = homing.Worker(fake.endpoint)
        worker.service("x")(_nothing)
        async with serving(worker):
            await asyncio.sleep(1.0)
            assert fake.connections <= 8  # 20 to 40 with pauses that do not grow


@on_loop
async def test_a_worker_comes_back_with_its_broker() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)
        started = asyncio.Event()

        @worker.service("echo", concurrency=2)
        async def echo(body: bytes) -> bytes:
            started.set()
            await asyncio.sleep(0.3 if body == b"slow" else 0)
            return body

        async with serving(worker), client_of(running) as client:
            asked = asyncio.create_task(client.request("echo", b"slow"))
            await started.wait()
            running.host.stop()
            with pytest.raises(LinkError):
                await asked
            async with broker(localfe=running.localfe, localbe=running.localbe):
                # The answer of the first life goes nowhere; the second life serves.
                assert await within(client.request("echo", b"again", retries=20)) == b"again"
                assert await within(client.request("echo", b"slow")) == b"slow"


@on_loop
async def test_stopping_under_load_loses_nothing() -> None:
    """Workers come and go while requests stream through: each is answered, by somebody."""
    async with broker() as running, client_of(running) as client:

        def make() -> homing.Worker:
            worker = homing.Worker(running.localbe)

            @worker.service("double", concurrency=8)
            async def double(number: int) -> int:
                await asyncio.sleep(0.002)
                return 2 * number

            return worker

        async def come_and_go() -> None:
            for _ in range(8):
                async with serving(make()):
                    await asyncio.sleep(0.05)

        async with serving(make()):
            changes = asyncio.create_task(come_and_go())
            numbers = iter(range(100_000))
            feed = (number for number in numbers if not changes.done())
            got = [each async for each in client.map("double", feed, in_flight=32, returns=int)]
            await changes
        assert got == [2 * number for number in range(len(got))]
        assert len(got) > 100


@on_loop
async def test_a_stopping_worker_ends_what_it_began_and_gives_back_the_rest() -> None:
    async with broker() as running, client_of(running) as client:
        worker = homing.Worker(running.localbe)
        begun = 0

        @worker.service("slow", concurrency=2)
        async def slow(seconds: float) -> float:
            nonlocal begun
            begun += 1
            await asyncio.sleep(seconds)
            return seconds

        stopping = asyncio.create_task(worker.run(grace=0.8))
        await worker.ready()
        quick = asyncio.create_task(client.request("slow", 0.2, returns=float))
        late = asyncio.create_task(client.request("slow", 20, returns=float))
        await eventually(lambda: begun == 2)
        worker.stop()
        await within(stopping)
        assert await within(quick) == 0.2
        assert not late.done()
        other = homing.Worker(running.localbe)

        @other.service("slow")
        async def at_once(seconds: float) -> float:
            return seconds

        async with serving(other):
            assert await within(late) == 20


@on_loop
async def test_a_broker_that_hands_over_more_than_the_credit_is_left() -> None:
    work = b"".join(
        pack([b"", b"MDPW0X", b"\x02", b"x", b"client%d" % number, b"", b"body"])
        for number in range(3)
    )
    fake = FakeBroker(lambda images: [work] if images else [])
    async with fake.listening():
        worker = homing.Worker(fake.endpoint)
        begun = 0

        @worker.service("x", concurrency=2)
        async def slow(body: bytes) -> bytes:
            nonlocal begun
            begun += 1
            await asyncio.sleep(0.1)
            return body

        async with serving(worker):
            await eventually(lambda: fake.connections >= 3)
        # Two connections' worth of work may overlap, never more.
        assert begun <= 2 * fake.connections


@on_loop
async def test_work_of_lost_connections_holds_back_the_next_announcement() -> None:
    """However often the connection flaps, no more than twice the credit is worked on."""
    ready = 0
    request = pack([b"", b"MDPW0X", b"\x02", b"x", b"client", b"", b"body"])

    def react(images: list[bytes]) -> list[bytes]:
        nonlocal ready
        if not images:
            return []
        ready += 1
        return [request, request, mdp.DISCONNECTS[Dialect.D0X]]

    fake = FakeBroker(react)
    async with fake.listening():
        worker = homing.Worker(fake.endpoint)
        now, most, go = 0, 0, asyncio.Event()

        @worker.service("x", concurrency=2)
        async def stuck(body: bytes) -> bytes:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await go.wait()
            now -= 1
            return body

        async with serving(worker):
            await eventually(lambda: fake.connections >= 3)
            assert ready == 2
            assert most == 4
            go.set()
            await eventually(lambda: ready >= 3)


@on_loop
async def test_what_goes_over_the_wire() -> None:
    """W1 to W6 of the protocol page, byte by byte, for local and for reposted requests."""
    heard: list[list[bytes]] = []

    def react(images: list[bytes]) -> list[bytes]:
        heard.extend(map(unpack, images))
        if not any(frames[2] == mdp.W_READY for frames in map(unpack, images)):
            return []
        start = [b"", b"MDPW0X"]
        return [
            pack([*start, b"\x02", b"half", b"ann", b"", b"one", b"two"]),
            pack([*start, b"\x06", b"half", b"peer", b"bob", b"", b"three"]),
            pack([*start, b"\x02", b"half", b"a" * 255, b"", b"fail"]),
        ]

    fake = FakeBroker(react)
    async with fake.listening():
        worker = homing.Worker(fake.endpoint)

        @worker.service("half", concurrency=3)
        async def half(frames: list[bytes]) -> list[bytes]:
            if frames == [b"fail"]:
                raise Malformed("no")
            return [*frames, b"done"]

        async with serving(worker):
            await eventually(lambda: len(heard) == 4)
        await eventually(lambda: len(heard) == 5)
    start = [b"", b"MDPW0X"]
    assert heard == [
        [*start, b"\x01", b"half", b"3", b"30000"],
        [*start, b"\x07", b"ann", b"", b"half", b"one", b"two", b"done"],
        [*start, b"\x08", b"bob", b"", b"peer", b"half", b"three", b"done"],
        [*start, b"\x0b", b"a" * 255, b"", b"half", b"malformed no"],
        [*start, b"\x05"],
    ]


# -- mistakes in the program ----------------------------------------------------------------------


def _two(one: bytes, two: bytes) -> bytes:
    return one


def _generator(body: bytes) -> Iterator[bytes]:
    yield body


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (_two, {}, "one argument"),
        (lambda: b"", {}, "one argument"),
        (process_id, {"run": "elsewhere"}, "cannot run"),
        (process_id, {"run": "loop"}, "cannot run"),
        (_nothing, {"run": "thread"}, "cannot run"),
        (_generator, {"run": "process"}, "in parts"),
        (process_id, {"concurrency": 0}, "concurrency"),
        (process_id, {"concurrency": 1 << 20}, "concurrency"),
    ],
)
def test_offers_are_checked(function: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        homing.Worker().service("x", **settings)(function)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="dialect"):
        homing.Worker(dialect="03")
    worker = homing.Worker(dialect="01")
    with pytest.raises(ValueError, match="0X"):
        worker.service("x", concurrency=2)
    with pytest.raises(ValueError, match="0X"):
        worker.service("")
    with pytest.raises(ValueError, match="bytes"):
        worker.service("x" * 256)
    worker.service("x")(process_id)
    with pytest.raises(ValueError, match="already"):
        worker.service("x")


@on_loop
async def test_a_worker_without_services_does_not_run() -> None:
    with pytest.raises(ValueError, match="without a service"):
        await homing.Worker().run()


@on_loop
async def test_a_stop_before_the_start_counts() -> None:
    worker = homing.Worker("tcp://127.0.0.1:1")
    worker.service("x")(_nothing)
    worker.stop()
    await within(worker.run())
