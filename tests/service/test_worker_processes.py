"""A worker whose functions run in processes, and what is left of it when one of these dies."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import homing
from homing.errors import Failed
from tests.service.rig import broker, eventually, on_loop, serving


def fall(body: bytes) -> bytes:
    if body == b"now":
        os.kill(os.getpid(), signal.SIGKILL)
    return b"stood"


@on_loop
async def test_a_process_that_dies_fails_its_request_and_no_later_one() -> None:
    threads = threading.active_count()
    async with broker() as running:
        worker = homing.Worker(running.localbe)
        worker.service("fall", run="process")(fall)
        async with serving(worker), homing.Client(running.localfe, timeout=20.0) as client:
            for _ in range(2):
                with pytest.raises(Failed, match="a process died"):
                    await client.request("fall", b"now")
                assert await client.request("fall", b"later") == b"stood"
    await eventually(lambda: threading.active_count() <= threads)  # those of pools that are gone
