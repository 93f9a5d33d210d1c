"""How much may be sent: it can always be handed on, whatever is put before it on its way."""

from __future__ import annotations

from typing import Any

import pytest
import zmq

import homing
from homing import sync
from homing.service.policy import BrokerPolicy
from homing.testing import fabric
from homing.wire.zmtp import MAX_FRAMES
from tests.service.stage import Stage


def test_a_message_of_too_many_frames_is_refused_and_costs_no_worker() -> None:
    context: zmq.Context[Any] = zmq.Context()
    with fabric() as here, sync.Client(here.clients) as client:
        worker = homing.Worker(here.workers)

        @worker.service("size")
        def size(body: bytes) -> bytes:
            return b"%d" % len(body)

        with here.serving(worker):
            before = client.request("mmi.workers")
            for frames in range(MAX_FRAMES - 20, MAX_FRAMES + 1):
                sender = context.socket(zmq.DEALER)
                sender.connect(here.clients)
                sender.send_multipart([b"", b"MDPC0X", b"size", *[b"."] * (frames - 3)])
                answer = sender.recv_multipart()
                if frames <= MAX_FRAMES - 16:
                    assert answer[4:] == [b"%d" % (frames - 3)]
                else:
                    assert answer[:4] == [b"", b"MDPC0X", b"\x03", b"size"]
                    assert answer[4].startswith(b"too-large")
                sender.close(linger=1000)
            assert client.request("size", b"....") == b"4"
            assert client.request("mmi.workers") == before
    context.destroy(linger=0)


@pytest.mark.parametrize("dialect", ["0X", "01", "02"])
def test_what_is_taken_can_be_echoed(dialect: str) -> None:
    context: zmq.Context[Any] = zmq.Context()
    with fabric() as here:
        worker = homing.Worker(here.workers, dialect=dialect)

        @worker.service("echo")
        def echo(frames: list[bytes]) -> list[bytes]:
            return frames

        with here.serving(worker):
            for sent in (MAX_FRAMES - 16, MAX_FRAMES - 15):
                sender = context.socket(zmq.DEALER)
                sender.connect(here.clients)
                sender.send_multipart([b"", b"MDPC0X", b"echo", *[b"."] * (sent - 3)])
                answer = sender.recv_multipart()
                if sent == MAX_FRAMES - 16:
                    assert answer[4:] == [b"."] * (sent - 3)
                else:
                    assert answer[4].startswith(b"too-large")
                sender.close(linger=1000)
    context.destroy(linger=0)


def test_a_body_of_exactly_the_limit_is_within_it() -> None:
    stage = Stage(BrokerPolicy(max_body=1 << 16))
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client, body=b"x" * (1 << 16))
    assert len(worker.take()) == 1
    stage.ask(client, body=b"x" * (1 << 16) + b"x")
    assert client.take_frames()[0][4].startswith(b"too-large")


def test_the_heads_of_several_frames_do_not_count() -> None:
    stage = Stage(BrokerPolicy(max_body=1 << 16))
    worker, client = stage.worker(b"echo", credit=2), stage.client()
    halves = [b"x" * (1 << 15)] * 2
    stage.send(client, b"", b"MDPC0X", b"echo", *halves)
    assert len(worker.take()) == 1
    stage.send(client, b"", b"MDPC0X", b"echo", *halves, b"x")
    assert client.take_frames()[0][4].startswith(b"too-large")


def test_an_answer_past_the_limits_ends_its_request_and_not_one_worker_after_the_other() -> None:
    context: zmq.Context[Any] = zmq.Context()
    with fabric("service.max_message=64KiB") as here:
        answers: list[list[bytes]] = [[b"x" * (1 << 20)], [b"."] * MAX_FRAMES]
        for number, answer in enumerate(answers):
            workers = [context.socket(zmq.DEALER) for _ in range(2)]
            for worker in workers:
                worker.connect(here.workers)
                worker.send_multipart([b"", b"MDPW0X", b"\x01", b"long%d" % number])
            client = context.socket(zmq.DEALER)
            client.connect(here.clients)
            client.send_multipart([b"", b"MDPC0X", b"long%d" % number, b"go"])
            asked = 0
            while not client.poll(20):
                for worker in workers:
                    while worker.poll(0):
                        _, _, command, *rest = worker.recv_multipart()
                        if command == b"\x02":
                            asked += 1
                            service, address = rest[0], rest[1]
                            head = [b"", b"MDPW0X", b"\x07", address, b"", service]
                            worker.send_multipart([*head, *answer])
            *told, reason = client.recv_multipart()
            assert told[2:] == [b"\x03", b"long%d" % number]
            assert reason == b"too-large an answer over 65536 bytes, or of too many frames"
            assert asked == 1
    context.destroy(linger=0)


def test_a_worker_that_loses_its_link_by_a_long_answer_is_not_replaced_by_another() -> None:
    """As on a CURVE connection, where nothing can go by."""
    stage = Stage()
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client, body=b"1")
    stage.broker.overlong(worker, stage.now)
    stage.broker.closed(worker, stage.now)
    assert client.take_frames()[0][4].startswith(b"too-large")
    assert not stage.worker(b"echo").take()


def test_of_several_requests_that_a_worker_had_none_is_blamed_for_a_long_answer() -> None:
    stage = Stage()
    worker, client = stage.worker(b"echo", credit=2), stage.client()
    stage.ask(client, body=b"1")
    stage.ask(client, body=b"2")
    stage.broker.overlong(worker, stage.now)
    stage.broker.closed(worker, stage.now)
    assert client.sent == []
    assert len(stage.worker(b"echo", credit=2).take()) == 2
