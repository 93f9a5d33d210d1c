"""Serve tasks (JSON header, opaque body): each one's body goes to a command, its output comes back.

The broker's group is remembered in a file; a worker whose broker is gone tries the others. When none
answers it ends with exit code 69 and names every endpoint that it tried. SIGTERM lets tasks under way end.

Examples:
  homing task-worker echo --echo
  homing task-worker upper --exec "tr a-z A-Z" --endpoint tcp://127.0.0.1:5561
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb

if TYPE_CHECKING:
    from homing.service.task_worker import TaskWorker

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
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Serve until told to stop."""
    if echo == (exec is not None):
        raise misused("say what to do with a task: either --echo or --exec COMMAND")
    config = flags.load({"node.port_offset": port_offset})
    memory = remember or Path(config.node.data) / f"task-worker-{service}.json"
    memory.parent.mkdir(parents=True, exist_ok=True)
    where = endpoint or config.service.taskbe
    function = bytes if exec is None else _run(shlex.split(exec))
    return asyncio.run(_serve(where, service, function, memory, credit, connect_timeout))


async def _serve(
    where: str,
    service: str,
    function: Callable[[bytes], bytes],
    memory: Path,
    credit: int,
    connect_timeout: float,
) -> int:
    from homing.service.task_worker import TaskWorker

    worker = TaskWorker(
        where,
        service,
        function,
        remember=memory,
        credit=credit,
        connect_timeout=connect_timeout,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    announcing = asyncio.create_task(_announce(worker, service))
    try:
        await worker.run()
    finally:
        announcing.cancel()
    return 0


async def _announce(worker: TaskWorker, service: str) -> None:
    await worker.ready.wait()
    print(f"ready task-worker {service} {worker.endpoint}", flush=True)


def _run(words: list[str]) -> Callable[[bytes], bytes]:
    def run(body: bytes) -> bytes:
        return subprocess.run(words, input=body, stdout=subprocess.PIPE, check=True).stdout

    return run
