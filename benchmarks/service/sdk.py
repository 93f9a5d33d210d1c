"""All in Python: client libraries on the same work, one client and one worker process each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.harness import ROOT, apt_installed
from benchmarks.peers import BUILD
from benchmarks.service.brokers import NATS, YARDSTICK, Broker, Start, rabbitmq
from benchmarks.service.drive import LOAD_CORE, Figures, expect

SITE = BUILD / "site"
"""Where other libraries are fetched to: they are no dependencies of homing's."""
NATS_PY = "nats-py + nats-server"


@dataclass(frozen=True)
class Library:
    """A client library, the broker it is used with, and where else it is imported from."""

    name: str
    module: str
    start: Start
    path: str = ""
    scheme: str = "tcp"


def libraries(brokers: list[Broker]) -> list[Library]:
    """Those whose broker and package can be had."""
    by_name = {broker.name: broker for broker in brokers}
    found = [
        Library(
            f"homing.Client + {name.partition(' (')[0]}", "with_homing", broker.start, broker.path
        )
        for name, broker in by_name.items()
        if broker.protocol == "mdp0x"
    ]
    if NATS in by_name and fetched("nats-py", "nats"):
        found.append(Library(NATS_PY, "with_nats", by_name[NATS].start, str(SITE), "nats"))
    if apt_installed("rabbitmq-server", "rabbitmq-server") and fetched("aio-pika", "aio_pika"):
        found.append(Library("aio-pika + RabbitMQ", "with_pika", rabbitmq, str(SITE), "amqp"))
    if YARDSTICK in by_name:
        found.append(Library(f"zmq.asyncio + {YARDSTICK}", "with_pyzmq", by_name[YARDSTICK].start))
    return found


def fetched(package: str, module: str) -> bool:
    """Fetch a package into a folder of its own."""
    if (SITE / module).exists():
        return True
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(SITE), package]
    if subprocess.run(command, check=False, capture_output=True).returncode == 0:
        return True
    print(f"  left out: {package} (pip could not fetch it)", file=sys.stderr)
    return False


def measure_library(library: Library) -> Figures:
    """One run: requests/s, and CPU µs of the client process per request."""
    with library.start() as running:
        worker = _spawn(library, "worker", f"{library.scheme}://127.0.0.1:{running.be}")
        try:
            return _ask(library, worker, f"{library.scheme}://127.0.0.1:{running.fe}")
        finally:
            _end(worker)


def _ask(library: Library, worker: subprocess.Popen[str], endpoint: str) -> Figures:
    assert worker.stdout is not None
    expect(worker.stdout, "ready")
    client = _spawn(library, "client", endpoint)
    try:
        assert client.stdout is not None
        told = json.loads(expect(client.stdout, "end"))
    finally:
        _end(client)
    return Figures(told["cpu_us"], told["requests"] / told["seconds"], 0.0, 0.0)


def _spawn(library: Library, part: str, endpoint: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([library.path, str(ROOT)] if library.path else [str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.peers.sdk.{library.module}", part, endpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        text=True,
    )
    if LOAD_CORE is not None:
        os.sched_setaffinity(process.pid, {LOAD_CORE})
    return process


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
