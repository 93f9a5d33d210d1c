"""A node's pages over HTTP, alone and in front of a real broker."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from homing.errors import Unavailable
from homing.metrics import Registry
from homing.node.instruments import METRICS
from homing.node.metrics import Exposition
from homing.node.status import StatusPage, StatusServer

SECONDS = 20.0


def _get(url: str, method: str = "GET") -> tuple[int, str]:
    try:
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_pages() -> None:
    async def scenario() -> None:
        ready = False
        server = StatusServer(StatusPage(Exposition(Registry()), lambda: ready))
        where = server.start("127.0.0.1:0").removeprefix("tcp://")

        async def get(path: str, method: str = "GET") -> tuple[int, str]:
            return await asyncio.to_thread(_get, f"http://{where}{path}", method)

        assert await get("/livez") == (200, "alive\n")
        assert await get("/readyz") == (503, "not ready\n")
        ready = True
        assert await get("/readyz") == (200, "ready\n")
        code, page = await get("/metrics")
        assert (code, "process_cpu_seconds_total" in page) == (200, True)
        assert (await get("/other"))[0] == 404
        assert (await get("/metrics", "POST"))[0] == 405
        assert await get("/livez", "HEAD") == (200, "")
        await server.stop()

    asyncio.run(scenario())


def test_a_taken_port_is_told_at_once() -> None:
    async def scenario() -> None:
        page = StatusPage(Exposition(Registry()), lambda: True)
        first = StatusServer(page)
        where = first.start("127.0.0.1:0")
        with pytest.raises(Unavailable, match="cannot listen"):
            StatusServer(page).start(where)
        await first.stop()

    asyncio.run(scenario())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A broker on free ports, and its endpoints."""
    plugs = ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe")
    words = [word for plug in plugs for word in ("--set", f"service.{plug}=tcp://127.0.0.1:0")]
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", "broker", "--set", "node.metrics=127.0.0.1:0", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("HOMING_")},
    )
    assert process.stdout is not None
    told = process.stdout.readline()
    yield process, dict(re.findall(r"(\w+)=(\S+)", told))
    process.kill()
    process.communicate()


def _metrics(ends: dict[str, str]) -> dict[str, float]:
    _, page = _get(f"http://{ends['metrics'].removeprefix('tcp://')}/metrics")
    return {name: float(value) for name, value in re.findall(r"^(homing_\S+) (\S+)$", page, re.M)}


def _until(condition: str, ends: dict[str, str], value: float) -> None:
    deadline = time.monotonic() + SECONDS
    while _metrics(ends).get(condition) != value:
        assert time.monotonic() < deadline, f"{condition} is not {value}: {_metrics(ends)}"
        time.sleep(0.02)


def test_a_brokers_figures_follow_what_it_does(
    broker: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    process, ends = broker
    with zmq.Context() as context, context.socket(zmq.DEALER) as worker:
        worker.linger = 0
        worker.connect(ends["localbe"])
        worker.send_multipart([b"", b"MDPW0X", b"\x01", b"echo"])
        _until('homing_service_workers{service="echo"}', ends, 1)
        with context.socket(zmq.REQ) as client:
            client.linger = 0
            client.connect(ends["localfe"])
            client.send_multipart([b"MDPC0X", b"echo", b"hello"])
            _until('homing_service_running{service="echo"}', ends, 1)
            process.send_signal(signal.SIGTERM)
            _until_not_ready(ends)  # one request is under way: it drains, alive
            assert _get(f"http://{ends['metrics'].removeprefix('tcp://')}/livez")[0] == 200
            request = _work(worker)
            worker.send_multipart([b"", b"MDPW0X", b"\x07", request[4], b"", b"echo", b"hello"])
            assert client.recv_multipart()[-1] == b"hello"
    assert process.wait(SECONDS) == 0


def _work(worker: zmq.Socket[bytes]) -> list[bytes]:
    """The next request, past heartbeats."""
    while True:
        assert worker.poll(int(SECONDS * 1000))
        frames = worker.recv_multipart()
        if frames[2] == b"\x02":
            return frames


def _until_not_ready(ends: dict[str, str]) -> None:
    deadline = time.monotonic() + SECONDS
    while _get(f"http://{ends['metrics'].removeprefix('tcp://')}/readyz")[0] != 503:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_declared_metric_without_labels_of_others_is_there(
    broker: tuple[subprocess.Popen[str], dict[str, str]],
) -> None:
    """Those about a service, a peer or a refusal appear with their first subject."""
    _, ends = broker
    names = {name.partition("{")[0] for name in _metrics(ends)}
    later = {"service", "peer", "code"}
    assert {one.name for one in METRICS if not later & set(one.labels)} <= names
