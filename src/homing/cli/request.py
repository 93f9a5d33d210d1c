"""Ask a service for something and print the report.

The body is the argument, or standard input with `-`. The answer goes to standard output as it
is; a refusal ends with its exit code (69 nobody serves it, 75 try again, 77 not allowed).

Examples:
  homing request echo hello
  homing request total '[1, 2, 3.5]' --timeout 2s
  cat picture.png | homing request resize - > small.png
  homing request mmi.services             # what the broker itself knows
  homing request tail /var/log/syslog --stream
  homing request echo hello --key ann.key --broker-key "$(cat paris.pub)"
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.credentials import NOBODY, Credentials
from homing.cli.verb import NO_FLAGS, ConfigFlags, misused, seconds_of, verb
from homing.cli.waiting import awaited
from homing.errors import NoService

if TYPE_CHECKING:
    from homing.service.client import Client

app = verb("request", __doc__)

_OPTION = re.compile(r"--[a-z][a-z-]*(=.*)?")
"""What is more likely misspelt than meant: bodies may begin with hyphens, as numbers and keys do."""


@app.default
async def request(
    service: Annotated[str, Parameter(help="the service's name")],
    body: Annotated[
        str, Parameter(help="what to ask; - reads standard input", allow_leading_hyphen=True)
    ] = "",
    /,
    *,
    endpoint: Annotated[
        str | None, Parameter(help="a broker's localfe; else the settings'")
    ] = None,
    patience: Annotated[str, Parameter("--timeout", help="how long to wait")] = "30s",
    retries: Annotated[
        int, Parameter(help="tries after one that may pass failed", validator=Number(gte=0))
    ] = 0,
    stream: Annotated[bool, Parameter(help="print parts as they come")] = False,
    credentials: Credentials = NOBODY,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> None:
    """Ask once."""
    from homing.service.client import Client

    if _OPTION.fullmatch(body):
        raise misused(f"no such option: {body}; a body like that comes by standard input: -")
    where = endpoint or flags.load({"node.port_offset": port_offset}).service.localfe[0]
    data = sys.stdin.buffer.read() if body == "-" else body.encode()
    security = credentials.mechanism()
    async with Client(
        where, timeout=seconds_of(patience), retries=retries, security=security
    ) as client:
        connecting = asyncio.create_task(_connect(client, where))
        try:
            await _ask(client, service, data, stream)
        except NoService:
            raise NoService(f"nobody serves {service!r} at {where}") from None
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)


async def _connect(client: Client, where: str) -> None:
    await awaited(client.connect(), f"waiting for a broker at {where}")


async def _ask(client: Client, service: str, data: bytes, stream: bool) -> None:
    if not stream:
        _print(await client.request(service, data))
        return
    async for part in client.stream(service, data):
        _print(part)


def _print(answer: bytes) -> None:
    """The bytes as they are; people get a line end where there is none."""
    sys.stdout.buffer.write(answer)
    if sys.stdout.isatty() and not answer.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
