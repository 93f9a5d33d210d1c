"""Listening: TCP, unix sockets, TLS, shared ports, stampedes and limits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from homing.errors import ConfigError, Unavailable
from homing.node.host import Host
from homing.node.limits import raise_file_limit
from homing.node.link import StreamLink
from homing.node.plug import Bounds, StreamPlug
from tests.node.stage import Lines, Memory, dial, echo, lines_host, on_loop, open_files, until

TLS = Path(__file__).with_name("tls")


def links_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, StreamLink) for thing in gc.get_objects())


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_five_thousand_connects_and_closes_leave_nothing(plain: bool) -> None:
    raise_file_limit()

    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role)
        warm = await dial(port)
        await until(lambda: len(role.links) == 1)
        alive, files = links_alive(), open_files()  # what earlier tests left is collected first
        for _ in range(10):
            peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
            await until(lambda: len(role.links) == 501, "500 links")
            for peer in peers:
                peer.close()
            await until(lambda: len(role.links) == 1, "500 ends")
        assert len(role.gone) == 5000
        assert len(host.plugs["lines"].links) == 1
        assert len(host._wheel) == 0
        role.gone.clear()
        await until(lambda: open_files() <= files, "every file to be closed")
        await until(lambda: links_alive() <= alive, "every link to be forgotten")
        warm[1].close()
        host.stop()

    on_loop(test, plain)


def test_past_the_limit_new_ones_are_closed_and_old_ones_served() -> None:
    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role, Bounds(connections=2))
        peers = [await dial(port), await dial(port)]
        await until(lambda: len(role.links) == 2)
        reader, writer = await dial(port)
        assert await reader.read() == b""
        writer.close()
        for reader, writer in peers:
            writer.write(b"hello\n")
            assert await reader.readline() == b"hello\n"
        peers[0][1].close()
        await until(lambda: len(host.plugs["lines"].links) == 1)
        reader, writer = await dial(port)
        writer.write(b"room again\n")
        assert await reader.readline() == b"room again\n"
        writer.close()
        peers[1][1].close()
        host.stop()

    on_loop(test)


def test_unix_sockets_and_their_files(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "node.sock"
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(str(path))
        stale.close()  # the file stays behind
        host = Host()
        host.role = Memory(echo)
        host.add(StreamPlug("lines", Lines))
        assert host.listen("lines", f"ipc://{path}") == f"ipc://{path}"
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        with pytest.raises(Unavailable, match=r"node\.sock"):
            host.listen("lines", f"ipc://{path}")
        writer.close()
        host.stop()
        assert not path.exists()

    on_loop(test)


def test_a_socket_whose_node_accepts_nobody_is_not_stale(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "node.sock"
        busy = socket.socket(socket.AF_UNIX)
        busy.bind(str(path))
        busy.listen(0)
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(str(path))  # and the kernel keeps no other
        host = Host()
        host.add(StreamPlug("lines", Lines))
        with pytest.raises(Unavailable, match="in use") as told:
            host.listen("lines", f"ipc://{path}")
        assert "another process listens there" in told.value.hint
        assert path.is_socket()
        host.stop()
        waiting.close()
        busy.close()

    on_loop(test)


def test_a_file_that_somebody_else_has_made_since_stays(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "node.sock"
        host, heir = Host(), Host()
        for each in (host, heir):
            each.role = Memory(echo)
            each.add(StreamPlug("lines", Lines))
        host.listen("lines", f"ipc://{path}")
        path.unlink()
        heir.listen("lines", f"ipc://{path}")
        host.stop()
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
        heir.stop()
        assert not path.exists()

    on_loop(test)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "notes.txt"
        path.write_text("precious")
        host = Host()
        host.add(StreamPlug("lines", Lines))
        with pytest.raises(Unavailable):
            host.listen("lines", f"ipc://{path}")
        assert path.read_text(encoding="utf-8") == "precious"
        host.stop()

    on_loop(test)


def test_tls_both_ways() -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    client = ssl.create_default_context(cafile=str(TLS / "cert.pem"))

    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role, tls=server)
        caller = Memory()
        dialler = Host(reconnect=(0.01, 0.1))
        dialler.role = caller
        dialler.add(StreamPlug("out", Lines, tls=client))
        dialler.connect("out", f"127.0.0.1:{port}")
        await until(lambda: caller.links, "the TLS link")
        payload = b"p" * (1 << 20)
        caller.links[0].send(payload + b"\n")
        await until(lambda: caller.received == [payload], "the echo over TLS")
        host.together(role.links.copy()).send(b"to all\n")
        await until(lambda: caller.received == [payload, b"to all"], "what all of one link get")
        clear, writer = await dial(port)
        writer.write(b"in clear\n" * 10)
        assert b"in clear" not in await clear.read(), "a peer without TLS gets no echo"
        assert len(role.links) == 1
        writer.close()
        dialler.stop()
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_tls_handshake_that_fails_is_told_with_who_and_why(
    plain: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    told: list[tuple[str, str, str]] = []

    async def fail(port: int, said: bytes | None) -> None:
        """Say something that is no TLS, or (None) hang up at once."""
        _, writer = await dial(port)
        host, own = writer.get_extra_info("sockname")
        if said is not None:
            writer.write(said)
        else:
            writer.close()
        count = len(caplog.records)
        await until(lambda: len(caplog.records) > count, "a line")
        line = caplog.records[-1]
        assert line.levelname == "WARNING", "such lines are thinned out"
        assert line.__dict__["peer"] == f"tcp://{host}:{own}"
        told.append((line.getMessage(), line.__dict__["plug"], line.__dict__["reason"]))
        writer.close()

    async def test() -> None:
        host, port = lines_host(Memory(echo), Bounds(handshake=0.2), tls=server)
        for said in (b"in clear\n" * 10, None, b""):
            await fail(port, said)
        host.stop()

    on_loop(test, plain)
    assert {(what, plug) for what, plug, _ in told} == {("a TLS handshake failed", "lines")}
    clear, gone, silent = (reason for _, _, reason in told)
    assert "WRONG_VERSION_NUMBER" in clear
    assert gone == "it hung up"
    assert "0.2 seconds" in silent


def test_a_shared_port_is_shared_only_when_asked_for() -> None:
    async def test() -> None:
        hosts: list[Host] = []
        endpoint = "127.0.0.1:0"
        for _ in range(2):
            host = Host()
            host.role = Memory(echo)
            host.add(StreamPlug("lines", Lines))
            endpoint = host.listen("lines", endpoint, reuse_port=True)
            hosts.append(host)
        with pytest.raises(Unavailable, match="in use"):
            hosts[0].listen("lines", endpoint)
        for host in hosts:
            host.stop()

    on_loop(test)


def test_connections_on_their_way_end_with_the_listener() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        peers = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(20)]
        listener = host._listeners[0]
        listener._accept()
        assert len(listener._coming) == 20, "accepted, and not yet links"
        host.stop()
        for peer in peers:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.to_thread(peer.recv, 1) == b""
            peer.close()
        assert role.links == []
        assert listener._coming == {}

    on_loop(test)


def test_an_unknown_plug_is_named() -> None:
    async def test() -> None:
        host, _ = lines_host(Memory())
        with pytest.raises(ConfigError, match="there are: lines"):
            host.listen("nosuch", "127.0.0.1:0")
        with pytest.raises(ConfigError, match="there are: lines"):
            host.connect("nosuch", "127.0.0.1:1")
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("spare", [0, 4])
def test_a_process_without_files_to_spare_recovers(spare: int) -> None:
    """And what connections are to leave they leave, for the node's own files."""
    script = textwrap.dedent(
        """
        import asyncio, resource, socket, sys, logging
        from homing.node import limits
        from tests.node.stage import Memory, echo, lines_host, on_loop, open_files, until
        logging.disable(logging.CRITICAL)
        limits.SPARE = spare = int(sys.argv[1])
        async def test() -> None:
            role = Memory(echo)
            host, port = lines_host(role)
            first = socket.create_connection(("127.0.0.1", port))
            await until(lambda: len(role.links) == 1)
            mine = [socket.socket() for _ in range(20)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 5 + spare, 4096))
            for sock in mine:
                sock.connect(("127.0.0.1", port))
            await until(lambda: len(role.links) >= 3)
            await asyncio.sleep(0.05)
            assert len(role.links) < 21, "there was not room for all"
            files = [open("/dev/null") for _ in range(spare)]
            for file in files:
                file.close()
            first.sendall(b"still served\\n")
            first.setblocking(False)
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(first, 100) == b"still served\\n"
            resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            await until(lambda: len(role.links) == 21, "the rest to be accepted")
            host.stop()
        on_loop(test)
        print("recovered")
        """
    )
    assert said(script, str(spare)) == "recovered\n"


def said(script: str, *words: str) -> str:
    """What a process of its own prints, whose limits are its own."""
    command = [sys.executable, "-c", script, *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return run.stdout or run.stderr


def test_nodes_and_routers_come_in_where_others_have_taken_all_they_may() -> None:
    """A connector that was full of subscribers was cut off when its dispatcher came back, a broker had no router again."""
    script = textwrap.dedent(
        """
        import asyncio, resource, socket, logging
        from homing.node.plug import Bounds, StreamPlug
        from tests.node.stage import Lines, Memory, echo, lines_host, on_loop, open_files, until
        logging.disable(logging.CRITICAL)
        async def test() -> None:
            role = Memory(echo)
            host, port = lines_host(role)
            host.add(StreamPlug("inside", Lines, bounds=Bounds(inside=True)))
            inside = int(host.listen("inside", "127.0.0.1:0").rpartition(":")[2])
            first = socket.create_connection(("127.0.0.1", port))
            await until(lambda: len(role.links) == 1)
            mine = [socket.socket() for _ in range(20)]
            node = socket.socket()
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files() + 37, 4096))
            for sock in mine:
                sock.connect(("127.0.0.1", port))
            await asyncio.sleep(0.05)
            assert 1 < len(role.links) < 21, "there was not room for all"
            node.connect(("127.0.0.1", inside))
            await until(lambda: any(link.plug == "inside" for link in role.links))
            host.stop()
        on_loop(test)
        print("came in")
        """
    )
    assert said(script) == "came in\n"
