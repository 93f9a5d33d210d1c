"""Finished segments as Parquet while a node runs: by a child process, at the lowest priority.

Making columns costs as much of the interpreter as the events once cost the loop, so it is done
where the loop does not notice: in a process of its own, one at a time, now and then.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from homing.node.host import Host

RETRY_SECONDS = 10.0
"""Until a child that failed is tried again, where looks are more frequent: a full disk or no process left takes a while to mend."""

_log = logging.getLogger("homing.node")
_tasks: set[asyncio.Task[None]] = set()  # the loop alone would let them be collected


class Sealer:
    """Runs `python -m homing.journal.sealing` on a journal whenever segments were finished."""

    def __init__(self, directory: Path, interval: float) -> None:
        """`interval`: seconds between two looks."""
        self._directory = directory
        self._interval = interval
        self._due = asyncio.Event()
        self._due.set()  # an earlier run may have left some

    def finished(self, name: str) -> None:
        """A segment was finished: what a journal calls, on the loop."""
        self._due.set()

    def start(self, host: Host) -> None:
        """Look until the host's loop ends."""
        task = host.loop.create_task(self._keep(), name="sealer")
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _keep(self) -> None:
        pause = self._interval
        while True:
            await asyncio.sleep(pause)
            await self._due.wait()
            self._due.clear()
            pause = self._interval
            failure = await self._seal()
            if failure:
                _log.warning("finished segments could not be sealed (%s)", failure)
                self._due.set()
                pause = max(self._interval, RETRY_SECONDS)

    async def _seal(self) -> str:
        """Run a child; why it could not do its work, or nothing."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "homing.journal.sealing",
                str(self._directory),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:  # no descriptor, process or memory left
            return str(error)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()  # a half-written file has another name, and is made anew
            await process.wait()
            raise
        return f"exit code {code}" if code else ""
