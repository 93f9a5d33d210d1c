"""The brokers that are compared: how each is started, and what it speaks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT, apt_installed, free_port, server, wait_for_port
from benchmarks.peers import HERE, majordomo_program

SERVER_CORE = 0 if (os.cpu_count() or 1) > 1 else None

LOCALFE, LOCALBE, CLOUDFE, STATEBE = 5555, 5556, 5557, 5558


@dataclass(frozen=True)
class Running:
    """A broker that listens: its processes, and where clients and workers connect."""

    pids: tuple[int, ...]
    fe: int
    be: int


Start = Callable[[], contextlib.AbstractContextManager[Running]]


@dataclass(frozen=True)
class Broker:
    """A row of the tables: a name, a protocol of the load generator, a way to start it."""

    name: str
    protocol: str
    start: Start
    options: dict[str, int] = field(default_factory=dict)


def one_port(argv: Callable[[int], list[str]]) -> Start:
    """A server with one port for all."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        port = free_port()
        with server(argv(port), port, core=SERVER_CORE) as process:
            yield Running((process.pid,), port, port)

    return start


def homing(python_path: str = "") -> Start:
    """homing's broker with its journal on; from a compiled build where a path is given."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        with _homing("bench", free_offset(), python_path) as running:
            yield running

    return start


@contextlib.contextmanager
def _homing(name: str, offset: int, python_path: str, *peers: str) -> Iterator[Running]:
    argv = [sys.executable, "-m", "homing.cli", "broker", "--name", name]
    argv += ["--port-offset", str(offset)]
    for peer in peers:
        argv += ["--peer", peer]
    env = {"PYTHONPATH": python_path} if python_path else {}
    with tempfile.TemporaryDirectory() as data:
        argv += ["--data", data]
        with server(argv, LOCALFE + offset, core=SERVER_CORE, env=env) as process:
            wait_for_port(LOCALBE + offset)
            yield Running((process.pid,), LOCALFE + offset, LOCALBE + offset)


@contextlib.contextmanager
def federation(python_path: str = "") -> Iterator[Running]:
    """Two brokers of one federation: clients at the first, workers at the second."""
    near, far = free_offset(), free_offset()
    to_far = f"far=tcp://127.0.0.1:{CLOUDFE + far},tcp://127.0.0.1:{STATEBE + far}"
    to_near = f"near=tcp://127.0.0.1:{CLOUDFE + near},tcp://127.0.0.1:{STATEBE + near}"
    with (
        _homing("near", near, python_path, to_far) as one,
        _homing("far", far, python_path, to_near) as two,
    ):
        yield Running((*one.pids, *two.pids), one.fe, two.be)


def free_offset() -> int:
    """A port offset under which all of a broker's ports are free."""
    while True:
        offset = free_port() - LOCALFE
        if 1000 < offset < 50_000:
            return offset


def compiled_path(into: Path) -> str:
    """Unpack the newest compiled wheel that `make build` made; empty if there is none."""
    wheels = sorted((ROOT / "dist").glob("homing-*-cp*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        return ""
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(into)
    code = "import homing.wire.frames as f; print(f.__file__)"
    env = {**os.environ, "PYTHONPATH": str(into)}
    where = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    ).stdout.strip()
    if not where.endswith(".so") or not where.startswith(str(into)):
        raise RuntimeError(f"{wheels[-1].name} was unpacked but {where} was imported")
    return str(into)


def contestants(compiled: str) -> list[Broker]:
    """Every broker that can run here, homing first."""
    found = _homings("homing, plain Python", "")
    if compiled:
        found += _homings("homing, compiled", compiled)
    else:
        print("  left out: homing, compiled (run `make build` first)", file=sys.stderr)
    yardstick = majordomo_program()
    if yardstick is not None:
        start = one_port(lambda port: [str(yardstick), str(port), "heartbeat"])
        found.append(Broker("Majordomo in C on libzmq", "mdp01", start))
    script = str(HERE / "majordomo.py")
    start = one_port(lambda port: [sys.executable, script, str(port)])
    found.append(Broker("Majordomo on pyzmq", "mdp01", start))
    if apt_installed("nats-server", "nats-server"):
        start = one_port(lambda port: ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", str(port)])
        found.append(Broker("nats-server", "nats", start))
    if apt_installed("gearmand", "gearman-job-server"):
        start = one_port(_gearmand)
        found.append(Broker("gearmand", "gearman", start))
    return found


def _homings(name: str, path: str) -> list[Broker]:
    start = homing(path)
    return [
        Broker(f"{name} (01)", "mdp01", start),
        Broker(f"{name} (0X)", "mdp0x", start, {"envelope": 1}),
    ]


def _gearmand(port: int) -> list[str]:
    return ["/usr/sbin/gearmand", "-L", "127.0.0.1", "-p", str(port), "-l", "none", "-t", "1"]
