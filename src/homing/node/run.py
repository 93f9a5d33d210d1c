"""Runs a node to its end: the loop, the signals, the drain.

The first SIGTERM or SIGINT drains: nothing new is taken on, work under way gets until the
deadline. A second one ends at once. Supervisors kill after 10 to 30 seconds, so the drain is
shorter than that. SIGHUP has files read again (homing.node.rereads), unless it says that the terminal is gone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from homing.node.host import Host
from homing.node.limits import raise_file_limit
from homing.node.rereads import read_again

DRAIN_SECONDS = 8.0
ABORTED = 1
GC_THRESHOLD = 50_000
"""New objects between two looks at the youngest: some 10 MB at most, where 700 is the default."""

Result = TypeVar("Result")

_log = logging.getLogger("homing.node")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the fastest loop there is."""
    if sys.platform != "win32":
        try:
            import uvloop
        except ImportError:
            _log.warning("uvloop is not installed: every message will cost several times as much")
        else:
            return uvloop.run(main)
    return asyncio.run(main)


def run_node(
    start: Callable[[Host], Awaitable[None]],
    *,
    make_host: Callable[[], Host] = Host,
    leave: Callable[[], Awaitable[None]] | None = None,
    drain_seconds: float = DRAIN_SECONDS,
) -> int:
    """Run a node until a signal ends it: `start` gives the host its role, plugs and sockets.

    `leave` tells others that it goes, before it drains.
    """
    raise_file_limit()
    return run(_live(start, make_host, leave, drain_seconds))


async def _live(
    start: Callable[[Host], Awaitable[None]],
    make_host: Callable[[], Host],
    leave: Callable[[], Awaitable[None]] | None,
    drain_seconds: float,
) -> int:
    host = make_host()
    ending = Ending(lambda: read_again(host.rereads.items()))
    try:
        with ending:
            await start(host)
            calm_collector()
            await ending.first.wait()
            if leave is not None:
                await leave()
            _log.info("draining for at most %.1f s", drain_seconds)
            code = await ending.unless_aborted(host.drain(host.now() + drain_seconds))
    finally:
        host.stop()
        # Aborted transports tell their links in the loop's next turn.
        await asyncio.sleep(0)
    if host.unwritten is not None:
        raise host.unwritten
    return code


def calm_collector() -> None:
    """What a started node consists of stays; look for cycles among the rest, and less often.

    Messages make no cycles. The default would walk every waiting request again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 100)


class Ending:
    """The signals that end a node: `first` to drain, `second` to stop at once; and SIGHUP, which does not."""

    def __init__(self, hung_up: Callable[[], None] | None = None) -> None:
        """`hung_up`: what SIGHUP is for."""
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._hung_up = hung_up or (lambda: read_again(()))
        self._terminals = [fd for fd in range(3) if os.isatty(fd)]

    def __enter__(self) -> Ending:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, self._heard_hangup)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _signalled(self) -> None:
        (self.second if self.first.is_set() else self.first).set()

    def _heard_hangup(self) -> None:
        """Whose window was closed does not run on unseen; a terminal that is gone is none any more."""
        if any(not os.isatty(fd) for fd in self._terminals):
            self.first.set()
        else:
            self._hung_up()

    async def unless_aborted(self, work: Coroutine[Any, Any, None]) -> int:
        """Do the work; give up on it at the second signal."""
        task = asyncio.ensure_future(work)
        abort = asyncio.ensure_future(self.second.wait())
        await asyncio.wait((task, abort), return_when=asyncio.FIRST_COMPLETED)
        if abort.done():
            task.cancel()
            await asyncio.wait((task,))
            return ABORTED
        abort.cancel()
        task.result()
        return 0
