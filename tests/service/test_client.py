"""The client against homing's own broker, brokers of others, and brokers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import homing
from homing.errors import (
    Denied,
    Failed,
    HandshakeRefused,
    LinkError,
    Malformed,
    NoService,
    QueueFull,
    RequestTimeout,
    Unavailable,
)
from homing.service.asking import MAX_UNREAD, Plan, Streamed
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import pack
from homing.wire.mechanisms import PlainClient, PlainServer
from tests.service.majordomo import majordomo
from tests.service.rig import FakeBroker, Running, broker, eventually, on_loop, serving, within


class Point(msgspec.Struct):
    x: float
    y: float


def sample_worker(endpoint: str, **settings: Any) -> homing.Worker:
    worker = homing.Worker(endpoint, **settings)

    @worker.service("echo", concurrency=64)
    async def echo(frames: list[bytes]) -> list[bytes]:
        return frames

    @worker.service("wait", concurrency=64)
    async def wait(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @worker.service("mirror")
    async def mirror(point: Point) -> Point:
        return Point(point.y, point.x)

    @worker.service("count")
    async def count(upto: int) -> AsyncIterator[bytes]:
        for number in range(upto):
            yield b"%d" % number

    @worker.service("fail")
    async def fail(kind: str) -> bytes:
        if kind == "denied":
            raise Denied("not for you")
        raise ValueError("this\nwent wrong")

    return worker


def rigged(running: Running, **settings: Any) -> homing.Client:
    return homing.Client(running.localfe, **{"timeout": 10.0, **settings})


@contextlib.asynccontextmanager
async def stage(**settings: Any) -> AsyncIterator[homing.Client]:
    """A client of a broker with the sample worker."""
    async with (
        broker() as running,
        serving(sample_worker(running.localbe)),
        rigged(running, **settings) as client,
    ):
        yield client


@on_loop
async def test_bodies_of_every_kind() -> None:
    async with stage() as client:
        assert await client.request("echo", b"hello") == b"hello"
        assert await client.request("echo") == b""
        assert await client.request("echo", None) == b""
        assert await client.request("echo", "grüße", returns=str) == "grüße"
        assert await client.request("echo", [b"a", b"", b"c"], returns=list[bytes]) == [
            b"a",
            b"",
            b"c",
        ]
        assert await client.request("echo", [b"a", b"b"]) == b"ab"
        assert await client.request("echo", {"a": [1, None]}, returns=dict) == {"a": [1, None]}
        assert await client.request("mirror", Point(1, 2), returns=Point) == Point(2, 1)
        big = bytes(8 << 20)
        assert await client.request("echo", big) == big


@on_loop
async def test_msgpack() -> None:
    async with (
        broker() as running,
        serving(sample_worker(running.localbe, codec="msgpack")),
        rigged(running, codec="msgpack") as client,
    ):
        assert await client.request("mirror", Point(1, 2), returns=Point) == Point(2, 1)


@on_loop
async def test_answers_find_their_requests_whatever_the_order() -> None:
    async with stage() as client:
        waits = [0.2, 0.0, 0.1, 0.05, 0.15]
        got = await asyncio.gather(*(client.request("wait", each, returns=float) for each in waits))
        assert got == waits


@on_loop
async def test_map_keeps_the_order_and_the_bound() -> None:
    async with broker() as running:
        worker = homing.Worker(running.localbe)
        now, most = 0, 0

        @worker.service("work", concurrency=50)
        async def work(number: int) -> int:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001 * (number % 7))
            now -= 1
            return number * 2

        async with serving(worker), rigged(running) as client:
            got = [each async for each in client.map("work", range(200), in_flight=8, returns=int)]
            assert got == [number * 2 for number in range(200)]
            assert 1 < most <= 8
            async for first in client.map("work", _forever(), in_flight=4, returns=int):
                assert first == 0
                break
            assert await client.request("work", 1, returns=int) == 2
        with pytest.raises(ValueError, match="in_flight"):
            await anext(client.map("work", [], in_flight=0))


async def _forever() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@on_loop
async def test_a_stream_gives_every_part() -> None:
    async with stage() as client:
        got = [each async for each in client.stream("count", 50, returns=int)]
        assert got == list(range(50))
        assert [each async for each in client.stream("echo", b"whole")] == [b"whole"]
        assert [each async for each in client.stream("count", 0)] == [b""]
        # Who does not ask for parts gets them joined.
        assert await client.request("count", 3) == b"012"
        with pytest.raises(Denied):
            await anext(client.stream("fail", "denied"))


@on_loop
async def test_a_stream_far_ahead_of_its_reader_fails_instead_of_growing() -> None:
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    stream = Streamed(b"k", Plan(b"", b"", b"", 1.0, True), 0.0, done)
    part = bytes(1 << 20)
    for _ in range(MAX_UNREAD // len(part) + 1):
        stream.part(part, 0.0)
    assert isinstance(done.exception(), QueueFull)
    assert len(stream.parts) <= MAX_UNREAD // len(part)


@on_loop
async def test_refusals_are_typed() -> None:
    async with stage() as client:
        with pytest.raises(Denied, match="not for you"):
            await client.request("fail", "denied")
        with pytest.raises(Failed, match=r"^ValueError: this went wrong"):
            await client.request("fail", "otherwise")
        with pytest.raises(NoService):
            await client.request("nobody-serves-this")
        with pytest.raises(Malformed, match="not the json"):
            await client.request("mirror", b"{}")
        with pytest.raises(Malformed, match="not the json"):
            await client.request("echo", b"nonsense", returns=int)
        with pytest.raises(Malformed, match="cannot write"):
            await client.request("echo", object())


@on_loop
async def test_a_timeout_and_a_cancelled_request_leave_the_client_well() -> None:
    async with stage() as client:
        await client.connect()  # on a busy machine that alone may take 0.1 s
        with pytest.raises(RequestTimeout):
            await client.request("wait", 0.5, timeout=0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.request("wait", 0.5)
        assert await client.request("wait", 0.6, returns=float) == 0.6
        assert len(client._asking) == 0


@on_loop
async def test_no_more_under_way_than_allowed() -> None:
    async with stage(in_flight=2) as client:
        asks = [asyncio.create_task(client.request("wait", 0.02)) for _ in range(10)]
        while not all(each.done() for each in asks):
            assert len(client._asking) <= 2
            await asyncio.sleep(0.001)
        busy = [asyncio.create_task(client.request("wait", 0.3)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestTimeout, match="no room"):
            await client.request("wait", 0.0, timeout=0.05)
        await asyncio.gather(*busy)


# -- connections that come and go ---------------------------------------------------------------


@on_loop
async def test_nobody_there_names_every_endpoint_tried() -> None:
    ends = ["tcp://127.0.0.1:1", "ipc:///nonexistent/homing.sock"]
    async with homing.Client(ends, timeout=0.3) as client:
        with pytest.raises(Unavailable) as caught:
            await client.connect()
        with pytest.raises(Unavailable):
            await client.request("echo", timeout=0.2)
    assert all(each in str(caught.value) for each in ends)


@on_loop
async def test_the_next_endpoint_is_tried() -> None:
    async with (
        broker() as running,
        serving(sample_worker(running.localbe)),
        homing.Client(["tcp://127.0.0.1:1", running.localfe], timeout=10) as client,
    ):
        assert await client.request("echo", b"x") == b"x"


@on_loop
async def test_a_broker_that_comes_back_is_found_again() -> None:
    async with broker() as running:
        client = rigged(running)
        async with serving(sample_worker(running.localbe)):
            assert await client.request("echo", b"1") == b"1"
            asked = asyncio.create_task(client.request("wait", 1))
            retried = asyncio.create_task(client.request("wait", 0.3, retries=20, returns=float))
            await asyncio.sleep(0.05)
            running.host.stop()
            with pytest.raises(LinkError):
                await within(asked)
            again = broker(localfe=running.localfe, localbe=running.localbe)
            async with again:
                assert await within(client.request("echo", b"2", retries=10)) == b"2"
                assert await within(retried) == 0.3
                got = [each async for each in client.map("echo", [b"a", b"b"], retries=5)]
                assert got == [b"a", b"b"]
                await client.close()


@on_loop
async def test_a_silent_broker_is_given_up() -> None:
    fake = FakeBroker(lambda images: [])
    fake.pongs = False
    async with fake.listening(), homing.Client(fake.endpoint, heartbeat=0.05) as client:
        with pytest.raises(LinkError, match="silent"):
            await within(client.request("echo"))
        await eventually(lambda: fake.connections == 2)


@on_loop
async def test_a_slow_broker_that_answers_pings_is_not_given_up() -> None:
    fake = FakeBroker(lambda images: [])
    async with fake.listening(), homing.Client(fake.endpoint, heartbeat=0.1) as client:
        with pytest.raises(RequestTimeout):
            await client.request("echo", timeout=1.0)
        assert fake.connections == 1


@on_loop
async def test_a_broker_that_takes_nothing_is_sent_no_more() -> None:
    """64 MiB are asked for at once; what is queued stays near the high-water mark."""
    stuck = asyncio.Event()
    fake = FakeBroker(lambda images: [])
    fake.reads = stuck
    async with fake.listening(), homing.Client(fake.endpoint, timeout=1.5) as client:
        await client.connect()
        body = bytes(1 << 20)
        asks = [asyncio.create_task(client.request("echo", body)) for _ in range(64)]
        await asyncio.sleep(0.3)
        assert 0 < len(client._asking) < 32
        results = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(each, RequestTimeout) for each in results)
        stuck.set()


@on_loop
async def test_large_bodies_all_at_once_arrive() -> None:
    async with stage() as client:
        bodies = [bytes([number]) * (1 << 20) for number in range(20)]
        got = await asyncio.gather(*(client.request("echo", body) for body in bodies))
        assert got == bodies


@on_loop
async def test_an_idle_client_is_not_hung_up_on() -> None:
    async with stage(heartbeat=0.1) as client:
        assert await client.request("wait", 0.3, returns=float) == 0.3  # PINGs were sent
        before = client._lifeline.stream
        await asyncio.sleep(0.5)
        assert await client.request("echo", b"x") == b"x"
        assert client._lifeline.stream is before


@pytest.mark.parametrize(
    "sent",
    [
        pack([b"garbage"]),
        pack([b"", b"MDPC0X", b"\x09", b"echo", b"x"]),
        pack([b"", b"MDPC0X"]),
        b"\xff\xff\xff",
    ],
)
@on_loop
async def test_a_broker_that_talks_nonsense_is_hung_up_on(sent: bytes) -> None:
    fake = FakeBroker(lambda images: [sent] if images else [])
    async with fake.listening(), homing.Client(fake.endpoint) as client:
        with pytest.raises(LinkError):
            await within(client.request("echo"))


@on_loop
async def test_answers_to_nobody_are_left_out() -> None:
    stray = pack([b"HM\0\4" + bytes(12), b"", b"MDPC0X", b"\2", b"echo", b"stray"])

    def react(images: list[bytes]) -> list[bytes]:
        answers = []
        for image in images:
            envelope = image[2:18]
            answers += [stray, pack([envelope, b"", b"MDPC0X", b"\2", b"echo", b"mine"]), stray]
        return answers

    fake = FakeBroker(react)
    async with fake.listening(), homing.Client(fake.endpoint) as client:
        assert await within(client.request("echo")) == b"mine"
        assert await within(client.request("echo")) == b"mine"


@on_loop
async def test_closing_fails_what_is_under_way_and_all_after() -> None:
    async with broker() as running, serving(sample_worker(running.localbe)):
        client = await rigged(running).connect()
        asked = asyncio.create_task(client.request("wait", 1, retries=5))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(LinkError, match="closed"):
            await asked
        with pytest.raises(LinkError, match="closed"):
            await client.request("echo")
        await client.close()


# -- security -----------------------------------------------------------------------------------


def _check(user: str, password: str) -> str:
    if password != "right":
        raise Denied("no")
    return user


@on_loop
async def test_plain_and_curve() -> None:
    keys = new_keys()
    for server, mine in (
        (PlainServer(_check), PlainClient("ann", "right")),
        (CurveServer(keys), CurveClient(keys[0])),
    ):
        async with (
            broker(mechanism=server) as running,
            serving(sample_worker(running.localbe, security=mine)),
            rigged(running, security=mine) as client,
        ):
            body = [b"", b"x" * 100_000]
            assert await client.request("echo", body, returns=list[bytes]) == body


@on_loop
async def test_a_wrong_password_is_told_at_once() -> None:
    async with broker(mechanism=PlainServer(_check)) as running:
        wrong = PlainClient("ann", "wrong")
        async with rigged(running, security=wrong) as client:
            with pytest.raises(HandshakeRefused, match="400"):
                await client.connect()
            with pytest.raises(HandshakeRefused, match="400"):
                await client.request("echo", retries=3)
        with pytest.raises(HandshakeRefused, match="400"):
            await sample_worker(running.localbe, security=wrong).run()


# -- the public dialects --------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["01", "02"])
@on_loop
async def test_requests_through_a_libzmq_broker(dialect: str) -> None:
    with majordomo() as theirs:
        worker = homing.Worker(theirs.endpoint, dialect=dialect, heartbeat=0.4)

        @worker.service("echo")
        async def echo(body: bytes) -> bytes:
            await asyncio.sleep(0.3 if body == b"slow" else 0)
            return body

        @worker.service("parts")
        async def parts(upto: int) -> AsyncIterator[bytes]:
            for number in range(upto):
                yield b"%d" % number

        async with serving(worker):
            async with homing.Client(theirs.endpoint, dialect=dialect, timeout=5) as client:
                got = await asyncio.gather(*(client.request("echo", b"%d" % n) for n in range(20)))
                assert got == [b"%d" % n for n in range(20)]
                # A late answer must not be taken for the next one's.
                with pytest.raises(RequestTimeout):
                    await client.request("echo", b"slow", timeout=0.1)
                assert await client.request("echo", b"next", retries=5) == b"next"
                got = [each async for each in client.stream("parts", 3)]
                assert got == ([b"0", b"1", b"2"] if dialect == "02" else [b"012"])
            await eventually(lambda: theirs.heartbeats > 0)
        await eventually(lambda: theirs.disconnects == 2)


@pytest.mark.parametrize("dialect", ["01", "02"])
@on_loop
async def test_the_public_dialects_through_homing_s_broker(dialect: str) -> None:
    async with stage(dialect=dialect) as client:
        got = [each async for each in client.map("echo", [b"1", b"2", b"3"], in_flight=3)]
        assert got == [b"1", b"2", b"3"]


@on_loop
async def test_a_wrong_call_harms_no_other() -> None:
    async with stage() as client:
        asked = asyncio.create_task(client.request("wait", 0.2, returns=float))
        await asyncio.sleep(0)
        for service, options in (
            ("", {}),
            ("x" * 256, {}),
            ("echo", {"timeout": 0}),
            ("echo", {"timeout": -1}),
            ("echo", {"timeout": float("nan")}),
            ("echo", {"priority": 10}),
            ("echo", {"priority": -1}),
        ):
            with pytest.raises(homing.HomingError):
                await client.request(service, **options)
        assert await client.request("echo", b"x", timeout=float("inf")) == b"x"
        assert await asked == 0.2


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="dialect"):
        homing.Client(dialect="03")
    with pytest.raises(ValueError, match="codec"):
        homing.Client(codec="xml")
    with pytest.raises(ValueError, match="at least one endpoint"):
        homing.Client([])
    with pytest.raises(homing.HomingError, match="tcp"):
        homing.Client("udp://127.0.0.1:1")


def test_the_sdk_needs_nothing_of_a_server() -> None:
    """What `pip install homing` brings is enough, and no more than that is loaded."""
    extras = (
        "numpy numba pyarrow pyspark starlette structlog uvicorn websockets zmq nacl rich cyclopts"
    )
    program = (
        "import sys, homing; homing.Client, homing.Worker; "
        f"print(*(set({extras!r}.split()) & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert loaded.stdout.split() == []
