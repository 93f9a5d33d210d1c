"""Serve tasks (JSON header, opaque body): each one's body goes to a command, its output comes back.

The broker's group is remembered in a file; a worker whose broker is gone tries the others. When none
answers it ends with exit code 69 and names every endpoint that it tried. SIGTERM lets tasks under way end.

Examples:
  homing task-worker echo --echo
  homing task-worker upper --exec "tr a-z A-Z" --endpoint tcp://127.0.0.1:5561
  homing task-worker echo --echo --key wes.key --broker-key "$(cat paris.pub)"
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.credentials import NOBODY, Credentials
from homing.cli.serving import what_to_do
from homing.cli.verb import NO_FLAGS, ConfigFlags, seconds_of, verb

if TYPE_CHECKING:
    from homing.service.task_worker import TaskWorker

app = verb("task-worker", __doc__)


@app.default
async def task_worker(
    service: Annotated[str, Parameter(help="the service to serve")],
    /,
    *,
    echo: Annotated[bool, Parameter(help="answer with the body that came")] = False,
    command: Annotated[
        str | None, Parameter(name="--exec", help="a command: body in, answer out")
    ] = None,
    endpoint: Annotated[str | None, Parameter(help="a broker's taskbe; else the settings'")] = None,
    remember: Annotated[Path | None, Parameter(help="file for the broker's group")] = None,
    credit: Annotated[
        int, Parameter(help="tasks at once", validator=Number(gte=1, lte=65_535))
    ] = 1,
    connect_timeout: Annotated[str, Parameter(help="how long to wait for each broker")] = "3s",
    credentials: Credentials = NOBODY,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Serve until told to stop."""
    from homing.service.task_worker import TaskWorker

    serve = what_to_do(echo, command)
    config = flags.load({"node.port_offset": port_offset})
    memory = remember or Path(config.node.data) / f"task-worker-{service}.json"
    memory.parent.mkdir(parents=True, exist_ok=True)
    worker = TaskWorker(
        endpoint or config.service.taskbe,
        service,
        serve,
        remember=memory,
        credit=credit,
        connect_timeout=seconds_of(connect_timeout, "--connect-timeout"),
        mechanism=credentials.mechanism(),
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
