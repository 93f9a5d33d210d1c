"""Heartbeats both ways: a broker answers its workers', a worker those of a broker with another interval."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

import homing
from homing.service.beats import SLACK, SOON
from homing.wire import mdp
from homing.wire.mdp_messages import Dialect, Heartbeat
from tests.service.rig import FakeBroker, eventually, on_loop, serving
from tests.service.stage import D0X, D01, Stage


@on_loop
async def test_a_broker_hears_of_us_as_often_as_we_hear_of_it() -> None:
    """Whose interval is shorter than ours would take us for dead, whatever we are told to do."""
    heard: list[bytes] = []
    beat = mdp.HEARTBEATS[Dialect.D0X]

    def react(images: list[bytes]) -> list[bytes]:
        heard.extend(images)
        return [beat] if len(heard) == 1 else []

    fake = FakeBroker(react)
    async with fake.listening():
        worker = homing.Worker(fake.endpoint, heartbeat=3600.0)

        @worker.service("echo")
        async def echo(body: bytes) -> bytes:
            return body

        async with serving(worker):
            await eventually(lambda: beat in heard)


@given(st.lists(st.floats(0.01, 7.0), min_size=1, max_size=40))
def test_our_heartbeats_keep_their_interval_whenever_a_worker_beats(gaps: list[float]) -> None:
    stage = Stage()
    worker = stage.worker(b"echo")
    ours = [stage.now]

    def listen() -> None:
        ours.extend(stage.now for image in worker.take() if image == mdp.HEARTBEATS[D0X])

    for gap in gaps:
        end = stage.now + gap
        while stage.now < end:
            stage.pass_time(min(0.1, end - stage.now))
            listen()
        stage.say(worker, Heartbeat(D0X))
        listen()
    spaces = [later - earlier for earlier, later in pairwise([*ours, stage.now])]
    heartbeat, tick = 2.5, 0.11
    assert max(spaces) <= heartbeat * SLACK + tick
    assert min(spaces[:-1], default=heartbeat) >= heartbeat * (1 - SOON) - 1e-9, (
        "floods are not echoed"
    )


def test_a_worker_that_beats_is_answered_and_not_beaten_to() -> None:
    """Its socket is at hand then; a beat of our own would come when it is not (ADR 0024)."""
    stage = Stage()
    worker = stage.worker(b"echo", D01)
    stage.pass_time(2.4)
    for _ in range(10):
        assert worker.take() == []
        stage.say(worker, Heartbeat(D01))
        assert worker.take() == [mdp.HEARTBEATS[D01]]
        stage.pass_time(2.6)
