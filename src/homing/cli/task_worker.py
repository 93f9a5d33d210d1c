"""Serve tasks (JSON header, opaque body): each one's body goes to a command, its output comes back.

The broker's group is remembered in a file; a worker whose broker is gone tries the others. When none
answers it ends with exit code 69 and names every endpoint that it tried. SIGTERM lets tasks under way end,
a second one ends it at once.

Examples:
  homing task-worker echo --echo
  homing task-worker upper --exec "tr a-z A-Z" --endpoint tcp://127.0.0.1:5561
  homing task-worker echo --echo --key wes.key --broker-key "$(cat paris.pub)"
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import Parameter

from homing.cli.commands import serve_with, telling
from homing.cli.credentials import NOBODY, Credentials
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, seconds_of, verb
from homing.loops import stop_on_signals

if TYPE_CHECKING:
    from homing.service.task_worker import TaskWorker

app = verb("task-worker", __doc__)

CREDIT_MAX = 65536
_LONGEST = 200
"""Of a service's name in a file's name: file systems allow 255 bytes in all."""


@app.default
async def task_worker(
    service: Annotated[str, Parameter(help="the service to serve; empty serves any")],
    /,
    *,
    echo: Annotated[bool, Parameter(help="answer with the body that came")] = False,
    command: Annotated[
        str | None, Parameter(name="--exec", help="a command: body in, answer out")
    ] = None,
    endpoint: Annotated[str | None, Parameter(help="a broker's taskbe; else the settings'")] = None,
    remember: Annotated[Path | None, Parameter(help="file for the broker's group")] = None,
    credit: Annotated[int, Parameter(help="tasks at once")] = 1,
    connect_timeout: Annotated[str, Parameter(help="how long to wait for each broker")] = "3s",
    credentials: Credentials = NOBODY,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Serve until told to stop."""
    function = serve_with(echo, command)
    if not 1 <= credit <= CREDIT_MAX:
        raise misused(f"credit is from 1 to {CREDIT_MAX}")
    config = flags.load({"node.port_offset": port_offset})
    memory = remember or Path(config.node.data) / _memory(service)
    memory.parent.mkdir(parents=True, exist_ok=True)
    where = endpoint or config.service.taskbe[0]
    from homing.service.task_worker import TaskWorker

    try:
        worker = TaskWorker(
            where,
            service,
            function,
            remember=memory,
            credit=credit,
            connect_timeout=seconds_of(connect_timeout, "--connect-timeout"),
            mechanism=credentials.mechanism(),
        )
    except ValueError as error:
        raise misused(str(error)) from None
    stop_on_signals(worker.stop)
    announcing = asyncio.create_task(_announce(worker, service))
    try:
        with telling():
            await worker.run()
    finally:
        announcing.cancel()
    return 0


async def _announce(worker: TaskWorker, service: str) -> None:
    await worker.ready.wait()
    print(f"ready task-worker {service or '(any)'} {worker.endpoint}", flush=True)


def _memory(service: str) -> str:
    """A file's name for any service's: without slashes, and no longer than names may be."""
    plain = quote(service, safe="")
    if len(plain) > _LONGEST:
        plain = hashlib.sha256(service.encode()).hexdigest()
    return f"task-worker-{plain}.json"
