"""Outgoing links: kept, found again, given up when told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from homing.node.host import Host
from homing.node.plug import StreamPlug
from tests.node.stage import Lines, Memory, echo, lines_host, on_loop, until


def dialler(role: Memory) -> Host:
    host = Host(reconnect=(0.01, 0.1))
    host.role = role
    host.add(StreamPlug("out", Lines))
    return host


def test_a_link_comes_back_when_the_peer_does() -> None:
    async def test() -> None:
        role = Memory()
        host = dialler(role)
        server_role = Memory(echo)
        server, port = lines_host(server_role)
        host.connect("out", f"127.0.0.1:{port}")
        host.connect("out", f"127.0.0.1:{port}")
        await until(lambda: role.links)
        assert len(role.links) == 1, "asked for twice is kept once"
        server.stop()
        await until(lambda: role.gone)
        assert role.links == []
        again = Host()
        again.role = server_role
        again.add(StreamPlug("lines", Lines))
        again.listen("lines", f"127.0.0.1:{port}")
        await until(lambda: role.links, "the link to come back")
        role.links[0].send(b"hello again\n")
        await until(lambda: role.received == [b"hello again"])
        host.stop()
        again.stop()

    on_loop(test)


def test_a_peer_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "late.sock"
        role = Memory()
        host = dialler(role)
        host.connect("out", f"ipc://{path}")
        await until(lambda: next(iter(host._dials.values())).failures >= 3, "three failures")
        server = Host()
        server.role = Memory(echo)
        server.add(StreamPlug("lines", Lines))
        server.listen("lines", f"ipc://{path}")
        await until(lambda: role.links)
        host.stop()
        server.stop()

    on_loop(test)


def test_a_peer_that_accepts_and_hangs_up_is_not_hammered() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as rude:
            rude.setblocking(False)
            host = dialler(Memory())
            host.connect("out", f"127.0.0.1:{rude.getsockname()[1]}")
            loop = asyncio.get_running_loop()
            pauses = []
            last = host.now()
            for _ in range(8):
                sock, _ = await loop.sock_accept(rude)
                sock.close()
                pauses.append(host.now() - last)
                last = host.now()
            assert sum(pauses) > 0.2, "the pauses grow although every connect succeeds"
            host.stop()

    on_loop(test)


def test_disconnect_closes_the_link_and_stops_dialling() -> None:
    async def test() -> None:
        role, server_role = Memory(), Memory()
        host = dialler(role)
        server, port = lines_host(server_role)
        host.connect("out", f"127.0.0.1:{port}")
        await until(lambda: role.links)
        role.links[0].send(b"last words\n")
        host.disconnect("out", f"127.0.0.1:{port}")
        host.disconnect("out", "127.0.0.1:1")
        await until(lambda: server_role.gone)
        assert server_role.received == [b"last words"]
        await asyncio.sleep(0.1)
        assert server_role.links == []
        host.stop()
        server.stop()

    on_loop(test)
