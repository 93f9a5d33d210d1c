"""Membership against real Serf agents on loopback."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest

from homing.cluster.members import Change, Member
from homing.cluster.serf import SerfAgent, SerfMembership
from homing.endpoint import parse_endpoint
from homing.errors import HandshakeRefused, Unavailable

pytestmark = pytest.mark.skipif(
    shutil.which("serf") is None, reason="needs Debian's package serf (apt-get install serf)"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Agent:
    """One `serf agent` process."""

    def __init__(self, name: str, *extra: str) -> None:
        self.bind = f"127.0.0.1:{free_port()}"
        self.rpc = f"127.0.0.1:{free_port()}"
        self._words = [
            *("serf", "agent", f"-node={name}", f"-bind={self.bind}"),
            *(f"-rpc-addr={self.rpc}", "-profile=local", "-log-level=err", *extra),
        ]
        self.start()

    def start(self) -> None:
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self._words, stdout=quiet, stderr=quiet)

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(10)


@contextmanager
def agents(*names: str) -> Iterator[list[Agent]]:
    started = [Agent(name) for name in names]
    try:
        yield started
    finally:
        for agent in started:
            agent.end(signal.SIGKILL)


def member(number: int) -> Member:
    return Member(
        f"n{number}",
        bytes([number]) * 8,
        frozenset({"matcher"}),
        {"status": f"127.0.0.1:{7000 + number}"},
        epoch=1,
    )


@asynccontextmanager
async def running(*work: Coroutine[None, None, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks for as long as something is looked at."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition spans processes
            await asyncio.sleep(0.02)


async def _join_leave_fail() -> None:
    with agents("n1", "n2", "n3") as (one, two, three):
        seen: list[tuple[str, str]] = []

        def note(change: Change) -> None:
            seen.append((change.kind, change.member.name))

        first = SerfMembership(one.rpc, member(1), note)
        second = SerfMembership(two.rpc, member(2), lambda change: None)
        third = SerfMembership(three.rpc, member(3), lambda change: None)
        async with running(first.run(), second.run([one.bind]), third.run([one.bind])):
            await until(lambda: len(first.view) == 3 and len(third.view) == 3)
            assert first.view.members() == [member(1), member(2), member(3)]
            three.end(signal.SIGKILL)
            await until(lambda: ("failed", "n3") in seen)
            await second.withdraw()  # its agent stays
            await until(lambda: ("left", "n2") in seen)
            assert first.view.members() == [member(1)]
            assert two.process.poll() is None
            await second.leave()
            await until(lambda: two.process.poll() is not None)


@pytest.mark.slow
def test_join_leave_and_failure_are_told() -> None:
    asyncio.run(_join_leave_fail())


async def _wrong_key(config: Path) -> None:
    agent = Agent("n1", f"-config-file={config}")
    try:
        with pytest.raises(HandshakeRefused):
            await _open_when_up(SerfAgent(*_split(agent.rpc), "wrong"))
        right = SerfAgent(*_split(agent.rpc), "secret")
        await right.open()
        assert [m["Name"] for m in await right.members()] == ["n1"]
        await right.close()
    finally:
        agent.end(signal.SIGKILL)


async def _open_when_up(agent: SerfAgent) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                return await agent.open()
            except Unavailable:
                await asyncio.sleep(0.05)
            finally:
                await agent.close()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.mark.slow
def test_a_wrong_key_is_refused_and_the_right_one_served(tmp_path: Path) -> None:
    config = tmp_path / "serf.json"
    config.write_text('{"rpc_auth": "secret"}')
    asyncio.run(_wrong_key(config))


def test_no_agent_gives_a_clear_error() -> None:
    with pytest.raises(Unavailable, match=r"no Serf agent at 127\.0\.0\.1"):
        asyncio.run(SerfAgent("127.0.0.1", free_port()).open())


def test_a_key_that_is_refused_is_tried_again(tmp_path: Path) -> None:
    """Membership ended there for good, with one line in the log: nobody who came later was known."""
    config = tmp_path / "serf.json"

    async def main() -> None:
        config.write_text('{"rpc_auth": "other"}')
        agent = Agent("n1", f"-config-file={config}")
        try:
            await _open_when_up(SerfAgent(*_split(agent.rpc), "other"))
            followed = SerfMembership(agent.rpc, member(1), lambda change: None, "secret")
            async with running(followed.run()) as [following]:
                await asyncio.sleep(0.5)
                assert not following.done()
                agent.end(signal.SIGKILL)
                config.write_text('{"rpc_auth": "secret"}')
                agent.start()
                async with asyncio.timeout(20):
                    await followed.synced.wait()
        finally:
            agent.end(signal.SIGKILL)

    asyncio.run(main())


def test_a_member_whose_address_makes_no_sense_is_left_out() -> None:
    """One such, wherever it was, and no node followed its agent any more."""

    async def main() -> None:
        with agents("n1", "n2", "n3") as (one, two, three):
            told: list[Change] = []

            def dial(change: Change) -> None:
                for endpoint in change.member.endpoints.values():
                    parse_endpoint(endpoint)  # as a node does
                told.append(change)

            first = SerfMembership(one.rpc, member(1), dial)
            cut = Member("n2", bytes(8), frozenset({"matcher"}), {"status": "127.0.0.1:"})
            others = [
                SerfMembership(agent.rpc, who, lambda change: None).run([one.bind])
                for agent, who in ((two, cut), (three, member(3)))
            ]
            async with running(first.run(), *others) as tasks:
                await until(lambda: len(first.view) == 2)
                assert {change.member.name for change in told} == {"n1", "n3"}
                assert not tasks[0].done()

    asyncio.run(main())


def test_two_nodes_of_one_id_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """They take each other's place, at every node: nothing said so."""

    async def main() -> None:
        with agents("n1", "n2", "n3") as (one, two, three):
            first = SerfMembership(one.rpc, member(1), lambda change: None)
            twins = [
                SerfMembership(two.rpc, member(2), lambda change: None).run([one.bind]),
                SerfMembership(
                    three.rpc, msgspec.structs.replace(member(2), epoch=2), lambda change: None
                ).run([one.bind]),
            ]
            async with running(first.run(), *twins):
                await until(lambda: {m.name for m in first.view.members()} == {"n1", "n3"})
                await until(lambda: "n2 and n3 have one id" in _of_twins(caplog))

    asyncio.run(main())


def _of_twins(caplog: pytest.LogCaptureFixture) -> str:
    """What was said of them, in one order."""
    return caplog.text.replace("n3 and n2", "n2 and n3")
