"""The brokers that are compared: how each is started, and what it speaks."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import ROOT, apt_installed, free_port, server, wait_for_port
from benchmarks.peers import HERE, floor_program, majordomo_program

SERVER_CORE = 0 if (os.cpu_count() or 1) > 1 else None

PLAIN, COMPILED = "homing, plain Python", "homing, compiled"
YARDSTICK, NATS = "Majordomo in C on libzmq", "nats-server"
FLOOR = "the sockets alone, in C"

LOCALFE, LOCALBE, CLOUDFE, STATEBE = 5555, 5556, 5557, 5558
BROKER_PORTS = range(5555, 5562)  # with those of the tasks


@dataclass(frozen=True)
class Running:
    """A broker that listens: its processes, and where clients and workers connect."""

    pids: tuple[int, ...]
    fe: int | str  # a port, or a unix socket's path
    be: int | str


Start = Callable[[], contextlib.AbstractContextManager[Running]]


@dataclass(frozen=True)
class Broker:
    """A row of the tables: a name, a protocol of the load generator, a way to start it."""

    name: str
    protocol: str
    start: Start
    options: dict[str, int] = field(default_factory=dict)
    path: str = ""  # where homing's own library of this form is imported from


def one_port(argv: Callable[[int], list[str]]) -> Start:
    """A server with one port for all."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        port = free_port()
        with server(argv(port), port, core=SERVER_CORE) as process:
            yield Running((process.pid,), port, port)

    return start


def one_path(argv: Callable[[str], list[str]]) -> Start:
    """A server with one unix socket for all."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/broker"
            with server(argv(path), path, core=SERVER_CORE) as process:
                yield Running((process.pid,), path, path)

    return start


def homing(python_path: str, *, local: bool = False) -> Start:
    """homing's broker with its journal on, imported from `python_path`; `local`: on unix sockets too, and driven there."""

    @contextlib.contextmanager
    def start() -> Iterator[Running]:
        with _homing("bench", free_offset(), python_path, local=local) as running:
            yield running

    return start


@contextlib.contextmanager
def _homing(
    name: str, offset: int, python_path: str, *peers: str, local: bool = False
) -> Iterator[Running]:
    argv = [sys.executable, "-m", "homing.cli", "broker", "--name", name]
    # The load leaves with requests under way: nobody waits for what a drain would wait for.
    argv += ["--port-offset", str(offset), "--drain", "0.1s"]
    # A million requests take longer to send than one may wait by default.
    argv += ["--set", "service.request_timeout=10min"]
    for peer in peers:
        argv += ["--peer", peer]
    # Compiled once for the whole benchmark, wherever it runs.
    caches = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{python_path}/cache"}
    env = {"PYTHONPATH": python_path, **caches}
    with tempfile.TemporaryDirectory() as data:
        argv += ["--data", data]
        fe: int | str = LOCALFE + offset
        be: int | str = LOCALBE + offset
        if local:
            argv += ["--set", f"service.localfe=tcp://127.0.0.1:{fe},ipc://{data}/fe"]
            argv += ["--set", f"service.localbe=tcp://127.0.0.1:{be},ipc://{data}/be"]
            fe, be = f"{data}/fe", f"{data}/be"
        with server(argv, fe, core=SERVER_CORE, env=env) as process:
            wait_for_port(be)
            yield Running((process.pid,), fe, be)


@contextlib.contextmanager
def federation(python_path: str) -> Iterator[Running]:
    """Two brokers of one federation: clients at the first, workers at the second."""
    near, far = free_offset(), free_offset()
    to_far = f"far=tcp://127.0.0.1:{CLOUDFE + far},tcp://127.0.0.1:{STATEBE + far}"
    to_near = f"near=tcp://127.0.0.1:{CLOUDFE + near},tcp://127.0.0.1:{STATEBE + near}"
    with (
        _homing("near", near, python_path, to_far) as one,
        _homing("far", far, python_path, to_near) as two,
    ):
        yield Running((*one.pids, *two.pids), one.fe, two.be)


def free_offset(ports: range = BROKER_PORTS) -> int:
    """A port offset under which every port of a broker, or of another node, is free.

    Below the range that the system gives to outgoing connections, of which a benchmark has many.
    """
    while True:
        offset = random.randrange(5000, 26_000)
        if all(_free(port + offset) for port in ports):
            return offset


def _free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def plain_path(into: Path) -> str:
    """homing's sources alone, so that nothing compiled in the tree is measured by mistake."""
    shutil.copytree(ROOT / "src", into, ignore=shutil.ignore_patterns("*.so"), dirs_exist_ok=True)
    return str(into)


def compiled_path(into: Path) -> str:
    """Unpack the compiled wheel that `make build` made of these sources; empty without one."""
    wheels = sorted((ROOT / "dist").glob("homing-*-cp*.whl"), key=_changed)
    newest = max(map(_changed, (ROOT / "src").rglob("*.py")))
    if not wheels or _changed(wheels[-1]) < newest:
        why = "it is older than the sources" if wheels else "there is no wheel"
        print(f"  left out: homing, compiled ({why}: run `make build`)", file=sys.stderr)
        return ""
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(into)
    where = _imported_from(into)
    if not where.endswith(".so") or not where.startswith(str(into)):
        raise RuntimeError(f"{wheels[-1].name} was unpacked but {where} was imported")
    return str(into)


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _imported_from(path: Path) -> str:
    """The file that a broker started on `path` takes a hot module from."""
    code = "import homing.service.dispatch as hot; print(hot.__file__)"
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def contestants(plain: str, compiled: str) -> list[Broker]:
    """Every broker that can run here, homing first."""
    found = _homings(PLAIN, plain)
    if compiled:
        found += _homings(COMPILED, compiled)
    yardstick = majordomo_program()
    if yardstick is not None:
        start = one_port(lambda port: [str(yardstick), str(port), "heartbeat"])
        found.append(Broker(YARDSTICK, "mdp01", start))
    script = str(HERE / "majordomo.py")
    start = one_port(lambda port: [sys.executable, script, str(port)])
    found.append(Broker("Majordomo on pyzmq", "mdp01", start))
    if apt_installed("nats-server", "nats-server"):
        start = one_port(lambda port: ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", str(port)])
        found.append(Broker(NATS, "nats", start))
    if apt_installed("gearmand", "gearman-job-server"):
        found.append(Broker("gearmand", "gearman", one_port(_gearmand)))
    return found


@contextlib.contextmanager
def rabbitmq() -> Iterator[Running]:
    """RabbitMQ as it comes, but for where it listens and writes; for the libraries in Python alone."""
    port, names, between = free_port(), free_port(), free_port()
    with tempfile.TemporaryDirectory() as home:
        env = {
            "HOME": home,
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(between),
            "RABBITMQ_MNESIA_BASE": home,
            "RABBITMQ_LOG_BASE": home,
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins",
            "RABBITMQ_PID_FILE": f"{home}/pid",
        }
        # Started here, the server of names does not stay behind as a daemon.
        with (
            server(["epmd", "-port", str(names), "-address", "127.0.0.1"], names),
            server(
                ["/usr/lib/rabbitmq/bin/rabbitmq-server"], port, core=SERVER_CORE, env=env
            ) as process,
        ):
            yield Running((process.pid,), port, port)


def floor(credit: int = 1) -> Broker:
    """No contestant: what the machine asks of every broker."""
    program = str(floor_program())
    return Broker(FLOOR, "mdp01", one_port(lambda port: [program, str(port), str(credit)]))


def _homings(name: str, path: str) -> list[Broker]:
    """The public dialect for the comparison, homing's own for what only it can do."""
    start = homing(path)
    return [
        Broker(f"{name} (01)", "mdp01", start),
        Broker(f"{name} (0X)", "mdp0x", start, {"envelope": 1}, path),
    ]


def _gearmand(port: int) -> list[str]:
    return [
        "/usr/sbin/gearmand",
        "-L",
        "127.0.0.1",
        "-p",
        str(port),
        "-l",
        "none",
        "-t",
        "1",
    ]
