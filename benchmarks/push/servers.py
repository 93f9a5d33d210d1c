"""The push servers that are compared: how each is started, and what the sink speaks to it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import apt_installed, free_port, server, wait_for_port
from benchmarks.service.brokers import SERVER_CORE, free_offset
from homing.push.tokens import Keyring

NODES = "homing, four nodes"
UP = "homing up"
NATS, REDIS, MOSQUITTO = "nats-server", "redis", "mosquitto"

PUBLISHERS, STATUS, DISPATCHER, CONNECTOR, SUBSCRIBERS, AUTHORITY = range(7001, 7007)
PORTS = range(5555, 7009)  # of all nodes, and those between
KINDS = {
    "connector": CONNECTOR,
    "dispatcher": DISPATCHER,
    "matcher": PUBLISHERS,
    "authority": AUTHORITY,
}


@dataclass(frozen=True)
class Running:
    """A push server that listens: its processes, and where the sink connects."""

    pids: tuple[int, ...]
    subscribers: int
    publishers: int
    token_key: Path | None = None


Start = Callable[[], contextlib.AbstractContextManager[Running]]


@dataclass(frozen=True)
class Server:
    """A row of the tables: a name, a protocol of the sink, a way to start it."""

    name: str
    protocol: str
    start: Start
    filters: bool = False  # by content; the others' clients must do it themselves
    repeats: int = (
        0  # as many as the report has, or these: where ten thousand connects take minutes
    )


def nodes(python_path: str) -> Start:
    """homing's four kinds of node, a process each, journals on."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        offset = free_offset(PORTS)
        with tempfile.TemporaryDirectory() as data, contextlib.ExitStack() as stack:
            flags = ["--port-offset", str(offset), "--data", data]
            pids = [
                stack.enter_context(
                    server(
                        [*homing_command(), kind, *flags],
                        port + offset,
                        core=SERVER_CORE,
                        env=homing_env(python_path),
                    )
                ).pid
                for kind, port in KINDS.items()
            ]
            yield _running(tuple(pids), offset, data)

    return start


def up(python_path: str) -> Start:
    """homing's whole fabric in one process."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        offset = free_offset(PORTS)
        with tempfile.TemporaryDirectory() as data:
            argv = [*homing_command(), "up", "--port-offset", str(offset), "--data", data]
            env = homing_env(python_path)
            with server(argv, AUTHORITY + offset, core=SERVER_CORE, env=env) as process:
                wait_for_port(PUBLISHERS + offset)
                yield _running((process.pid,), offset, data)

    return start


def _running(pids: tuple[int, ...], offset: int, data: str) -> Running:
    key = Path(data) / "token.key"
    return Running(pids, SUBSCRIBERS + offset, PUBLISHERS + offset, key)


def homing_command() -> list[str]:
    """How the command is run."""
    return [sys.executable, "-m", "homing.cli"]


def homing_env(python_path: str) -> dict[str, str]:
    """What it runs with."""
    # Compiled once for the whole benchmark, wherever it runs.
    caches = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{python_path}/cache"}
    return {"PYTHONPATH": python_path, **caches}


def _compile_kernels(python_path: str) -> None:
    """The matching kernels into their cache: a compiler must not run beside what is measured."""
    code = "from homing.push.index import kernels; kernels.load()"
    env = {**os.environ, **homing_env(python_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def token_file(running: Running, count: int, directory: str) -> list[str]:
    """What the sink needs to pass auth as `count` clients, as its arguments."""
    if running.token_key is None:
        return []
    # A run's clients are its own: what the run before left under way must not reach them.
    stamp, run = int(time.time()), time.time_ns() >> 8
    keys = Keyring([running.token_key.read_bytes().strip()])
    clients = [f"{run:016x}{number:08x}" for number in range(count)]
    path = Path(directory) / "tokens"
    path.write_text("".join(keys.issue(client, stamp) + "\n" for client in clients))
    return [f"tokens={path}", f"stamp={stamp}", f"run={run}"]


def peer(argv: Callable[[int, Path], list[str]]) -> Start:
    """A server with one port for publishers and subscribers, and a directory of its own."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        port = free_port()
        with (
            tempfile.TemporaryDirectory() as data,
            server(argv(port, Path(data)), port, core=SERVER_CORE) as process,
        ):
            yield Running((process.pid,), port, port)

    return start


def _nats(port: int, data: Path) -> list[str]:
    return ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", str(port)]


def _redis(port: int, data: Path) -> list[str]:
    limits = ["--maxclients", "15000", "--client-output-buffer-limit", "pubsub 0 0 0"]
    network = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)]
    return ["redis-server", *network, "--save", "", "--appendonly", "no", *limits]


def _mosquitto(port: int, data: Path) -> list[str]:
    # A queue that cannot overflow: a lost delivery would end the closed loop.
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "max_queued_messages 0",
        "set_tcp_nodelay true",
        *(["user root"] if os.geteuid() == 0 else []),
    ]
    config = data / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    return ["/usr/sbin/mosquitto", "-c", str(config)]


def contestants(python_path: str) -> list[Server]:
    """Every server that can run here, homing first."""
    _compile_kernels(python_path)
    found = [
        Server(NODES, "homing", nodes(python_path), filters=True),
        Server(UP, "homing", up(python_path), filters=True),
    ]
    if apt_installed("redis-server", "redis-server"):
        found.append(Server(REDIS, "redis", peer(_redis)))
    if apt_installed("nats-server", "nats-server"):
        found.append(Server(NATS, "nats", peer(_nats)))
    if apt_installed("mosquitto", "mosquitto"):
        found.append(Server(MOSQUITTO, "mqtt", peer(_mosquitto), repeats=1))
    return found
