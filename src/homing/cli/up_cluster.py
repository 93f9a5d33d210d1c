"""`homing up --cluster N`: several nodes on this machine as one fabric, and a table of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from homing.cli.verb import ConfigFlags, misused
from homing.errors import ConfigError

if TYPE_CHECKING:
    from homing.node.cluster import ClusterNode


async def live_cluster(
    count: int, flags: ConfigFlags, given: Mapping[str, Any], serf: bool | None
) -> int:
    """Run a cluster until it is told to stop."""
    from homing.node.cluster import MAX_NODES, Cluster, has_serf, lay_out
    from homing.node.run import Ending

    if not 2 <= count <= MAX_NODES:
        raise misused(f"--cluster runs 2 to {MAX_NODES} nodes, not {count}")
    if serf and not has_serf():
        raise ConfigError(["there is no serf to run"], hint="apt-get install serf, or --no-serf")
    serf = has_serf() if serf is None else serf
    nodes = lay_out(lambda more: flags.load({**given, **more}), count, serf=serf)
    drain = nodes[0].config.node.drain_timeout
    cluster = Cluster(nodes, _words(flags), serf=serf, drain_seconds=drain)
    ending = Ending(cluster.read_again)
    with ending:
        async with cluster:
            await cluster.ready()
            _tell(nodes, serf, given.get("node.data"))
            await ending.first.wait()
            print("homing: draining; once more to stop at once", file=sys.stderr)
            return await ending.unless_aborted(cluster.stop())


def _words(flags: ConfigFlags) -> list[str]:
    """The flags that every node is given too."""
    words = ["--config", str(flags.config)] if flags.config is not None else []
    return [*words, *[word for text in flags.set for word in ("--set", text)]]


def _tell(nodes: list[ClusterNode], serf: bool, data: str | None) -> None:
    """Where everything is, and what to type next."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("node", "clients", "publishers", "subscribers", "dashboard", box=None)
    for node in nodes:
        service, push, dashboard = node.config.service, node.config.push, node.config.dashboard
        page = dashboard.listen if dashboard.enabled else "-"
        clients = ", ".join(end.removeprefix("tcp://") for end in service.localfe)
        table.add_row(node.name, clients, push.publishers, push.subscribers, page)
    console.print(table)
    console.print(f"\nmembership: {'Serf' if serf else 'a fixed list'}")
    token = nodes[0].config.dashboard.token
    if token:
        console.print(f"dashboard token [bold]{token}[/]")
    first, last = nodes[0].config.node.port_offset, nodes[-1].config.node.port_offset
    where = f" --data {data}" if data else ""
    console.print(
        "\ntry, in another terminal: published at the first, received at the last\n"
        f"  homing subscribe 'price in 10..20' --port-offset {last}{where}\n"
        f"  homing publish price=12.5 --port-offset {first}\n",
        soft_wrap=True,
    )
    print("ready cluster", flush=True)
