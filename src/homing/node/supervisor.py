"""Child processes: started, waited for until ready, started again when they die, never left behind.

A child says on its standard output that it is ready, in a line that begins with `ready`; every
line goes on to whoever watches. A child that ends is started again after a pause that
grows; one that says by its exit code that trying again is useless is not. Children get a
SIGTERM should the supervisor itself be killed, so that no orphan keeps a port.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import random
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from homing.backoff import Backoff
from homing.clock import SystemClock
from homing.errors import Unavailable

READY = "ready"
# Seconds a child may take to be ready: a cold interpreter with compiled kernels needs a few.
READY_SECONDS = 30.0
# A child that lived this long was well; its next death starts from the shortest pause.
WELL_SECONDS = 10.0
# Exit codes (sysexits) that will not get better by trying again: usage, config.
HOPELESS = (64, 78)
# What a shell answers for a command that is not there; tried again, for it may be installed soon.
NOT_STARTED = 127
# A line of output is for people; what is longer is cut into pieces.
LINE_BYTES = 16 << 10

_PR_SET_PDEATHSIG = 1

_log = logging.getLogger("homing.node")

Watch = Callable[[str, str], None]


class Child:
    """One process that is to run, under one name, through any number of lives."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        watch: Watch,
        orphaned: int = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.lives = 0
        self.pid = 0  # 0: not running
        self.exit_code: int | None = None  # of the last life
        self.ready = asyncio.Event()  # set while it runs and has said so
        self.given_up = asyncio.Event()
        self._argv = list(argv)
        self._env = dict(env) if env is not None else None
        self._watch = watch
        self._orphaned = orphaned
        self._backoff = Backoff(random.random)
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, seconds: float) -> None:
        """SIGTERM, and after `seconds` SIGKILL; returns when it is gone."""
        self._task.cancel()
        process = self._process
        self.signal(signal.SIGTERM)
        if process is not None:
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                _log.warning("%s did not end in %.1f s and is killed", self.name, seconds)
                self.signal(signal.SIGKILL)
                await process.wait()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.pid = 0

    async def _keep(self) -> None:
        while True:
            born = SystemClock.monotonic()
            try:
                self.exit_code = await self._live()
            except OSError as error:
                _log.error("%s cannot be started: %s", self.name, error)
                self.exit_code = NOT_STARTED
            if self.exit_code in HOPELESS:
                _log.error("%s ended with %d and is given up", self.name, self.exit_code)
                self.given_up.set()
                return
            if SystemClock.monotonic() - born >= WELL_SECONDS:
                self._backoff.reset()
            pause = self._backoff.pause()
            _log.warning("%s ended with %s; again in %.2f s", self.name, self.exit_code, pause)
            await asyncio.sleep(pause)

    async def _live(self) -> int:
        """One life, from start to exit code."""
        process = self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=self._env,
            # Its own session: a Ctrl-C is the supervisor's to pass on.
            start_new_session=True,
            preexec_fn=partial(_die_with, os.getpid(), self._orphaned),
        )
        self.pid = process.pid
        self.lives += 1
        try:
            assert process.stdout is not None
            await self._listen(process.stdout)
            return await process.wait()
        finally:
            self.ready.clear()
            self.pid = 0

    async def _listen(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while data := await output.read(LINE_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._hear(line.decode("utf-8", "replace"))
        if rest:
            self._hear(rest.decode("utf-8", "replace"))

    def _hear(self, line: str) -> None:
        if line.startswith(READY):
            self.ready.set()
        self._watch(self.name, line)


class Supervisor:
    """Children by name; use it with `async with`, which leaves none behind."""

    def __init__(self, watch: Watch | None = None, *, stop_seconds: float = 10.0) -> None:
        """`watch(name, line)` gets every line the children print."""
        self.children: dict[str, Child] = {}
        self._watch = watch or _log_line
        self._stop_seconds = stop_seconds

    def start(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        orphaned: int = signal.SIGTERM,
    ) -> Child:
        """Run a command for as long as the supervisor lives.

        `orphaned`: the signal it gets when the supervisor's process ends before it.
        """
        if name in self.children:
            raise ValueError(f"a child named {name!r} runs already")
        child = self.children[name] = Child(name, argv, env, self._watch, orphaned)
        return child

    async def ready(
        self, seconds: float = READY_SECONDS, *, names: Collection[str] | None = None
    ) -> None:
        """Wait until every child is ready, or those named; Unavailable names those that are not."""
        awaited = [c for name, c in self.children.items() if names is None or name in names]
        await asyncio.gather(*(self._ready(child, seconds) for child in awaited))
        late = [child for child in awaited if not child.ready.is_set()]
        if late:
            told = ", ".join(f"{child.name} (exit code {child.exit_code})" for child in late)
            raise Unavailable(f"not ready: {told}")

    async def _ready(self, child: Child, seconds: float) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (child.ready, child.given_up)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def stop(self, *, names: Collection[str] | None = None) -> None:
        """End every child, or those named, all at the same time."""
        ending = [name for name in self.children if names is None or name in names]
        children = [self.children.pop(name) for name in ending]
        await asyncio.gather(*(child.stop(self._stop_seconds) for child in children))

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _log_line(name: str, line: str) -> None:
    _log.info("%s: %s", name, line)


_libc = ctypes.CDLL(None)


def _die_with(parent: int, number: int) -> None:
    """In the child, before it becomes the command: get a signal when the parent is gone."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
