"""Serve a service from the shell: echo what comes, or hand it to a command.

With --exec every request's body goes to the command's standard input and what it prints is the
answer; a command that fails refuses the request with its last line on standard error. SIGTERM
lets requests under way end, a second one ends it at once.

Examples:
  homing worker echo --echo
  homing worker upper --exec "tr a-z A-Z"
  homing worker resize --exec "convert - -resize 50% -" --concurrency 4
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from homing.cli.commands import serve_with, telling
from homing.cli.credentials import NOBODY, Credentials
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, verb
from homing.loops import stop_on_signals

if TYPE_CHECKING:
    from homing.service.worker import Worker

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

    serve = serve_with(echo, command)
    where = endpoint or flags.load({"node.port_offset": port_offset}).service.localbe[:1]
    serving = Worker(where, security=credentials.mechanism())
    try:
        serving.service(service, concurrency=concurrency)(serve)
    except ValueError as error:
        raise misused(str(error)) from None
    stop_on_signals(serving.stop)
    announcing = asyncio.create_task(_announce(serving, service, where))
    try:
        with telling():
            await serving.run()
    finally:
        announcing.cancel()
    return 0


async def _announce(serving: Worker, service: str, where: tuple[str, ...]) -> None:
    await serving.ready()
    print(f"ready worker {service or '(any)'} {' '.join(where)}", flush=True)
