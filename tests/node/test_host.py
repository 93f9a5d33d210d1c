"""The host as a Port: timers that survive a bug, the journal, what a drain waits for."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Hashable
from pathlib import Path

import pytest

from homing.config.settings import Node
from homing.errors import JournalError
from homing.journal.events import NodeStopped
from homing.journal.writer import open_journal
from homing.node.host import Host
from homing.node.plug import BOUNDS, StreamPlug
from homing.ports import Link
from tests.node.stage import Lines, Memory, dial, echo, lines_host, on_loop, until


def test_events_are_numbered_and_told_once_they_are_durable(tmp_path: Path) -> None:
    async def test() -> None:
        role = Memory()
        host, _ = lines_host(role)
        host.journal_writer = open_journal(
            tmp_path, bytes(8), post=host.loop.call_soon_threadsafe, on_durable=host.durable
        )
        numbers = [host.journal(NodeStopped(host.now(), b"test")) for _ in range(3)]
        assert numbers == sorted(set(numbers))
        await until(lambda: role.durable and role.durable[-1] == numbers[-1])
        host.stop()
        assert host.journal_writer is None, "closed with the host"

    on_loop(test)


class FullDisk:
    """A journal whose disk takes nothing to the last."""

    def append(self, event: object) -> int:
        return 1

    def close(self) -> None:
        raise JournalError("3 events not written: No space left on device")


def test_what_a_full_disk_did_not_take_is_kept_for_whoever_ends_the_process() -> None:
    async def test() -> None:
        host, _ = lines_host(Memory())
        host.journal_writer = FullDisk()
        host.stop()
        host.stop()
        assert str(host.unwritten) == "3 events not written: No space left on device"

    on_loop(test)


def test_without_a_journal_nothing_is_waited_for() -> None:
    async def test() -> None:
        host, _ = lines_host(Memory())
        assert host.journal(NodeStopped(0.0, b"test")) == 0
        host.stop()

    on_loop(test)


def test_peers_wait_while_the_disk_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.node.host.PRESSED_SECONDS", 100.0)

    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role)
        reader, writer = await dial(port)
        host.press(True)
        writer.write(b"first\n")
        assert await reader.readline() == b"first\n"  # it was under way
        writer.write(b"second\n")
        await asyncio.sleep(0.2)
        assert len(role.received) == 1
        host.press(False)
        assert await reader.readline() == b"second\n"
        writer.close()
        host.stop()

    on_loop(test)


def test_a_disk_that_stays_behind_is_not_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("homing.node.host.PRESSED_SECONDS", 0.2)

    async def test() -> None:
        host, port = lines_host(Memory(echo))
        reader, writer = await dial(port)
        host.press(True)
        writer.write(b"first\n")
        await reader.readline()
        writer.write(b"second\n")
        assert await reader.readline() == b"second\n"
        assert not host.turn.pressed
        writer.close()
        host.stop()

    on_loop(test)


def test_whose_work_does_not_end_while_a_node_drains_is_told() -> None:
    class Busy(Memory):
        drained = False

        def drain(self, now: float) -> None:
            """Its work goes on."""

        def stop(self, now: float) -> None:
            self.drained = True
            for link in self.links:
                link.send(b"shutting down\n")

    async def test() -> None:
        host, port = lines_host(Busy())
        reader, writer = await dial(port)
        await until(lambda: host.plugs["lines"].links)
        await host.drain(host.now() + 0.05)
        assert await reader.read() == b"shutting down\n"
        writer.close()

    on_loop(test)


def test_a_node_that_stood_still_hears_its_peers_before_it_judges_them() -> None:
    class Order(Memory):
        def wake(self, key: Hashable, now: float) -> None:
            super().wake((key, len(self.received)), now)

    async def test() -> None:
        quiet = socket.socket()

        def stand_still(link: Link, message: bytes) -> None:
            if message == b"stop":
                quiet.sendall(b"I live\n")
                host.later(host.now() + 0.01, "judge")
                time.sleep(0.3)

        role = Order(stand_still)
        host, port = lines_host(role)
        quiet.connect(("127.0.0.1", port))
        _, busy = await dial(port)
        await until(lambda: len(role.links) == 2)
        busy.write(b"stop\n")
        await until(lambda: role.woken)
        assert role.woken == [("judge", 2)]
        host.later(host.now(), "next")
        await until(lambda: len(role.woken) == 2)
        busy.close()
        quiet.close()
        host.stop()

    on_loop(test)


def test_a_role_that_fails_when_woken_is_woken_again() -> None:
    class Clumsy(Memory):
        def wake(self, key: Hashable, now: float) -> None:
            super().wake(key, now)
            if key == "bad":
                raise KeyError("a bug")

    async def test() -> None:
        role = Clumsy()
        host, _ = lines_host(role)
        for number in range(3):
            host.later(host.now() + 0.01 * number, "bad" if number == 1 else number)
        await until(lambda: role.woken == [0, "bad", 2])
        host.stop()

    on_loop(test)


def test_a_role_that_fails_as_a_link_opens_or_ends_loses_only_the_link() -> None:
    class Clumsy(Memory):
        def opened(self, link: Link, now: float) -> None:
            super().opened(link, now)
            if len(self.links) == 1:
                raise KeyError("a bug")

        def closed(self, link: Link, now: float) -> None:
            super().closed(link, now)
            raise KeyError("another")

    async def test() -> None:
        role = Clumsy(echo)
        host, port = lines_host(role)
        first, _ = await dial(port)
        assert await first.read() == b""
        assert len(role.gone) == 1
        role.links.insert(0, role.gone[0])  # from now on it opens in peace
        reader, writer = await dial(port)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_drain_brings_out_what_is_queued(plain: bool) -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        peers = [await dial(port) for _ in range(50)]
        await until(lambda: len(role.links) == 50)
        for link in role.links:
            link.send(b"x" * 200_000)
        readers = [reader.read() for reader, _ in peers]
        drained = host.loop.create_task(host.drain(host.now() + 30))
        for read in readers:
            assert await read == b"x" * 200_000
        await drained
        assert not host.plugs["lines"].links
        for _, writer in peers:
            writer.close()

    on_loop(test, plain)


def test_the_settings_of_a_node_reach_its_links_and_dials() -> None:
    async def test() -> None:
        node = Node(
            max_connections=7,
            handshake_timeout=0.5,
            high_water=1 << 20,
            low_water=1 << 10,
            reconnect_first=0.25,
            reconnect_last=0.5,
            listen_backlog=3,
        )
        bounds = BOUNDS.with_settings(node)
        assert (bounds.connections, bounds.handshake) == (7, 0.5)
        assert (bounds.high_water, bounds.low_water) == (1 << 20, 1 << 10)
        assert bounds.backlog == BOUNDS.backlog
        host = Host.configured(node)
        host.role = Memory()
        host.add(StreamPlug("lines", Lines, bounds=bounds))
        host.connect("lines", "127.0.0.1:1")
        (dial,) = host._dials.values()
        assert 0.125 <= dial._backoff.pause() <= 0.25
        assert [dial._backoff.pause() <= 0.5 for _ in range(5)] == [True] * 5
        listener = host.listen("lines", "127.0.0.1:0")
        peers = [socket.socket() for _ in range(20)]
        for peer in peers:
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", int(listener.rpartition(":")[2])))
        assert sum(bool(select.select([], [peer], [], 0)[1]) for peer in peers) <= 5
        for peer in peers:
            peer.close()
        host.stop()

    on_loop(test)
