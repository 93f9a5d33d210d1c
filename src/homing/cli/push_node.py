"""What `homing matcher`, `dispatcher`, `connector` and `authority` have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from homing.cli.parts import need_server
from homing.cli.verb import ConfigFlags

Kind = Literal["matcher", "dispatcher", "connector", "authority"]


@Parameter(name="*")
@dataclass(frozen=True)
class NodeFlags:
    """The flags that every node of the push plane has."""

    id: Annotated[str | None, Parameter(help="16 hex digits; made and kept if not given")] = None
    join: Annotated[
        tuple[str, ...],
        Parameter(help="ROLE:ID@PLUG=HOST:PORT of another node; once for each"),
    ] = ()
    port_offset: Annotated[int | None, Parameter(help="added to every default port")] = None
    data: Annotated[str | None, Parameter(help="directory for journal, id and keys")] = None

    def serve(self, kind: Kind, flags: ConfigFlags, given: Mapping[str, Any] | None = None) -> int:
        """Run a node to its end; `given` are settings of its own flags."""
        from homing.node import push
        from homing.node.fleet import Fleet
        from homing.node.host import Host
        from homing.node.logs import logging_to
        from homing.node.place import claim_data
        from homing.node.run import run_node

        need_server()
        config = flags.load(
            {
                "node.port_offset": self.port_offset,
                "node.data": self.data,
                "cluster.members": list(self.join) or None,
                **(given or {}),
            }
        )
        claim_data(config)
        node = push.node_identity(config, kind, self.id)

        fleet = Fleet(config)

        async def start(host: Host) -> None:
            ends = _start(kind)(host, config, node, fleet)
            fleet.start({kind: node}, ends)
            if config.node.metrics:
                from homing.node.status import start_status

                ends["metrics"] = start_status(host, config.node.metrics)
            told = " ".join(f"{plug}={end}" for plug, end in ends.items())
            print(f"ready {kind} {node.hex()} {told}", flush=True)

        def make_host() -> Host:
            # Push nodes owe each other: a peer that is back must be noticed within a second.
            return Host(
                reconnect=(config.node.reconnect_first, min(1.0, config.node.reconnect_last))
            )

        with logging_to(config.node.log_level, config.node.log_format, sys.stderr):
            return run_node(
                start,
                make_host=make_host,
                leave=fleet.withdraw,
                drain_seconds=config.node.drain_timeout,
            )


def _start(kind: Kind) -> Callable[[Any, Any, bytes, Any], dict[str, str]]:
    """What starts a node of this kind; each brings only what it needs."""
    from homing.node import push

    if kind == "authority":
        from homing.node.authority import start_authority

        return start_authority
    return {
        "matcher": push.start_matcher,
        "dispatcher": push.start_dispatcher,
        "connector": lambda host, config, node, _: push.start_connector(host, config, node),
    }[kind]


NO_NODE_FLAGS = NodeFlags()
