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

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from homing.cli.verb import NO_FLAGS, ConfigFlags, verb
from homing.config.units import parse_seconds
from homing.errors import ConfigError

if TYPE_CHECKING:
    from homing.wire.mechanisms import Mechanism

app = verb("request", __doc__)


@Parameter(name="*")
@dataclass(frozen=True)
class Credentials:
    """Who asks, and how that is proven."""

    key: Annotated[Path | None, Parameter(help="our key file, for a broker with CURVE")] = None
    broker_key: Annotated[str | None, Parameter(help="that broker's public key")] = None
    user: Annotated[str | None, Parameter(help="NAME:PASSWORD, for a broker with PLAIN")] = None

    def mechanism(self) -> Mechanism:
        """What a connection proves itself with."""
        from homing.node.keys import read_keys
        from homing.wire.curve import CurveClient
        from homing.wire.mechanisms import PlainClient
        from homing.wire.z85 import from_z85
        from homing.wire.zmtp import NULL

        if self.user is not None:
            name, _, password = self.user.partition(":")
            return PlainClient(name, password)
        if self.broker_key is None:
            if self.key is not None:
                raise ConfigError(["--key: CURVE needs the broker's public key too: --broker-key"])
            return NULL
        try:
            return CurveClient(from_z85(self.broker_key), read_keys(self.key) if self.key else None)
        except ValueError as error:
            raise ConfigError([f"--broker-key: {error}"]) from None


NOBODY = Credentials()


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
    retries: Annotated[int, Parameter(help="tries after one that may pass failed")] = 0,
    stream: Annotated[bool, Parameter(help="print parts as they come")] = False,
    credentials: Credentials = NOBODY,
    flags: ConfigFlags = NO_FLAGS,
) -> None:
    """Ask once."""
    from homing.service.client import Client

    where = endpoint or flags.load().service.localfe
    data = sys.stdin.buffer.read() if body == "-" else body.encode()
    security = credentials.mechanism()
    async with Client(
        where, timeout=_seconds(patience), retries=retries, security=security
    ) as client:
        if not stream:
            _print(await client.request(service, data))
            return
        async for part in client.stream(service, data):
            _print(part)


def _seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ConfigError([f"--timeout: {error}"]) from None


def _print(answer: bytes) -> None:
    """The bytes as they are; people get a line end where there is none."""
    sys.stdout.buffer.write(answer)
    if sys.stdout.isatty() and not answer.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()
