"""Run the main job on this machine: a small fabric of real processes, loaded, hurt and audited.

Two federated brokers, paris and lyon. All clients ask paris, which has too few workers, so that
requests spill over to lyon; half-way a worker is killed with -9. A thousand subscribers watch the
roads of a city, each with a filter of its own; half-way the matcher is killed. Then the journals
are audited, and Spark does the same over its tables and writes a report. All figures are measured
in the run, which takes about a minute and uses free ports.

Examples:
  homing demo
  homing demo --requests 50000 --no-spark
  homing demo --data demo-data    # journals and tables stay to look into
  homing demo --keep              # and a fabric with its dashboard stays up
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from homing.cli.checkup import find_java
from homing.cli.outcome import FAILED, OK
from homing.cli.parts import SPARK, absent, need_server
from homing.cli.verb import verb

if TYPE_CHECKING:
    from homing.demo.tables import Apart

app = verb("demo", __doc__)


@app.default
async def demo(
    *,
    requests: Annotated[
        int, Parameter(help="how many requests to send", validator=Number(gte=10, lte=10_000_000))
    ] = 20_000,
    subscribers: Annotated[
        int, Parameter(help="how many watch the roads", validator=Number(gte=1, lte=10_000))
    ] = 1_000,
    publications: Annotated[
        int, Parameter(help="how many readings", validator=Number(gte=2, lte=1_000_000))
    ] = 2_000,
    spark: Annotated[bool, Parameter(help="run the pipeline too", negative="--no-spark")] = True,
    data: Annotated[Path | None, Parameter(help="keep journals here; else they go")] = None,
    report: Annotated[Path | None, Parameter(help="where the report goes")] = None,
    keep: Annotated[bool, Parameter(help="leave a fabric up, with its dashboard")] = False,
) -> int:
    """Run the demo."""
    need_server()
    page = report or Path(tempfile.gettempdir()) / "homing-demo.html"
    place = nullcontext(str(data)) if data else tempfile.TemporaryDirectory(prefix="homing-demo-")
    console = Console(file=sys.stdout, highlight=False)
    with place as directory:
        journals = Path(directory)
        async with _spark(journals, page) if spark else nullcontext() as pipeline:
            whole = await _ask(console, journals, requests)
            if pipeline:
                pipeline.ingest()
            whole &= await _push(console, journals, subscribers, publications)
            whole &= _audit(console, journals)
            if spark:
                whole &= await _examine(console, pipeline, page)
        console.print("\nnothing was lost" if whole else "\n[red]something was lost[/]")
        if keep:
            await _keep(console, journals)
    return OK if whole else FAILED


async def _ask(console: Console, directory: Path, requests: int) -> bool:
    """The service plane under load; whether every request got its answer."""
    from homing.demo.requests import ask
    from homing.demo.stage import Stage
    from homing.demo.summary import print_requests
    from homing.node.logs import logging_to

    with _bars(console) as bars, logging_to("critical"):
        starting = bars.add_task("starting two brokers and six workers", total=None)
        async with Stage(directory) as stage:
            bars.remove_task(starting)
            seen = await ask(stage, requests, _bar(bars, "asking paris", requests))
    print_requests(console, seen)
    return not seen.wrong and seen.answered.total() == requests


async def _push(console: Console, directory: Path, people: int, count: int) -> bool:
    """The push plane under load; whether everybody got what they had asked for, once."""
    from homing.demo.push_stage import PushStage
    from homing.demo.pushes import push
    from homing.demo.summary import print_pushes
    from homing.node.logs import logging_to

    with _bars(console) as bars, logging_to("critical"):
        starting = bars.add_task("starting matcher, dispatcher and connector", total=None)
        async with PushStage(directory) as stage:
            bars.remove_task(starting)
            gathering = _bar(bars, "subscribing", people)
            seen = await push(stage, people, count, gathering, _bar(bars, "publishing", count))
    print_pushes(console, seen)
    return not (seen.missing or seen.uncalled or seen.twice)


def _audit(console: Console, directory: Path) -> bool:
    """What the brokers' journals say."""
    from homing.demo.ledger import balance
    from homing.demo.summary import print_ledger

    ledger = balance(directory)
    print_ledger(console, ledger)
    return ledger.balances


async def _keep(console: Console, directory: Path) -> None:
    """A fabric with some life on it, until interrupted."""
    from homing.demo.keep import Kept, live
    from homing.node.logs import logging_to

    with logging_to("critical"):
        async with Kept(directory / "kept", directory / "tables") as kept:
            console.print(
                f"\n[bold]Kept[/]  paris with a dashboard, lyon as its peer; Ctrl-C ends it\n"
                f"  dashboard  {kept.page}  token {kept.token}\n"
                f"  try        homing request quote hello{kept.flag}"
            )
            with suppress(asyncio.CancelledError):  # Ctrl-C is how this ends
                await live(kept)


def _bars(console: Console) -> Progress:
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _bar(bars: Progress, title: str, total: int) -> Callable[[int], None]:
    bar = bars.add_task(title, total=total)
    return lambda done: bars.update(bar, completed=done)


def _spark(directory: Path, report: Path) -> AbstractAsyncContextManager[Apart | None]:
    """Spark, to start while the fabric is busy; None where it cannot."""
    from homing.demo.tables import Apart

    return nullcontext() if _no_spark() else Apart(directory, report)


def _no_spark() -> str:
    """What Spark lacks here, and how to mend it; empty if nothing."""
    if lacking := absent(SPARK):
        return f"without {', '.join(lacking)}; pip install 'homing[spark]'"
    java = find_java()
    return "" if java.state == "ok" else f"java {java.found}; {java.fix}"


async def _examine(console: Console, pipeline: Apart | None, report: Path) -> bool:
    """The pipeline over the same journals; where Spark cannot run it is left out, and that is said."""
    from homing.demo.summary import print_findings

    if pipeline is None:
        console.print("\n[bold]Pipeline[/]  left out:", escape(_no_spark()))
        return True
    with console.status("Spark reads the journals") if console.is_terminal else nullcontext():
        found = await pipeline.findings()
    print_findings(console, found, report)
    return not found.problems
