"""Heartbeats of a worker whose broker has an interval of its own."""

from __future__ import annotations

import homing
from homing.wire import mdp
from homing.wire.mdp_messages import Dialect
from tests.service.rig import FakeBroker, eventually, on_loop, serving


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
