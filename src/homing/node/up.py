"""A whole fabric on one loop: broker, connector, dispatcher, matcher, authority.

Each node keeps its own host, journal and sockets and talks to the others over loopback, exactly
as it would alone; only the process is shared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from homing.clock import SystemClock
from homing.config import Config
from homing.errors import JournalError
from homing.node.broker import start_broker
from homing.node.fleet import Fleet
from homing.node.host import Host
from homing.node.push import node_identity, start_connector, start_dispatcher, start_matcher
from homing.node.rereads import read_again
from homing.push.links import PacketRole

PUSH_RECONNECT = (0.01, 0.1)
"""Neighbours in one process are back at once or not at all."""
JOINING_SECONDS = 10.0
"""For the members of a new cluster to hear of each other; one of them may be gone for good."""
MEETING_SECONDS = 5.0
"""That nodes are given to say hello: some need milliseconds, Serf may take three seconds to tell others of us."""
MEMBER = "node"
"""Under this name the id of a process that is one member of a cluster is kept."""

_log = logging.getLogger("homing.node")

Start = Callable[[Host, Config, bytes, Fleet], dict[str, str]]


class Nodes:
    """The hosts of a fabric by role, and where each plug listens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.fleet = Fleet(config)
        self.hosts: dict[str, Host] = {}
        self.endpoints: dict[str, dict[str, str]] = {}

    def start(self, *, push: bool = True, authority: bool = True) -> None:
        """Open every socket; what fails leaves nothing behind once `stop` was called."""
        host = self._host("broker", Host.configured(self.config.node))
        self.endpoints["broker"] = start_broker(host, self.config)
        if push:
            # Listeners before those who dial them, so that no dial has to be repeated.
            self._push("connector", _start_connector)
            self._push("dispatcher", start_dispatcher)
        if push and authority:
            from homing.node.authority import start_authority  # brings a web server

            self._push("authority", start_authority)
        if push:
            # Last: its kernels are loaded in the background and would make all others late.
            self._push("matcher", start_matcher)
            self._join()

    async def meet(self) -> None:
        """Until the push nodes have said hello to all others, so that whoever is let in is served."""
        if not await _reached(lambda: self.fleet.complete, JOINING_SECONDS):
            known = len(self.fleet.roster.alive)
            _log.warning("%d members are known, %d expected", known, self.config.cluster.expect)
        await _reached(self._have_met, MEETING_SECONDS)

    def _have_met(self) -> bool:
        roles = [host.role for host in self.hosts.values()]
        return all(
            role.met and any(peer.node for peer in role.peers.values())
            for role in roles
            if isinstance(role, PacketRole)
        )

    def _push(self, role: str, start: Start) -> None:
        host = self._host(role, Host(reconnect=PUSH_RECONNECT))
        self.endpoints[role] = start(host, self.config, self._identity(role), self.fleet)

    def _identity(self, role: str) -> bytes:
        """In a cluster this process is one member with one id; alone each role has its own."""
        cluster = self.config.cluster
        shared = cluster.membership == "serf" or cluster.members
        return node_identity(self.config, MEMBER if shared else role, None)

    def _join(self) -> None:
        if self.fleet.dynamic:
            nodes = {role: self._identity(role) for role in self.hosts if role != "broker"}
            ends = {p: end for role in nodes for p, end in self.endpoints[role].items()}
            self.fleet.start(nodes, ends)

    def _host(self, role: str, host: Host) -> Host:
        self.hosts[role] = host
        return host

    @property
    def draining(self) -> bool:
        """Whether any node takes no new work."""
        return any(host.draining for host in self.hosts.values())

    def read_again(self) -> None:
        """SIGHUP: the files of all nodes."""
        read_again(one for host in self.hosts.values() for one in host.rereads.items())

    async def drain(self, deadline: float) -> None:
        """Those who take work in first, those who deliver it last."""
        await self.fleet.withdraw()
        for role in ("authority", "broker", "matcher", "dispatcher", "connector"):
            if role in self.hosts:
                await self.hosts[role].drain(deadline)

    def stop(self) -> None:
        """End at once."""
        for host in self.hosts.values():
            host.stop()

    def check_written(self) -> None:
        """JournalError if the journals of some nodes could not be written to their ends."""
        unwritten = [str(host.unwritten) for host in self.hosts.values() if host.unwritten]
        if unwritten:
            raise JournalError("; ".join(unwritten))


async def _reached(reached: Callable[[], bool], seconds: float) -> bool:
    """Wait for something that tells nobody; this is done once."""
    deadline = SystemClock.monotonic() + seconds
    while not reached() and SystemClock.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return reached()


def _start_connector(host: Host, config: Config, node: bytes, _: Fleet) -> dict[str, str]:
    return start_connector(host, config, node)
