"""Children: ready, reborn, given up, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

from homing.errors import Unavailable
from homing.node.supervisor import LINE_BYTES, NOT_STARTED, Supervisor
from tests.node.stage import on_loop, until

PATIENT = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"]
IGNORING = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: None)
print("ready", flush=True)
while True:
    time.sleep(600)
"""
STUBBORN = [sys.executable, "-c", IGNORING]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def test_a_killed_child_is_started_again() -> None:
    async def test() -> None:
        async with Supervisor() as supervisor:
            child = supervisor.start("one", PATIENT)
            await supervisor.ready()
            first = child.pid
            os.kill(first, signal.SIGKILL)
            await until(lambda: child.lives == 2 and child.ready.is_set(), "the second life")
            assert child.exit_code == -signal.SIGKILL
            assert child.pid != first
            second = child.pid
        assert not alive(first)
        assert not alive(second)

    on_loop(test)


def test_every_line_is_heard_and_long_ones_are_cut() -> None:
    async def test() -> None:
        heard: list[tuple[str, str]] = []
        script = f"print('x' * {3 * LINE_BYTES}); print('ready'); print('end', end='')"
        async with Supervisor(lambda name, line: heard.append((name, line))) as supervisor:
            supervisor.start("talker", [sys.executable, "-c", script])
            await until(lambda: ("talker", "end") in heard)
        text = "".join(line for _, line in heard)
        assert text.startswith("x" * 3 * LINE_BYTES + "ready")
        assert max(len(line) for _, line in heard) <= 2 * LINE_BYTES

    on_loop(test)


def test_a_child_that_cannot_work_is_given_up_and_named() -> None:
    async def test() -> None:
        async with Supervisor() as supervisor:
            hopeless = supervisor.start("wrong", [sys.executable, "-c", "raise SystemExit(78)"])
            supervisor.start("right", PATIENT)
            with pytest.raises(Unavailable, match=r"wrong \(exit code 78\)"):
                await supervisor.ready()
            assert hopeless.lives == 1

    on_loop(test)


def test_a_child_that_is_never_ready_is_named() -> None:
    async def test() -> None:
        async with Supervisor(stop_seconds=5) as supervisor:
            supervisor.start("mute", [sys.executable, "-c", "import time; time.sleep(600)"])
            with pytest.raises(Unavailable, match="mute"):
                await supervisor.ready(0.3)

    on_loop(test)


def test_a_child_that_ignores_the_request_to_end_is_killed() -> None:
    async def test() -> None:
        async with Supervisor(stop_seconds=0.2) as supervisor:
            child = supervisor.start("stubborn", STUBBORN)
            await supervisor.ready()
            pid = child.pid
        assert not alive(pid)

    on_loop(test)


def test_names_are_taken_once() -> None:
    async def test() -> None:
        async with Supervisor() as supervisor:
            supervisor.start("one", PATIENT)
            with pytest.raises(ValueError, match="one"):
                supervisor.start("one", PATIENT)
            await supervisor.ready()

    on_loop(test)


def test_children_do_not_outlive_a_supervisor_that_is_killed() -> None:
    script = textwrap.dedent(
        f"""
        import asyncio
        from homing.node.supervisor import Supervisor
        async def main():
            supervisor = Supervisor()
            child = supervisor.start("one", {PATIENT!r})
            await supervisor.ready()
            print(child.pid, flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert alive(pid)
    process.kill()
    process.communicate()

    async def test() -> None:
        await until(lambda: not alive(pid), "the orphan to end")

    on_loop(test)


def test_a_command_that_is_not_there_is_tried_again_and_stopped() -> None:
    async def test() -> None:
        async with Supervisor() as supervisor:
            child = supervisor.start("ghost", ["/nonexistent/command"])
            await until(lambda: child.exit_code == NOT_STARTED, "the failure to start")
            with pytest.raises(Unavailable, match="ghost"):
                await supervisor.ready(0.1)

    on_loop(test)
