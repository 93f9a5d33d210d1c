"""List a broker's services: workers, what they could take, what waits.

Examples:
  homing services
  homing services --json
  homing services --endpoint tcp://10.0.0.1:5555
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from homing.cli.credentials import NOBODY, Credentials
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("services", __doc__)

COLUMNS = ("workers", "free", "waiting", "live")
PATIENCE = 5.0
"""Seconds: a broker answers this itself, in less than a millisecond."""


@app.default
async def services(
    *,
    endpoint: Annotated[
        str | None, Parameter(help="a broker's localfe; else the settings'")
    ] = None,
    json: Annotated[bool, Parameter(help="as the broker tells it")] = False,
    credentials: Credentials = NOBODY,
    port_offset: Annotated[int | None, Parameter(help="added to the default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Ask mmi.services."""
    from homing.service.client import Client

    where = endpoint or flags.load({"node.port_offset": port_offset}).service.localfe[0]
    async with Client(where, timeout=PATIENCE, security=credentials.mechanism()) as client:
        answer = await client.request("mmi.services", b"")
    if json:
        print(answer.decode())
    else:
        more = f" --port-offset {port_offset}" if port_offset else ""
        _table(
            msgspec.json.decode(answer),
            f"{where} yet: `homing worker echo --echo{more}` starts one",
        )
    return 0


def _table(told: Any, none: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not told:
        console.print(f"no service at {none}", soft_wrap=True)
        return
    table = Table("service", box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right")
    table.add_column("peers")
    for name, facts in sorted(told.items()):
        counts = [str(facts[column]) for column in COLUMNS]
        table.add_row(name, *counts, ", ".join(facts["peers"]) or "–")
    console.print(table)
