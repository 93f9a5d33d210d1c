"""Run the main job on this machine: a small fabric of real processes, loaded, hurt and audited.

Two federated brokers, paris and lyon. All clients ask paris, which has too few workers, so that
requests spill over to lyon; half-way a worker is killed with -9. Then the journals are audited:
every request ended exactly once. All figures are measured in the run; it takes some seconds,
uses free ports and leaves nothing behind.

Examples:
  homing demo
  homing demo --requests 50000
  homing demo --data demo-data          # keep the journals to look into
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from homing.cli.outcome import FAILED, OK
from homing.cli.verb import verb

app = verb("demo", __doc__)


@app.default
async def demo(
    *,
    requests: Annotated[
        int, Parameter(help="how many requests to send", validator=Number(gte=10, lte=10_000_000))
    ] = 20_000,
    data: Annotated[Path | None, Parameter(help="keep journals here; else they go")] = None,
) -> int:
    """Run the demo."""
    place = nullcontext(str(data)) if data else tempfile.TemporaryDirectory(prefix="homing-demo-")
    with place as directory:
        return await _play(Path(directory), requests)


async def _play(directory: Path, requests: int) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from homing.demo.ledger import balance
    from homing.demo.requests import ask
    from homing.demo.stage import Stage
    from homing.demo.summary import print_ledger, print_requests
    from homing.node.logs import logging_to

    console = Console(file=sys.stdout, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        starting = progress.add_task("starting two brokers and six workers", total=None)
        with logging_to("critical"):
            async with Stage(directory) as stage:
                progress.remove_task(starting)
                bar = progress.add_task("asking paris", total=requests)
                seen = await ask(stage, requests, lambda done: progress.update(bar, completed=done))
        ledger = balance(directory)
    print_requests(console, seen)
    print_ledger(console, ledger)
    whole = ledger.balances and not seen.wrong and seen.answered.total() == requests
    console.print("\nnothing was lost" if whole else "\n[red]something was lost[/]")
    return OK if whole else FAILED
