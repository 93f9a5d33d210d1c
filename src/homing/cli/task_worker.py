"""Serve tasks (JSON header, opaque body): each one's body goes to a command, its output comes back.

The broker's group is remembered in a file; a worker whose broker is gone tries the others. When none
answers it ends with exit code 69 and names every endpoint that it tried.

Examples:
  homing task-worker echo --echo
  homing task-worker upper --exec "tr a-z A-Z" --endpoint tcp://127.0.0.1:5561
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb

app = verb("task-worker", __doc__)


@app.default
def task_worker(
    service: Annotated[str, Parameter(help="the service to serve")],
    /,
    *,
    echo: Annotated[bool, Parameter(help="answer with the body that came")] = False,
    exec: Annotated[str | None, Parameter(help="a command: body in, answer out")] = None,
    endpoint: Annotated[str | None, Parameter(help="a broker's taskbe")] = None,
    remember: Annotated[Path | None, Parameter(help="file for the broker's group")] = None,
    credit: Annotated[int, Parameter(help="tasks at once")] = 1,
    connect_timeout: Annotated[float, Parameter(help="seconds for each broker")] = 3.0,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Serve until told to stop."""
    from homing.service.task_worker import TaskWorker

    if echo == (exec is not None):
        raise misused("say what to do with a task: either --echo or --exec COMMAND")
    config = flags.load()
    memory = remember or Path(config.node.data) / f"task-worker-{service}.json"
    memory.parent.mkdir(parents=True, exist_ok=True)
    worker = TaskWorker(
        endpoint or config.service.taskbe,
        service,
        bytes if exec is None else _run(shlex.split(exec)),
        remember=memory,
        credit=credit,
        connect_timeout=connect_timeout,
    )
    asyncio.run(worker.run())
    return 0


def _run(words: list[str]) -> Callable[[bytes], bytes]:
    def run(body: bytes) -> bytes:
        return subprocess.run(words, input=body, stdout=subprocess.PIPE, check=True).stdout

    return run
