"""`homing broker` as a process, with foreign peers on libzmq, killed and drained."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from homing.journal.events import RequestAccepted, RequestAnswered, RequestRefused
from homing.journal.reader import read
from tests.conftest import PROFILE
from tests.service.foreign import Client, Worker
from tests.service.processes import BrokerProcess, Reaper

pytestmark = pytest.mark.slow
ROUNDS = 50 if PROFILE == "nightly" else 4


def dealer(context: zmq.Context[Any], endpoint: str) -> zmq.Socket[Any]:
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVTIMEO, 10_000)
    socket.connect(endpoint)
    return socket


def until(reached: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.02)


@pytest.mark.parametrize("port", ["localfe", "localbe"])
@pytest.mark.parametrize("asks", ["01", "02"])
@pytest.mark.parametrize("serves", ["01", "02"])
def test_foreign_clients_and_workers(
    reaper: Reaper, context: zmq.Context[Any], port: str, asks: str, serves: str
) -> None:
    broker = reaper.broker()
    client = Client(context, broker.ends["localfe"], asks)
    assert client.request(b"mmi.service", b"echo") == b"404"
    worker = Worker(context, broker.ends[port], b"echo", serves)
    thread = threading.Thread(target=serve, args=(worker, 5))
    thread.start()
    for number in range(5):
        body = b"%d" % number * 100
        assert client.request(b"echo", body, 5.0, 3) == body[::-1]
    assert client.request(b"mmi.service", b"echo") == b"200"
    thread.join(20)
    broker.terminate()
    assert broker.wait() == 0, broker.stderr()
    assert "Traceback" not in broker.stderr()


def serve(worker: Worker, count: int) -> None:
    for _ in range(count):
        request = worker.receive(20.0)
        if request is None:
            return
        worker.reply(request, request[-1][::-1])


def test_02_streams_parts(reaper: Reaper, context: zmq.Context[Any]) -> None:
    broker = reaper.broker()
    worker = Worker(context, broker.ends["localfe"], b"count", "02")
    client = dealer(context, broker.ends["localfe"])
    client.send_multipart([b"MDPC02", b"\x01", b"count", b"3"])
    request = worker.receive(10.0)
    assert request is not None
    for part in (b"1", b"2"):
        worker.partial(request, part)
    worker.reply(request, b"3")
    got = [client.recv_multipart()[1:] for _ in range(3)]
    assert got == [
        [b"\x02", b"count", b"1"],
        [b"\x02", b"count", b"2"],
        [b"\x03", b"count", b"3"],
    ]


def test_killed_workers_lose_nothing(reaper: Reaper, context: zmq.Context[Any]) -> None:
    broker = reaper.broker()
    client = dealer(context, broker.ends["localfe"])
    for round_ in range(ROUNDS):
        victim = reaper.worker(broker.ends["localbe"])
        bodies = [b"%d-%d" % (round_, number) for number in range(50)]
        for body in bodies:
            client.send_multipart([body, b"", b"MDPC0X", b"echo", body])
        victim.kill()
        heir = reaper.worker(broker.ends["localbe"])
        answers = {reply[0]: reply[-1] for reply in (client.recv_multipart() for _ in bodies)}
        assert answers == {body: body[::-1] for body in bodies}
        heir.kill()
    broker.terminate()
    assert broker.wait() == 0, broker.stderr()


def test_killed_broker_comes_back(reaper: Reaper, context: zmq.Context[Any]) -> None:
    broker = reaper.broker()
    reaper.worker(broker.ends["localbe"], dialect="02")
    client = Client(context, broker.ends["localfe"])
    for round_ in range(ROUNDS):
        assert client.request(b"echo", b"abc", 3.0, 10) == b"cba"
        ports = broker.same_ports
        broker.kill()
        broker = reaper.broker(**ports)
        assert client.request(b"echo", b"%d!" % round_, 3.0, 10) == (b"%d!" % round_)[::-1]


def test_drain(reaper: Reaper, context: zmq.Context[Any], tmp_path: Path) -> None:
    broker = reaper.broker("here", "--drain", "5s")
    worker = Worker(context, broker.ends["localbe"], b"echo", "01")
    running, late = (dealer(context, broker.ends["localfe"]) for _ in range(2))
    late.send_multipart([b"", b"MDPC0X", b"mmi.service", b"echo"])
    late.recv_multipart()
    running.send_multipart([b"", b"MDPC0X", b"echo", b"abc"])
    request = worker.receive(10.0)
    assert request is not None
    broker.terminate()

    def refused() -> bool:
        late.send_multipart([b"", b"MDPC0X", b"echo", b"too late"])
        return late.recv_multipart()[2:] == [b"\x03", b"echo", b"shutting-down"]

    def beaten_to() -> bool:
        return worker.receive(0.05) is None  # it works, and lives

    until(lambda: beaten_to() and _stopping(broker) and refused(), 4.0)
    newcomer = dealer(context, broker.ends["localfe"])  # it too is told, not left to wait
    newcomer.send_multipart([b"", b"MDPC0X", b"echo", b"later still"])
    assert newcomer.recv_multipart() == [b"", b"MDPC0X", b"\x03", b"echo", b"shutting-down"]
    worker.reply(request, b"done")
    assert running.recv_multipart() == [b"", b"MDPC0X", b"\x02", b"echo", b"done"]
    assert broker.wait(10.0) == 0, broker.stderr()
    kinds = [type(record.event) for record in read(tmp_path / "journal" / "broker-here")]
    assert {RequestAccepted, RequestAnswered, RequestRefused} <= set(kinds)


def _stopping(broker: BrokerProcess) -> bool:
    return "draining" in broker.stderr()


def test_federation_of_two_and_a_peer_that_dies(reaper: Reaper, context: zmq.Context[Any]) -> None:
    north = reaper.broker("north")
    ends = f"{north.ends['cloudfe']},{north.ends['statebe']}"
    south = reaper.broker("south", "--peer", f"north={ends}")
    reaper.worker(north.ends["localbe"], "rare")
    client = Client(context, south.ends["localfe"])
    until(lambda: _peer_has(client, "rare"))
    assert client.request(b"rare", b"abc", 5.0, 3) == b"cba"
    north.kill()
    local = dealer(context, south.ends["localfe"])
    local.send_multipart([b"", b"MDPC0X", b"rare", b"xyz"])
    reaper.worker(south.ends["localbe"], "rare")
    assert local.recv_multipart()[-1] == b"zyx"


def _peer_has(client: Client, service: str) -> bool:
    peers = msgspec.json.decode(client.request(b"mmi.peers", b""))
    return any(peer["services"].get(service) for peer in peers.values() if peer["reachable"])


def test_tasks_over_libzmq(reaper: Reaper, context: zmq.Context[Any]) -> None:
    broker = reaper.broker()
    worker = dealer(context, broker.ends["taskbe"])
    worker.send_multipart([b'{"request":"CONNECT","service":"echo"}', b""])
    header, config = worker.recv_multipart()
    assert msgspec.json.decode(header) == {"request": "CONFIG"}
    assert msgspec.json.decode(config)["group"] == [broker.ends["taskbe"]]
    worker.send_multipart([b'{"request":"PING","ts":1}', b""])
    assert msgspec.json.decode(worker.recv_multipart()[0])["request"] == "PONG"
    client = context.socket(zmq.REQ)
    client.setsockopt(zmq.RCVTIMEO, 10_000)
    client.connect(broker.ends["taskfe"])
    client.send_multipart([b'{"request":"TASK","type":"REQUEST","service":"echo"}', b"abc"])
    while True:
        header, body = worker.recv_multipart()
        if b'"TASK"' in header:
            break
        worker.send_multipart([b'{"request":"PONG"}', b""])
    worker.send_multipart([header.replace(b"REQUEST", b"RESPONSE"), body[::-1]])
    answer, body = client.recv_multipart()
    assert body == b"cba"
    assert msgspec.json.decode(answer)["type"] == "RESPONSE"
