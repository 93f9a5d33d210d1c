"""Run a whole fabric here: broker, push plane, journal and dashboard, in one process.

Needs no other service. Ctrl-C or SIGTERM drains it. The token it prints lets the dashboard send
requests and publications; without it the page only looks. With --cluster several such processes
run as one fabric: brokers are peers, matchers form a ring, and where there is a `serf` to run they
know each other through Serf.

Examples:
  homing up
  homing up --data ./homing-data --port-offset 100
  homing up --config homing.toml
  homing up --cluster 3
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from homing.cli.parts import need_server
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

if TYPE_CHECKING:
    from homing.config import Config
    from homing.node.up import Nodes

app = verb("up", __doc__)


@app.default
def up(
    *,
    data: Annotated[str | None, Parameter(help="directory for journals, ids and keys")] = None,
    port_offset: Annotated[int | None, Parameter(help="added to every default port")] = None,
    name: Annotated[str | None, Parameter(help="the broker's name")] = None,
    cluster: Annotated[
        int | None, Parameter(help="run this many nodes (2 to 9) as one fabric")
    ] = None,
    serf: Annotated[
        bool | None,
        Parameter(help="cluster: know each other through Serf", negative="--no-serf"),
    ] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Run everything until it is told to stop."""
    from homing.node.limits import raise_file_limit
    from homing.node.logs import logging_to
    from homing.node.place import claim_data
    from homing.node.run import run

    need_server()
    given: dict[str, Any] = {
        "node.data": data,
        "node.port_offset": port_offset,
        "service.name": name,
    }
    config = flags.load(given)
    if config.dashboard.enabled and not config.dashboard.token:
        config = flags.load({**given, "dashboard.token": secrets.token_urlsafe(12)})
    claim_data(config)
    raise_file_limit()
    with logging_to(config.node.log_level, config.node.log_format, sys.stderr):
        if cluster is None:
            return run(_live(config))
        from homing.cli.up_cluster import live_cluster

        given["dashboard.token"] = config.dashboard.token or None
        return run(live_cluster(cluster, flags, given, serf))


async def _live(config: Config) -> int:
    from homing.clock import SystemClock
    from homing.node.run import Ending, calm_collector
    from homing.node.up import Nodes

    if config.dashboard.enabled:
        # Before the matcher starts to load its kernels beside us, which makes imports slow.
        importlib.import_module("homing.dashboard.app")
        importlib.import_module("homing.dashboard.fabric")
    nodes = Nodes(config)
    ending = Ending(nodes.read_again)
    try:
        with ending:
            nodes.start()
            calm_collector()
            async with _dashboard(nodes) as (url, hang_up):
                await nodes.meet()
                _tell(nodes, url)
                await ending.first.wait()
                await hang_up()
                print("homing: draining; once more to stop at once", file=sys.stderr)
                deadline = SystemClock.monotonic() + config.node.drain_timeout
                code = await ending.unless_aborted(nodes.drain(deadline))
    finally:
        nodes.stop()
    nodes.check_written()
    return code


@contextlib.asynccontextmanager
async def _dashboard(nodes: Nodes) -> AsyncIterator[tuple[str, Callable[[], Awaitable[object]]]]:
    """The page is up inside: its URL, empty if it is switched off, and what ends its own use of the fabric."""
    settings = nodes.config.dashboard
    if not settings.enabled:
        yield "", partial(asyncio.sleep, 0)
        return
    from homing.dashboard.app import Dashboard
    from homing.dashboard.fabric import RunningFabric
    from homing.node.status import MAX_CONNECTIONS
    from homing.node.web import WebServer

    fabric = RunningFabric(nodes)
    dashboard = Dashboard(fabric, settings.token)
    server = WebServer(dashboard.app, MAX_CONNECTIONS)
    where = server.start(settings.listen).removeprefix("tcp://")
    sampling = asyncio.create_task(dashboard.sample_for_ever())
    try:
        yield f"http://{where}/", fabric.close
    finally:
        sampling.cancel()
        dashboard.close()
        await fabric.close()
        await server.stop()


def _tell(nodes: Nodes, url: str) -> None:
    """Where everything is, and what to type next."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("node", "plug", "endpoint", box=None, pad_edge=False)
    for node, ends in nodes.endpoints.items():
        for number, (plug, endpoint) in enumerate(ends.items()):
            table.add_row("" if number else node, plug, endpoint)
    console.print(table)
    if url:
        console.print(f"\ndashboard  [bold]{url}[/]  token [bold]{nodes.config.dashboard.token}[/]")
    offset = nodes.config.node.port_offset
    more = f" --port-offset {offset}" if offset else ""
    console.print(
        "\ntry, in another terminal:\n"
        f"  homing worker echo --echo{more}\n"
        f"  homing request echo hello{more}\n"
        f"  homing subscribe 'price in 10..20'{more}{_data_flag(nodes.config)} &\n"
        f"  homing publish price=12.5 --payload hello{more}\n",
        soft_wrap=True,
    )
    print("ready up", flush=True)


def _data_flag(config: Config) -> str:
    """Where the key that signs tokens is, unless the command looks there by itself."""
    usual = config.origin("node.data").startswith("default")
    return "" if usual else f" --data {config.node.data}"
