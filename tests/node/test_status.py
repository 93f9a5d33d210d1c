"""A node's pages over HTTP, alone and in front of a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest
import zmq

import homing
from homing.errors import Unavailable
from homing.metrics import Registry
from homing.node.host import Host
from homing.node.instruments import METRICS, watch_node
from homing.node.metrics import Exposition
from homing.node.status import MAX_CONNECTIONS, StatusPage, start_status
from homing.node.web import WebServer
from homing.ports import Link

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
        server = WebServer(StatusPage(Exposition(Registry()), lambda: ready), MAX_CONNECTIONS)
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


def test_nodes_of_one_process_are_one_build() -> None:
    async def test() -> None:
        registry = Registry()
        for _ in range(5):
            watch_node(registry, Host())
        page = Exposition(registry).render()[0].decode()
        assert f'homing_build_info{{version="{homing.__version__}"}} 1.0' in page

    asyncio.run(test())


def test_a_taken_port_is_told_at_once() -> None:
    async def scenario() -> None:
        page = StatusPage(Exposition(Registry()), lambda: True)
        first = WebServer(page, MAX_CONNECTIONS)
        where = first.start("127.0.0.1:0")
        with pytest.raises(Unavailable, match="cannot listen"):
            WebServer(page, MAX_CONNECTIONS).start(where)
        await first.stop()

    asyncio.run(scenario())


@contextlib.contextmanager
def _node(role: str, settings: dict[str, str]) -> Iterator[dict[str, str]]:
    """A node with a status page; its endpoints, and its pid under `pid`."""
    given = {**settings, "node.metrics": "127.0.0.1:0"}
    words = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", role, *words],
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if not key.startswith("HOMING_")},
    )
    assert process.stdout is not None
    try:
        told = process.stdout.readline()
        yield dict(re.findall(r"(\w+)=(\S+)", told))
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    finally:
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


def test_a_brokers_figures_follow_what_it_does(tmp_path: Path) -> None:
    with (
        _node("broker", _listening("broker", tmp_path)) as ends,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as worker,
        context.socket(zmq.REQ) as client,
    ):
        worker.linger = client.linger = 0
        worker.connect(ends["localbe"])
        worker.send_multipart([b"", b"MDPW0X", b"\x01", b"echo"])
        _until('homing_service_workers{service="echo"}', ends, 1)
        client.connect(ends["localfe"])
        client.send_multipart([b"MDPC0X", b"echo", b"hello"])
        _until('homing_service_running{service="echo"}', ends, 1)
        request = _work(worker)
        worker.send_multipart([b"", b"MDPW0X", b"\x07", request[4], b"", b"echo", b"hello"])
        assert client.recv_multipart()[-1] == b"hello"
        _until("homing_service_answered_total", ends, 1)
        _until('homing_service_running{service="echo"}', ends, 0)
        _until('homing_service_request_seconds_count{service="echo"}', ends, 1)


def test_a_draining_node_is_alive_and_not_ready() -> None:
    async def scenario() -> None:
        host = Host()
        host.role = IdleRole()
        where = start_status(host, "127.0.0.1:0").removeprefix("tcp://")
        assert await asyncio.to_thread(_get, f"http://{where}/readyz") == (200, "ready\n")
        await host.drain(host.now())
        assert await asyncio.to_thread(_get, f"http://{where}/readyz") == (503, "not ready\n")
        assert await asyncio.to_thread(_get, f"http://{where}/livez") == (200, "alive\n")

    asyncio.run(scenario())


class IdleRole:
    """A role that does nothing."""

    def opened(self, link: Link, now: float) -> None: ...

    def receive(self, link: Link, message: bytes, now: float) -> None: ...

    def closed(self, link: Link, now: float) -> None: ...

    def wake(self, key: Hashable, now: float) -> None: ...

    def journaled(self, number: int, now: float) -> None: ...


def _work(worker: zmq.Socket[bytes]) -> list[bytes]:
    """The next request, past heartbeats."""
    while True:
        assert worker.poll(int(SECONDS * 1000))
        frames = worker.recv_multipart()
        if frames[2] == b"\x02":
            return frames


def _listening(role: str, directory: Path) -> dict[str, str]:
    """Settings that put a node on free ports."""
    plugs = {
        "broker": ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe"),
        "matcher": ("publishers", "status"),
        "dispatcher": ("dispatcher",),
        "connector": ("connector", "subscribers"),
    }[role]
    section = "service" if role == "broker" else "push"
    return {f"{section}.{plug}": "127.0.0.1:0" for plug in plugs} | {"node.data": str(directory)}


@pytest.mark.parametrize("role", ["broker", "matcher", "dispatcher", "connector"])
def test_every_node_tells_its_figures(role: str, tmp_path: Path) -> None:
    """Those about a service, a peer or a connector appear with their first subject."""
    with _node(role, _listening(role, tmp_path)) as ends:
        names = {name.partition("{")[0] for name in _metrics(ends)}
    own: tuple[str, ...] = {
        "broker": ("homing_service_",),
        "matcher": (
            "homing_push_subscriptions",
            "homing_push_unsettled",
            "homing_push_tiles",
            "homing_push_ring_share",
            "homing_push_asked_total",
        ),
        "dispatcher": (),
        "connector": ("homing_push_sessions", "homing_push_con", "homing_push_undelivered"),
    }[role]
    everybody = ("homing_node_", "homing_journal_", "homing_build_info")
    later = {"service", "peer", "code", "connector"}
    declared = {one.name for one in METRICS if not later & set(one.labels)}
    assert {name for name in declared if name.startswith(everybody)} <= names
    assert {name for name in declared if name.startswith(own)} <= names
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} <= {m.name for m in METRICS}
