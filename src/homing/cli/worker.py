"""Serve a service from the shell: echo what comes, or hand it to a command.

With --exec every request's body goes to the command's standard input and what it prints is the
answer; a command that fails refuses the request with its last line on standard error. SIGTERM
lets requests under way end.

Examples:
  homing worker echo --echo
  homing worker upper --exec "tr a-z A-Z"
  homing worker resize --exec "convert - -resize 50% -" --concurrency 4
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Annotated, Any

from cyclopts import Parameter

from homing.cli.credentials import NOBODY, Credentials
from homing.cli.serving import what_to_do
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb
from homing.cli.waiting import awaited

app = verb("worker", __doc__)


@app.default
async def worker(
    service: Annotated[str, Parameter(help="the service's name; empty serves any")],
    /,
    *,
    echo: Annotated[bool, Parameter(help="answer with the body that came")] = False,
    command: Annotated[
        str | None, Parameter(name="--exec", help="a command: body in, answer out")
    ] = None,
    concurrency: Annotated[int, Parameter(help="requests at once")] = 1,
    endpoint: Annotated[
        tuple[str, ...], Parameter(help="a broker's localbe, once for each; else the settings'")
    ] = (),
    credentials: Credentials = NOBODY,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Serve until told to stop."""
    from homing.service.worker import Worker

    serve = what_to_do(echo, command)
    where = endpoint or (flags.load({"node.port_offset": port_offset}).service.localbe,)
    serving = Worker(where, security=credentials.mechanism())
    try:
        serving.service(service, concurrency=concurrency)(serve)
    except ValueError as error:
        raise misused(str(error)) from None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.stop)
    announcing = asyncio.create_task(_announce(serving.ready(), service, where))
    try:
        await serving.run()
    finally:
        announcing.cancel()
    return 0


async def _announce(ready: Coroutine[Any, Any, None], service: str, where: tuple[str, ...]) -> None:
    await awaited(ready, f"no broker answers at {' or '.join(where)}; waiting for one")
    print(f"ready worker {service or '(any)'} {' '.join(where)}", flush=True)
