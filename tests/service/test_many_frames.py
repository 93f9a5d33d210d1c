"""How much may be sent: it can always be handed on, whatever is put before it on its way."""

from __future__ import annotations

from typing import Any

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


def test_a_body_of_exactly_the_limit_is_within_it() -> None:
    stage = Stage(BrokerPolicy(max_body=1 << 16))
    worker, client = stage.worker(b"echo"), stage.client()
    stage.ask(client, body=b"x" * (1 << 16))
    assert len(worker.take()) == 1
    stage.ask(client, body=b"x" * (1 << 16) + b"x")
    assert client.take_frames()[0][4].startswith(b"too-large")
