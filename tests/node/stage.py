"""A role that remembers, a codec of lines, and a host around them, for the tests of this room."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

import uvloop

from homing.node.host import Host
from homing.node.plug import Bounds, StreamPlug
from homing.ports import Link

Answer = Callable[[Link, bytes], None]


class Lines:
    """The simplest stream codec: messages end with a line end."""

    def __init__(self) -> None:
        self._rest = b""

    def receive(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class Memory:
    """A role that keeps what it is told and answers as it is told to."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.links: list[Link] = []
        self.received: list[bytes] = []
        self.gone: list[Link] = []
        self.woken: list[Hashable] = []
        self.durable: list[int] = []

    def opened(self, link: Link, now: float) -> None:
        self.links.append(link)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self.received.append(message)
        if self.answer is not None:
            self.answer(link, message)

    def closed(self, link: Link, now: float) -> None:
        self.links.remove(link)
        self.gone.append(link)

    def wake(self, key: Hashable, now: float) -> None:
        self.woken.append(key)

    def journaled(self, number: int, now: float) -> None:
        self.durable.append(number)


def echo(link: Link, message: bytes) -> None:
    """Answer a line with itself."""
    link.send(message + b"\n")


def forward(link: Link, message: bytes) -> None:
    """Answer a ZeroMQ message with itself."""
    link.send(message)


def on_loop(test: Callable[[], Awaitable[None]], plain: bool = False) -> None:
    """Run an async test on uvloop, or on asyncio's own loop."""

    async def bounded() -> None:
        async with asyncio.timeout(110):
            await test()

    runner = asyncio.run if plain else uvloop.run
    runner(bounded())


def lines_host(role: Any, bounds: Bounds | None = None, **options: Any) -> tuple[Host, int]:
    """A host that listens for lines on a free port."""
    host = Host(reconnect=(0.01, 0.1))
    host.role = role
    host.add(StreamPlug("lines", Lines, bounds=bounds or Bounds(), **options))
    endpoint = host.listen("lines", "127.0.0.1:0")
    return host, int(endpoint.rpartition(":")[2])


async def until(condition: Callable[[], Any], what: str = "it") -> None:
    """Return once it holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.005)


async def dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain TCP peer."""
    return await asyncio.open_connection("127.0.0.1", port)


def stuck_peer(port: int) -> socket.socket:
    """A TCP peer that never reads, with as small a buffer as the kernel gives."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    return sock


def open_files() -> int:
    """How many files this process has open."""
    return len(os.listdir("/proc/self/fd"))
