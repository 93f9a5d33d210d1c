"""The task worker: the opening, failures, the remembered group, and the end when nobody answers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from homing.errors import Denied, QueueFull, Unavailable
from homing.service.task_worker import TaskWorker
from homing.testing import fabric
from homing.wire import tasks
from tests.service.processes import Process, processes
from tests.service.rig import FakeBroker
from tests.service.test_processes import dealer

NOBODY = "tcp://127.0.0.1:1"


@asynccontextmanager
async def running(worker: TaskWorker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.get_running_loop().create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not reached():  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0.01)


def ask(context: zmq.Context[Any], endpoint: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    client = dealer(context, endpoint)
    client.send_multipart([b'{"request":"TASK","type":"REQUEST","service":"echo"}', body])
    header, answer = client.recv_multipart()
    return msgspec.json.decode(header), answer


def reverse(body: bytes) -> bytes:
    if body == b"bad":
        raise ValueError("no luck")
    return body[::-1]


@pytest.mark.slow
def test_serves_fails_over_and_remembers(tmp_path: Path) -> None:
    context: zmq.Context[Any] = zmq.Context()
    context.setsockopt(zmq.LINGER, 0)  # a socket collected with something unsent ends too
    memory = tmp_path / "group.json"

    async def scenario() -> None:
        broker = reaper.broker("first")
        worker = TaskWorker(broker.ends["taskbe"], "echo", reverse, remember=memory)
        async with running(worker):
            await until(lambda: worker.broker == "first")
            header, answer = await asyncio.to_thread(ask, context, broker.ends["taskfe"], b"abc")
            assert (header["type"], answer) == ("RESPONSE", b"cba")
            header, _ = await asyncio.to_thread(ask, context, broker.ends["taskfe"], b"bad")
            assert (header["code"], "no luck" in header["reason"]) == ("failed", True)
            ports = broker.same_ports
            broker.kill()
            broker = reaper.broker("second", **ports)
            _, answer = await asyncio.to_thread(ask, context, broker.ends["taskfe"], b"xyz")
            assert answer == b"zyx"
        assert msgspec.json.decode(memory.read_bytes())["group"] == [broker.ends["taskbe"]]
        moved = TaskWorker(NOBODY, "echo", reverse, remember=memory, connect_timeout=5.0)
        async with running(moved):
            await until(lambda: moved.broker == "second")

    with processes(tmp_path) as reaper:
        try:
            asyncio.run(scenario())
        finally:
            context.destroy(linger=0)


@pytest.mark.slow
def test_the_command_says_that_it_is_ready_and_ends_what_is_under_way(tmp_path: Path) -> None:
    context: zmq.Context[Any] = zmq.Context()
    context.setsockopt(zmq.LINGER, 0)
    waits = "sh -c 'touch begun; while [ ! -e go ]; do sleep 0.05; done; cat'"
    with processes(tmp_path) as reaper:
        ends = reaper.broker("first").ends
        argv = [sys.executable, "-m", "homing.cli", "task-worker", "echo", "--exec", waits]
        worker = Process([*argv, "--endpoint", ends["taskbe"]], tmp_path)
        try:
            assert worker.ready == f"ready task-worker echo {ends['taskbe']}\n"
            client = dealer(context, ends["taskfe"])
            client.send_multipart([b'{"request":"TASK","type":"REQUEST","service":"echo"}', b"one"])
            asyncio.run(until((tmp_path / "begun").exists))
            worker.terminate()
            (tmp_path / "go").touch()
            assert client.recv_multipart()[1] == b"one"
            assert worker.wait() == 0
        finally:
            worker.kill()
            context.destroy(linger=0)


def test_nobody_answers_names_every_endpoint(tmp_path: Path) -> None:
    memory = tmp_path / "group.json"
    config = {"broker": "x", "group": ["tcp://127.0.0.1:2"], "heartbeat_ms": 1, "liveness": 1}
    memory.write_bytes(msgspec.json.encode({**config, "max_body": 1}))
    worker = TaskWorker(NOBODY, "echo", reverse, remember=memory, connect_timeout=0.3)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(worker.run())
    assert NOBODY in str(caught.value)
    assert "tcp://127.0.0.1:2" in str(caught.value)


def test_a_broken_memory_is_no_obstacle(tmp_path: Path) -> None:
    memory = tmp_path / "group.json"
    memory.write_bytes(b"\xff{")
    worker = TaskWorker(NOBODY, "echo", reverse, remember=memory, connect_timeout=0.2)
    with pytest.raises(Unavailable):
        asyncio.run(worker.run())


def test_a_broker_that_sends_us_away_is_not_asked_without_pause() -> None:
    """It drains, or denies us: it answers all of the opening, and then parts."""
    config = tasks.Config("shut", [], 1000, 3, 1)

    def react(images: list[bytes]) -> list[bytes]:
        said: list[bytes] = []
        for message in (tasks.read(image)[1] for image in images):
            if isinstance(message, tasks.Connect):
                said.append(tasks.write(config))
            elif isinstance(message, tasks.Ping):
                said += [tasks.write(tasks.Pong(message.ts)), tasks.write(tasks.Disconnect())]
        return said

    async def scenario() -> int:
        async with FakeBroker(react).listening() as fake:
            worker = TaskWorker(fake.endpoint, "echo", reverse, connect_timeout=1.0)
            with pytest.raises(Unavailable, match="sends us away"):
                await worker.run()
            return fake.connections

    assert 2 <= asyncio.run(scenario()) <= 12


def test_a_worker_that_may_not_serve_ends_as_denied() -> None:
    def react(images: list[bytes]) -> list[bytes]:
        return [tasks.write(tasks.Error("denied", "this user may not serve it")) for _ in images]

    async def scenario() -> None:
        async with FakeBroker(react).listening() as fake:
            worker = TaskWorker(fake.endpoint, "echo", reverse, connect_timeout=5.0)
            with pytest.raises(Denied, match="may not serve it"):
                await worker.run()

    asyncio.run(scenario())


@pytest.mark.slow
def test_the_command_ends_with_69(tmp_path: Path) -> None:
    words = ["task-worker", "echo", "--echo", "--endpoint", NOBODY, "--connect-timeout", "0.3"]
    run = subprocess.run(
        [sys.executable, "-m", "homing.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 69, run.stderr
    assert NOBODY in run.stderr


def test_what_a_function_says_of_its_failure_fits_a_header() -> None:
    """A broker takes headers of 4 KiB: a longer one ended the worker, and ten ran the task in turn."""
    runs: list[bytes] = []

    def wordy(body: bytes) -> bytes:
        runs.append(body)
        if body == b"full":
            raise QueueFull("come back later")
        raise ValueError("é" * 9000)

    async def scenario(taskfe: str, taskbe: str) -> None:
        context: zmq.Context[Any] = zmq.Context()
        try:
            async with running(TaskWorker(taskbe, "echo", wordy)):
                header, _ = await asyncio.to_thread(ask, context, taskfe, b"x")
                assert (header["code"], header["reason"][:13]) == ("failed", "ValueError: é")
                header, _ = await asyncio.to_thread(ask, context, taskfe, b"full")
                assert (header["code"], header["reason"]) == ("queue-full", "come back later")
        finally:
            context.destroy(linger=0)

    with fabric() as here:
        taskfe, taskbe = (here.clients.replace("localfe", plug) for plug in ("taskfe", "taskbe"))
        asyncio.run(scenario(taskfe, taskbe))
    assert runs == [b"x", b"full"]
