"""A cluster on this machine: several whole fabrics as processes that are each other's peers.

Every node is a `homing up` of its own with its own data and ports. They share the key that signs
tokens, their brokers are peers, and they know each other from a list or, where there is a `serf`
to run, from Serf agents that are started beside them.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from homing.config import Config
from homing.node.push import node_identity, token_keys
from homing.node.supervisor import READY_SECONDS, Supervisor
from homing.node.up import MEMBER

MAX_NODES = 9
"""On one machine more show nothing new; ports are a hundred apart."""
PORT_STEP = 100
SERF_GOSSIP, SERF_RPC = 7946, 7373
"""Where the agents listen, moved with the ports of their node."""
ROLES = "authority,connector,dispatcher,matcher"

Load = Callable[[dict[str, object]], Config]


class ClusterNode(NamedTuple):
    """One node: its name, its settings, and what it is told beside them."""

    name: str
    config: Config
    variables: dict[str, str]


def lay_out(load: Load, count: int, *, serf: bool) -> list[ClusterNode]:
    """The nodes of a cluster; `load` gives the settings with some of them set."""
    base = load({})
    names = [f"node-{number + 1}" for number in range(count)]
    configs = [
        load(
            {
                "node.data": str(Path(base.node.data) / name),
                "node.port_offset": base.node.port_offset + PORT_STEP * number,
                "service.name": name,
            }
        )
        for number, name in enumerate(names)
    ]
    key = token_keys(base)[0].decode()
    members = [_member(config) for config in configs]
    nodes = []
    for name, config in zip(names, configs, strict=True):
        peers = [_peer(other) for other in configs if other is not config]
        variables = {
            "HOMING_SECURITY_TOKEN_KEY": key,
            "HOMING_SERVICE_PEERS": _list(peers),
            "HOMING_DASHBOARD_TOKEN": base.dashboard.token,
        }
        if serf:
            rpc = f"127.0.0.1:{SERF_RPC + config.node.port_offset}"
            variables |= {"HOMING_CLUSTER_MEMBERSHIP": "serf", "HOMING_CLUSTER_SERF": rpc}
            variables["HOMING_CLUSTER_EXPECT"] = str(count)
        else:
            variables["HOMING_CLUSTER_MEMBERS"] = _list(members)
        nodes.append(ClusterNode(name, config, variables))
    return nodes


def _member(config: Config) -> str:
    push = config.push
    plugs = {
        "publishers": push.publishers,
        "status": push.status,
        "nodes": push.dispatcher,
        "dispatchers": push.connector,
        "subscribers": push.subscribers,
    }
    ends = ",".join(f"{plug}={end}" for plug, end in plugs.items())
    return f"{ROLES}:{node_identity(config, MEMBER, None).hex()}@{ends}"


def _peer(config: Config) -> str:
    service = config.service
    return f"{service.name}={service.cloudfe}|{service.statebe}"


def _list(texts: Sequence[str]) -> str:
    return msgspec.json.encode(texts).decode()


def has_serf() -> bool:
    """Whether there is a `serf` that could be run."""
    return shutil.which("serf") is not None


class Cluster:
    """The processes of a cluster; `async with` leaves none behind."""

    def __init__(
        self, nodes: list[ClusterNode], words: Sequence[str], *, serf: bool, drain_seconds: float
    ) -> None:
        """`words`: flags that every node is given beside its own."""
        self.nodes = nodes
        self._words = list(words)
        self._serf = serf
        self._supervisor = Supervisor(watch=_pass_on, stop_seconds=drain_seconds + 2.0)

    async def __aenter__(self) -> Self:
        if self._serf:
            first = self._gossip(self.nodes[0])
            for node in self.nodes:
                self._supervisor.start(f"{node.name}/serf", self._agent(node, first), _plain())
        for node in self.nodes:
            settings = {
                "node.data": node.config.node.data,
                "node.port_offset": str(node.config.node.port_offset),
                "service.name": node.name,
            }
            words = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
            argv = [sys.executable, "-m", "homing.cli", "up", *self._words, *words]
            self._supervisor.start(node.name, argv, {**_plain(), **node.variables})
        return self

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until every node is; Unavailable names those that are not."""
        await self._supervisor.ready(seconds, names=[node.name for node in self.nodes])

    def read_again(self) -> None:
        """SIGHUP: every node's files; a Serf agent has its own use of the signal."""
        for node in self.nodes:
            child = self._supervisor.children.get(node.name)
            if child is not None and child.ready.is_set():
                child.signal(signal.SIGHUP)

    def lives(self, name: str) -> int:
        """How often a node has been started."""
        return self._supervisor.children[name].lives

    def signal(self, name: str, number: int) -> None:
        """Send a node a signal; one that ends is started again."""
        self._supervisor.children[name].signal(number)

    async def stop(self) -> None:
        """Drain all nodes at the same time, then the agents: a node tells its agent that it goes."""
        await self._supervisor.stop(names=[node.name for node in self.nodes])
        await self._supervisor.stop()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _gossip(self, node: ClusterNode) -> str:
        return f"127.0.0.1:{SERF_GOSSIP + node.config.node.port_offset}"

    def _agent(self, node: ClusterNode, first: str) -> list[str]:
        own = self._gossip(node)
        words = ["serf", "agent", f"-node={node.name}", f"-bind={own}", "-profile=local"]
        words += [f"-rpc-addr={node.variables['HOMING_CLUSTER_SERF']}", "-log-level=err"]
        return words if own == first else [*words, f"-retry-join={first}", "-retry-interval=1s"]


def _plain() -> dict[str, str]:
    """Our own environment, with what children print coming at once."""
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _pass_on(name: str, line: str) -> None:
    """What nodes print is told as one table when all are ready; their logs go to stderr."""
