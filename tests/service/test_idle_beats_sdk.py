"""Slow heartbeats of idle workers, on real sockets: homing.Worker, its broker, and workers that know nothing of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import zmq
import zmq.asyncio

import homing
from homing.service.switch import Broker
from homing.wire import mdp
from homing.wire.frames import pack, unpack
from homing.wire.mdp_messages import Dialect, Disconnect, Heartbeat, Ready, Work
from tests.service.rig import FakeBroker, Running, broker, eventually, on_loop, serving, within

PLAIN = mdp.HEARTBEATS[Dialect.D0X]
LONG = mdp.write(Heartbeat(Dialect.D0X, 30_000))


def worker_at(endpoint: str, name: str = "echo", **options: Any) -> homing.Worker:
    worker = homing.Worker(endpoint, **options)

    @worker.service(name)
    async def echo(body: bytes) -> bytes:
        return body

    return worker


def intervals(running: Running) -> dict[bytes, float]:
    """What every worker here was told, by service."""
    role = running.host.role
    assert isinstance(role, Broker)
    return {each.service.name: each.interval for each in role.core.roster if each.service}


def ready_of(images: list[bytes]) -> list[list[bytes]]:
    return [unpack(image) for image in images if unpack(image)[2] == mdp.W_READY]


@on_loop
async def test_idle_workers_are_asked_to_beat_slowly_and_serve_as_before() -> None:
    async with broker(heartbeat=0.1, idle_beats=5.0) as running:
        names = ("a", "b", "c")
        workers = [worker_at(running.localbe, name, heartbeat=0.1) for name in names]
        quick = worker_at(running.localbe, "quick", heartbeat=0.1, idle_heartbeat=0.0)
        async with (
            serving(workers[0]),
            serving(workers[1]),
            serving(workers[2]),
            serving(quick),
            homing.Client(running.localfe) as client,
        ):
            slow = {b"a": 0.8, b"b": 0.8, b"c": 0.8, b"quick": 0.1}
            await eventually(lambda: intervals(running) == slow)
            for name in (*names, "quick"):
                assert await client.request(name, b"x") == b"x"
            await workers_left(running, workers[0])
            assert intervals(running) == {**slow}


async def workers_left(running: Running, worker: homing.Worker) -> None:
    """Until every slow worker was beaten to twice more: time enough to lose one."""
    role = running.host.role
    assert isinstance(role, Broker)
    one = next(each for each in role.core.roster if each.service and each.service.name == b"a")
    for _ in range(2):
        due = one.due
        await eventually(lambda: one.due > due)  # noqa: B023 - it is over before the next turn
        assert one.pool is not None


@on_loop
async def test_a_worker_on_pyzmq_that_does_not_say_so_never_sees_an_interval() -> None:
    async with broker(heartbeat=0.05, idle_beats=1.0) as running:
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        try:
            socket.connect(running.localbe)
            await socket.send_multipart([b"", b"MDPW0X", b"\x01", b"plain", b"3"])
            slow = [worker_at(running.localbe, name, heartbeat=0.05) for name in ("a", "b")]
            async with serving(slow[0]), serving(slow[1]):
                heard: Counter[tuple[bytes, ...]] = Counter()
                while intervals(running).get(b"a") != 3.2 or heard.total() < 10:
                    heard[tuple(await within(socket.recv_multipart()))] += 1
                    await socket.send_multipart([b"", b"MDPW0X", b"\x04"])
            assert set(heard) == {(b"", b"MDPW0X", b"\x04")}
        finally:
            socket.close(linger=0)
            context.term()


@on_loop
async def test_a_worker_waits_for_a_broker_that_told_it_to_and_not_for_another() -> None:
    """The one that was told nothing leaves three times while the other stays."""
    patient = FakeBroker(lambda images: [LONG] if ready_of(images) else [])
    mute = FakeBroker(lambda images: [])
    async with patient.listening(), mute.listening():
        told = worker_at(patient.endpoint, heartbeat=0.05, liveness=2)
        other = worker_at(mute.endpoint, heartbeat=0.05, liveness=2)
        async with serving(told), serving(other):
            await eventually(lambda: mute.connections >= 4)
            assert patient.connections == 1


@on_loop
async def test_a_worker_with_work_notices_a_silent_broker_as_soon_as_ever() -> None:
    """And the next broker has told it nothing yet."""
    work = mdp.write(Work(Dialect.D0X, b"stuck", b"c1", pack([b"x"])))
    fake = FakeBroker(
        lambda images: [LONG, work] if ready_of(images) and fake.connections == 1 else []
    )
    async with fake.listening():
        worker = homing.Worker(fake.endpoint, heartbeat=0.05, liveness=2)
        over = asyncio.Event()

        @worker.service("stuck")
        async def stuck(body: bytes) -> bytes:
            await over.wait()
            return body

        async with serving(worker):
            await eventually(lambda: fake.connections >= 3)
            over.set()


@on_loop
async def test_a_worker_with_work_beats_as_ever() -> None:
    heard: list[bytes] = []
    work = mdp.write(Work(Dialect.D0X, b"stuck", b"c1", pack([b"x"])))

    def react(images: list[bytes]) -> list[bytes]:
        heard.extend(images)
        return [LONG, work] if ready_of(images) else []

    fake = FakeBroker(react)
    async with fake.listening():
        worker = homing.Worker(fake.endpoint, heartbeat=0.05, liveness=1000)
        over = asyncio.Event()

        @worker.service("stuck")
        async def stuck(body: bytes) -> bytes:
            await over.wait()
            return body

        async with serving(worker):
            await eventually(lambda: heard.count(PLAIN) >= 6)
            over.set()


@on_loop
async def test_an_idle_worker_that_was_told_to_beats_no_more_than_that() -> None:
    """Beside one that was told nothing, in its tenth heartbeat."""
    slow: list[bytes] = []
    often: list[bytes] = []

    def tell(images: list[bytes]) -> list[bytes]:
        slow.extend(images)
        return [LONG] if ready_of(images) else []

    def hear(images: list[bytes]) -> list[bytes]:
        often.extend(images)
        return []

    patient, mute = FakeBroker(tell), FakeBroker(hear)
    async with patient.listening(), mute.listening():
        told = worker_at(patient.endpoint, heartbeat=0.05, liveness=1000)
        other = worker_at(mute.endpoint, heartbeat=0.05, liveness=1000)
        async with serving(told), serving(other):
            await eventually(lambda: often.count(PLAIN) >= 10)
        assert slow.count(PLAIN) <= 1, "the answer to what it was told, and none of its own"


@on_loop
async def test_a_broker_that_does_not_know_the_frame_is_told_nothing_of_it() -> None:
    """It sends away who says it: the next READY is as it always was."""
    said: list[list[bytes]] = []

    def react(images: list[bytes]) -> list[bytes]:
        said.extend(ready_of(images))
        long = any(len(frames) > 5 for frames in ready_of(images))
        return [mdp.write(Disconnect(Dialect.D0X))] if long else [PLAIN]

    fake = FakeBroker(react)
    async with fake.listening():
        worker = worker_at(fake.endpoint, heartbeat=0.1)
        async with serving(worker):
            await eventually(lambda: len(said) >= 2)
    plain = Ready(Dialect.D0X, b"echo")
    assert said[:2] == [
        [b"", b"MDPW0X", b"\x01", b"echo", b"1", b"30000"],
        unpack(mdp.write(plain)),
    ]
    assert fake.connections == 2


@pytest.mark.parametrize("idle_heartbeat", [0.0, 0.3])
@on_loop
async def test_an_interval_slower_than_offered_is_no_heartbeat(idle_heartbeat: float) -> None:
    fake = FakeBroker(lambda images: [LONG] if ready_of(images) else [])
    async with fake.listening():
        worker = worker_at(fake.endpoint, heartbeat=0.1, idle_heartbeat=idle_heartbeat)
        async with serving(worker):
            await eventually(lambda: fake.connections >= 2)


@pytest.mark.parametrize("idle_heartbeat", [-1.0, 3601.0, float("nan")])
def test_an_idle_heartbeat_that_cannot_be_is_refused(idle_heartbeat: float) -> None:
    with pytest.raises(ValueError, match="idle_heartbeat is from 0 to an hour"):
        homing.Worker(idle_heartbeat=idle_heartbeat)
