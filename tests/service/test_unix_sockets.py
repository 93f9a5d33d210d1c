"""A broker on TCP and on unix sockets at once, its files, and who is there while it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

import homing
from tests.service.foreign import Client, Worker
from tests.service.processes import BrokerProcess, Reaper
from tests.service.test_processes import dealer, serve, until

pytestmark = pytest.mark.slow

ANY = "tcp://127.0.0.1:0"


def on_both(reaper: Reaper, folder: Path, *flags: str, **settings: str) -> BrokerProcess:
    """A broker whose clients, workers and task workers find it over TCP and by a path."""
    both = {
        f"service__{plug}": f"{ANY},ipc://{folder}/{plug}"
        for plug in ("localfe", "localbe", "taskfe", "taskbe")
    }
    return reaper.broker("here", *flags, **{**both, **settings})


def ends(broker: BrokerProcess, plug: str) -> list[str]:
    return broker.ends[plug].split(",")


@pytest.mark.parametrize("asks", ["01", "02"])
@pytest.mark.parametrize("serves", ["01", "02"])
def test_foreign_peers_meet_whichever_way_they_came(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path, asks: str, serves: str
) -> None:
    broker = on_both(reaper, tmp_path)
    tcp, path = ends(broker, "localfe")
    assert (tcp[:6], path) == ("tcp://", f"ipc://{tmp_path}/localfe")
    for client_at, worker_at in ((0, 1), (1, 0), (1, 1)):
        service = b"echo%d%d" % (client_at, worker_at)
        client = Client(context, ends(broker, "localfe")[client_at], asks)
        worker = Worker(context, ends(broker, "localbe")[worker_at], service, serves)
        thread = threading.Thread(target=serve, args=(worker, 4))
        thread.start()
        for size in (1, 300, 100_000, 3_000_000):  # beyond what the kernel takes at once
            body = os.urandom(size)
            assert client.request(service, body, 10.0, 3) == body[::-1]
        thread.join(20)
    broker.terminate()
    assert broker.wait() == 0, broker.stderr()
    assert "Traceback" not in broker.stderr()
    assert not list(tmp_path.glob("local*")), "its files go with it"


def test_a_killed_broker_leaves_files_that_its_successor_replaces(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    broker = on_both(reaper, tmp_path)
    path = ends(broker, "localfe")[1]
    reaper.worker(ends(broker, "localbe")[1], dialect="02")
    client = Client(context, path)
    for _ in range(3):
        assert client.request(b"echo", b"abc", 3.0, 10) == b"cba"
        ports = broker.same_ports
        broker.kill()
        assert (tmp_path / "localfe").is_socket(), "kill -9 leaves it"
        broker = reaper.broker("here", **ports)
        assert ends(broker, "localfe")[1] == path
    assert client.request(b"echo", b"abc", 3.0, 10) == b"cba"


def start(cwd: Path, *words: str) -> tuple[int, str]:
    """`homing broker` where it cannot start: its exit code and what it said."""
    argv = [sys.executable, "-m", "homing.cli", "broker", "--data", str(cwd / "other"), *words]
    for plug in ("localfe", "localbe", "cloudfe", "statebe", "taskfe", "taskbe"):
        if not any(f"service.{plug}=" in word for word in words):
            argv += ["--set", f"service.{plug}={ANY}"]
    ended = subprocess.run(argv, cwd=cwd, capture_output=True, encoding="utf-8", timeout=60)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("stopped", [False, True], ids=["living", "standing still"])
def test_a_broker_that_is_there_keeps_its_files(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path, stopped: bool
) -> None:
    broker = on_both(reaper, tmp_path)
    if stopped:
        broker.child.send_signal(signal.SIGSTOP)
    taken = f"ipc://{tmp_path}/localbe"
    code, told = start(tmp_path, "--set", f"service.localbe={ANY},{taken}")
    broker.child.send_signal(signal.SIGCONT)
    assert code == 69, "as for a port that is taken"
    assert f"cannot listen on {taken}: Address already in use" in told
    assert "another process listens there" in told
    assert "--port-offset" not in told, "that would not move it"
    client = Client(context, ends(broker, "localfe")[1])
    assert client.request(b"mmi.service", b"echo", 5.0, 3) == b"404"


def test_a_path_that_the_kernel_does_not_take_is_told_with_its_setting(tmp_path: Path) -> None:
    code, told = start(tmp_path, "--set", f"service.localbe={ANY},ipc:///{'p' * 107}")
    assert code == 78
    assert "--set service.localbe: service.localbe: a socket's path has at most 107 bytes" in told
    code, told = start(tmp_path, "--set", "service.localbe=ipc://none/there")
    assert (code, "make it first" in told) == (69, True)


def test_signals_are_as_they_are_over_tcp(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    # Nobody beats for the worker while the broker is told: it must not be given up meanwhile.
    broker = on_both(reaper, tmp_path, service__heartbeat="10s")
    worker = Worker(context, ends(broker, "localbe")[1], b"echo", "01")
    running, late = (dealer(context, ends(broker, "localfe")[1]) for _ in range(2))
    running.send_multipart([b"", b"MDPC01", b"echo", b"abc"])
    request = worker.receive(10.0)
    assert request is not None
    broker.child.send_signal(signal.SIGHUP)
    broker.terminate()
    until(lambda: "draining" in broker.stderr())
    late.send_multipart([b"", b"MDPC0X", b"echo", b"late"])
    assert b"shutting-down" in late.recv_multipart()
    worker.reply(request, b"done")
    assert running.recv_multipart()[-1] == b"done"
    assert broker.wait() == 0, broker.stderr()
    assert not list(tmp_path.glob("local*"))


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_who_may_write_to_the_file_may_connect(umask: int, tmp_path: Path, reaper: Reaper) -> None:
    former = os.umask(umask)
    try:
        on_both(reaper, tmp_path)
    finally:
        os.umask(former)
    mode = stat.S_IMODE((tmp_path / "localfe").stat().st_mode)
    assert mode == 0o777 & ~umask


def on_loop(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


def test_homing_s_own_client_and_worker(reaper: Reaper, tmp_path: Path) -> None:
    broker = on_both(reaper, tmp_path)

    async def test() -> None:
        workers = [homing.Worker(end) for end in ends(broker, "localbe")]
        for number, worker in enumerate(workers):
            worker.service(f"echo{number}", concurrency=8)(lambda body: body)
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        for end in ends(broker, "localfe"):
            async with homing.Client(end, timeout=20.0) as client:
                for service in ("echo0", "echo1"):
                    bodies = [os.urandom(1 << (number % 20)) for number in range(100)]
                    answers = [a async for a in client.map(service, bodies, in_flight=32)]
                    assert answers == bodies
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)

    on_loop(test)


def test_task_workers_are_told_of_every_way_to_their_broker(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    broker = on_both(reaper, tmp_path)
    worker = dealer(context, ends(broker, "taskbe")[1])
    worker.send_multipart([b'{"request":"CONNECT","service":"echo"}', b""])
    _, config = worker.recv_multipart()
    assert msgspec.json.decode(config)["group"] == ends(broker, "taskbe")


def test_the_commands_dial_the_first(reaper: Reaper, tmp_path: Path) -> None:
    path = f"ipc://{tmp_path}/localfe"
    on_both(reaper, tmp_path, service__localfe=f"{path},{ANY}")
    file = tmp_path / "homing.toml"
    file.write_text(f'[service]\nlocalfe = ["{path}", "tcp://127.0.0.1:1"]\n')
    argv = [sys.executable, "-m", "homing.cli", "services", "--json", "--config", str(file)]
    told = subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=60)
    assert (told.returncode, told.stdout) == (0, "{}\n"), told.stderr


def test_an_abstract_socket_has_no_file(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    name = f"homing-test-{os.getpid()}"
    broker = reaper.broker(service__localfe=f"ipc://@{name}")
    assert broker.ends["localfe"] == f"ipc://@{name}"
    client = Client(context, broker.ends["localfe"])
    assert client.request(b"mmi.service", b"echo", 5.0, 3) == b"404"
    with socket.socket(socket.AF_UNIX) as again, pytest.raises(OSError, match="in use"):
        again.bind(f"\0{name}")
    assert not list(tmp_path.glob("*homing-test*"))
