"""Messages over the wire's limits: they go by, their senders are told, and nobody loses a connection."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import zmq

import homing
from homing import sync
from homing.errors import TooLarge
from homing.node.keys import key_text
from homing.testing import fabric
from homing.wire import mdp, mdp_peers, tasks
from homing.wire.curve import CurveClient, new_keys
from homing.wire.frames import cut, pack
from homing.wire.mdp_messages import Answer, Dialect, Kind, Nak, PeerNak, Repost, Request, Work
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL
from tests.service.stage import D0X, D01, D02, Stage

BODY = pack([b"x" * 5000])
SETTING = "service.max_message=1MiB"
LARGE = os.urandom(3 << 20)


def left_of(image: bytes) -> bytes:
    """What a reader leaves of it that kept its first 200 bytes."""
    return cut(image[:200])


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_a_client_is_told(first: bool) -> None:
    stage = Stage()
    client, worker = stage.client(), stage.worker(b"echo")
    if not first:
        stage.ask(client)
        stage.answer(worker, b"done")
        client.take()
    request = Request(D0X, b"echo", BODY, b"mine")
    stage.broker.receive_all(client, [left_of(mdp.write(request))], stage.now)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert (nak.service, nak.envelope, nak.reason.split()[0]) == (b"echo", b"mine", b"too-large")
    stage.ask(client, body=b"small")
    assert len(worker.take()) == 1
    assert stage.broker.core.live == 1


@pytest.mark.parametrize("dialect", [D01, D02])
def test_the_public_dialects_have_no_word_for_it(dialect: Dialect) -> None:
    stage = Stage()
    client = stage.client()
    stage.broker.receive(client, left_of(mdp.write(Request(dialect, b"echo", BODY))), stage.now)
    assert not client.take()
    assert client.reason is None
    assert stage.broker.record.refusals == {b"too-large": 1}


@pytest.mark.parametrize("dialect", [D0X, D01, D02])
def test_a_worker_s_answer_fails_and_the_worker_stays(dialect: Dialect) -> None:
    stage = Stage()
    client, worker = stage.client(), stage.worker(b"echo", dialect)
    for _ in range(2):
        stage.ask(client)
        (image,) = worker.take()
        work = mdp.read_to_worker(image)
        assert isinstance(work, Work)
        answer = Answer(dialect, Kind.FINAL, work.address, work.service, BODY)
        stage.broker.receive_all(worker, [left_of(mdp.write(answer))], stage.now)
        nak = mdp.read_to_client(client.take()[0])
        assert isinstance(nak, Nak)
        assert nak.reason.startswith(b"too-large an answer")


def test_a_peer_is_told() -> None:
    stage = Stage()
    origin = stage.link("cloudfe", b"there")
    repost = Repost(b"echo", b"there", b"client", BODY)
    stage.broker.receive(origin, left_of(mdp_peers.write(repost)), stage.now)
    nak = mdp_peers.read_at_cloudbe(origin.take()[0])
    assert isinstance(nak, PeerNak)
    assert (nak.address, nak.service, nak.reason.split()[0]) == (b"client", b"echo", b"too-large")


def test_a_task_client_is_told() -> None:
    stage = Stage()
    client = stage.link("taskfe")
    image = tasks.write(tasks.Task("echo", "mine", BODY))
    stage.broker.receive(client, left_of(image), stage.now)
    header = json.loads(client.take_frames()[0][0])
    assert (header["request"], header["code"], header["message_id"]) == (
        "ERROR",
        "too-large",
        "mine",
    )
    stage.broker.receive(client, left_of(pack([b"x" * 500, b"y"])), stage.now)
    assert json.loads(client.take_frames()[0][0])["code"] == "too-large"


@pytest.mark.parametrize("routers", [False, True])
def test_who_is_no_task_worker_yet_is_told(routers: bool) -> None:
    """No router could read what is left of it."""
    stage = Stage(routers=routers)
    newcomer = stage.link("taskbe")
    for image in (tasks.write(tasks.Connect("echo")) + BODY, pack([b"x" * 500, b"y"])):
        stage.broker.receive(newcomer, left_of(image), stage.now)
        assert json.loads(newcomer.take_frames()[0][0])["code"] == "too-large"


# --- over real sockets ----------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [1, 4])
@pytest.mark.parametrize("mechanism", ["null", "curve"])
def test_over_the_wire_both_ways(mechanism: str, credit: int, tmp_path: Path) -> None:
    security, settings = guarded(mechanism, tmp_path)
    with (
        fabric(SETTING, *settings) as here,
        sync.Client(here.clients, timeout=20.0, security=security) as client,
    ):
        worker = homing.Worker(here.workers, security=security)

        @worker.service("size")
        def size(body: bytes) -> bytes:
            return b"%d" % len(body)

        @worker.service("grow", concurrency=credit)
        def grow(body: bytes) -> bytes:
            runs.append(body)
            return LARGE

        runs: list[bytes] = []
        with here.serving(worker):
            for _ in range(3):
                with pytest.raises(TooLarge):
                    client.request("size", LARGE)
                with pytest.raises(TooLarge):
                    client.request("grow")
                assert client.request("size", b"....") == b"4"
        assert len(runs) == 3


def guarded(mechanism: str, folder: Path) -> tuple[Mechanism, list[str]]:
    """How to prove who one is, and the settings of a broker that asks."""
    if mechanism == "null":
        return NULL, []
    keys = new_keys()
    (folder / "key").write_text(key_text(keys))
    settings = ["security.mechanism=curve", f"security.key_file={folder / 'key'}"]
    return CurveClient(keys[0]), settings


def test_what_else_is_under_way_on_the_connection_is_answered() -> None:
    context: zmq.Context[Any] = zmq.Context()
    with fabric(SETTING) as here:
        worker = homing.Worker(here.workers)

        @worker.service("echo")
        def echo(body: bytes) -> bytes:
            return body

        with here.serving(worker), context.socket(zmq.DEALER) as client:
            client.rcvtimeo = 20_000
            client.linger = 0
            client.connect(here.clients)
            for number in range(10):
                client.send_multipart([b"before", b"", b"MDPC0X", b"echo", b"%d" % number])
                client.send_multipart([b"large", b"", b"MDPC0X", b"echo", LARGE[:number], LARGE])
            answers = [client.recv_multipart() for _ in range(20)]
            kinds = [(answer[0], answer[3]) for answer in answers]
            assert sorted(kinds) == [(b"before", b"\x02")] * 10 + [(b"large", b"\x03")] * 10
    context.destroy(linger=0)
