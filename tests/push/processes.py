"""Push plane nodes as real processes, on free ports, reaped whatever happens."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

KINDS = ("connector", "dispatcher", "matcher")
# Ports 7001 to 7007 are moved together; the offset must leave all of them free.
_PORTS = range(7001, 7008)
# Those of the brokers and of Serf's agents too.
_CLUSTER_PORTS = (*range(5555, 5562), *_PORTS, 7373, 7946)
_LOCKS = Path(tempfile.gettempdir())
_held: list[TextIO] = []
_READY_SECONDS = 180.0  # a machine may be very busy


def free_offset() -> int:
    """A port offset at which nothing listens, below the ports that the kernel gives out."""
    while True:
        offset = random.randrange(3_000, 24_000)
        if all(_is_free(port + offset) for port in _PORTS):
            return offset


def free_cluster_offset(nodes: int) -> int:
    """The same for a cluster, whose nodes are a hundred ports apart.

    A node that is killed leaves its ports for a moment. So they are locked too, for as long as this
    process lives, against tests that run beside this one.
    """
    while True:
        first = random.randrange(30, 230 - nodes)
        locks = [(_LOCKS / f"homing-ports-{first + n}").open("w") for n in range(nodes)]
        offsets = [100 * (first + n) + 37 for n in range(nodes)]
        if _are_locked(locks) and all(_is_free(p + o) for o in offsets for p in _CLUSTER_PORTS):
            _held.extend(locks)
            return offsets[0]
        for lock in locks:
            lock.close()


def _are_locked(locks: Sequence[TextIO]) -> bool:
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Processes:
    """One node of each kind, each with its own id and journal below one directory."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.data = directory / "data"
        self.offset = free_offset()
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self.set(*settings)

    def set(self, *settings: str) -> None:
        """Settings of the nodes that are started from now on."""
        self._settings = [word for text in settings for word in ("--set", text)]

    def port(self, default: int) -> str:
        return f"127.0.0.1:{default + self.offset}"

    def token_key(self) -> bytes:
        return (self.data / "token.key").read_bytes().strip()

    async def __aenter__(self) -> Processes:
        await asyncio.gather(*[self.start(kind) for kind in KINDS])
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._running):
            await self.kill(name)

    async def start(self, kind: str) -> None:
        """Start a node and wait for its ready line."""
        words = [kind, "--port-offset", str(self.offset), "--data", str(self.data)]
        process = self._running[kind] = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "homing.cli",
            *words,
            *self._settings,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(_READY_SECONDS):
            line = await process.stdout.readline()
        assert line.startswith(b"ready " + kind.encode()), line

    async def kill(self, kind: str, how: signal.Signals = signal.SIGKILL) -> int:
        """End a node; its exit code."""
        process = self._running.pop(kind)
        if process.returncode is None:
            process.send_signal(how)
        return await process.wait()
