"""Run a broker of the service plane: clients, workers, peers, tasks.

Prints one line that begins with `ready` and names its endpoints once they are open. SIGTERM
drains: new requests are refused with `shutting-down`, those under way get `--drain` seconds.
SIGHUP has the users file read again.

Examples:
  homing broker --name paris
  homing broker --name lyon --port-offset 100 --peer paris=tcp://127.0.0.1:5557
  homing broker --name paris --data /var/lib/homing --set service.heartbeat=1s
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from homing.cli.parts import need_server
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb
from homing.errors import ConfigError

app = verb("broker", __doc__)


@app.default
def broker(
    *,
    name: Annotated[str | None, Parameter(help="its name at peers")] = None,
    host: Annotated[str | None, Parameter(help="address to listen on")] = None,
    port_offset: Annotated[int | None, Parameter(help="added to every default port")] = None,
    peer: Annotated[
        tuple[str, ...], Parameter(help="NAME=CLOUDFE[,STATEBE]; once for each peer")
    ] = (),
    routers: Annotated[int | None, Parameter(help="router processes")] = None,
    data: Annotated[str | None, Parameter(help="directory for the journal")] = None,
    drain: Annotated[str | None, Parameter(help="how long SIGTERM waits, e.g. 8s")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Run a broker until it is told to stop."""
    need_server()
    given: dict[str, Any] = {
        "service.name": name,
        "node.port_offset": port_offset,
        "service.peers": list(peer) or None,
        "service.routers": routers,
        "node.data": data,
        "node.drain_timeout": drain,
    }
    config = flags.load(given)
    if host is not None:
        config = flags.load({**given, **_moved(config, host)})
    return serve(config)


def _moved(config: Any, host: str) -> dict[str, str]:
    """The default endpoints on another address."""
    from homing.config.catalogue import SETTINGS
    from homing.node.broker import LISTENING

    if "/" in host:
        raise ConfigError([f"--host: expected an address or a name, got {host!r}"])
    if ":" in host and not host.startswith("["):  # IPv6, as people write it
        host = f"[{host}]"
    moved: dict[str, str] = {}
    for plug in LISTENING:
        setting = f"service.{plug}"
        if config.origin(setting).startswith("default"):
            default = SETTINGS[setting].endpoints(config.value(setting))
            moved[setting] = ",".join(f"tcp://{host}:{end.rpartition(':')[2]}" for end in default)
    return moved


def serve(config: Any) -> int:
    """Run the broker of a config to its end."""
    from homing.node.broker import start_broker
    from homing.node.host import Host
    from homing.node.logs import logging_to
    from homing.node.place import claim_data
    from homing.node.run import run_node

    claim_data(config)

    async def start(host: Host) -> None:
        ends = start_broker(host, config)
        if config.node.metrics:
            from homing.node.status import start_status

            ends["metrics"] = start_status(host, config.node.metrics)
        told = " ".join(f"{plug}={end}" for plug, end in ends.items())
        print(f"ready broker {config.service.name} {told}", flush=True)

    with logging_to(config.node.log_level, config.node.log_format, sys.stderr):
        return run_node(
            start,
            make_host=partial(Host.configured, config.node),
            drain_seconds=config.node.drain_timeout,
        )
