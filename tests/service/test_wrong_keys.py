"""A client or worker with the wrong public key of its broker: told so, however the broker keeps silent."""

from __future__ import annotations

from typing import Any

import pytest
import zmq

import homing
from homing.errors import HandshakeRefused, LinkError
from homing.service.lifeline import Lifeline
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.z85 import z85
from homing.wire.zmtp import Connection
from tests.service.rig import broker, on_loop
from tests.service.test_client import sample_worker

KEYS, OTHERS = new_keys(), new_keys()


@on_loop
async def test_a_broker_s_other_key_is_told() -> None:
    wrong = CurveClient(OTHERS[0])
    async with broker(mechanism=CurveServer(KEYS)) as running:
        async with homing.Client(running.localfe, timeout=20.0, security=wrong) as client:
            with pytest.raises(HandshakeRefused, match="public key"):
                await client.request("echo", b"x", retries=3)
            with pytest.raises(HandshakeRefused, match="public key"):
                await client.connect()
        with pytest.raises(HandshakeRefused, match="public key"):
            await sample_worker(running.localbe, security=wrong).run()


@on_loop
async def test_a_libzmq_broker_s_other_key_is_told() -> None:
    context: zmq.Context[Any] = zmq.Context()
    router: zmq.Socket[Any] = context.socket(zmq.ROUTER)
    router.curve_server = True
    router.curve_publickey, router.curve_secretkey = (z85(key).encode() for key in KEYS)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    try:
        async with homing.Client(
            f"tcp://127.0.0.1:{port}", timeout=20.0, security=CurveClient(OTHERS[0])
        ) as client:
            with pytest.raises(HandshakeRefused, match="public key"):
                await client.request("echo", b"x")
    finally:
        context.destroy(linger=0)


def test_one_that_ends_just_then_is_tried_again() -> None:
    lifeline = Lifeline("tcp://127.0.0.1:1", homing.Client(), mechanism=CurveClient(KEYS[0]))
    ended = LinkError("closed by the peer")
    kinds = [type(lifeline._judged(ended, unheard)) for unheard in (True, True, False, True, True)]
    assert kinds == [LinkError] * 5
    assert isinstance(lifeline._judged(ended, True), HandshakeRefused)


def test_only_a_client_s_hello_can_stay_unheard() -> None:
    ours = Connection("DEALER", mechanism=CurveClient(KEYS[0]))
    theirs = Connection("ROUTER", mechanism=CurveServer(KEYS))
    told = [(ours.unheard, theirs.unheard)]
    for sender, receiver in ((theirs, ours), (ours, theirs), (theirs, ours)):
        receiver.receive(sender.take())
        told.append((ours.unheard, theirs.unheard))
    assert told == [(False, False), (True, False), (True, False), (False, False)]
