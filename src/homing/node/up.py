"""A whole fabric on one loop: broker, connector, dispatcher, matcher, authority.

Each node keeps its own host, journal and sockets and talks to the others over loopback, exactly
as it would alone; only the process is shared.
"""

from __future__ import annotations

from collections.abc import Callable

from homing.config import Config
from homing.node.broker import start_broker
from homing.node.host import Host
from homing.node.push import node_identity, start_connector, start_dispatcher, start_matcher

PUSH_RECONNECT = (0.01, 0.1)
"""Neighbours in one process are back at once or not at all."""

Start = Callable[[Host, Config, bytes], dict[str, str]]


class Nodes:
    """The hosts of a fabric by role, and where each plug listens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.hosts: dict[str, Host] = {}
        self.endpoints: dict[str, dict[str, str]] = {}

    def start(self, *, push: bool = True, authority: bool = True) -> None:
        """Open every socket; what fails leaves nothing behind once `stop` was called."""
        host = self._host("broker", Host.configured(self.config.node))
        self.endpoints["broker"] = start_broker(host, self.config)
        if push:
            # Listeners before those who dial them, so that no dial has to be repeated.
            self._push("connector", start_connector)
            self._push("dispatcher", start_dispatcher)
            self._push("matcher", start_matcher)
        if push and authority:
            from homing.node.authority import start_authority  # brings a web server

            self._push("authority", start_authority)

    def _push(self, role: str, start: Start) -> None:
        host = self._host(role, Host(reconnect=PUSH_RECONNECT))
        self.endpoints[role] = start(host, self.config, node_identity(self.config, role, None))

    def _host(self, role: str, host: Host) -> Host:
        self.hosts[role] = host
        return host

    @property
    def draining(self) -> bool:
        """Whether any node takes no new work."""
        return any(host.draining for host in self.hosts.values())

    async def drain(self, deadline: float) -> None:
        """Those who take work in first, those who deliver it last."""
        for role in ("authority", "broker", "matcher", "dispatcher", "connector"):
            if role in self.hosts:
                await self.hosts[role].drain(deadline)

    def stop(self) -> None:
        """End at once."""
        for host in self.hosts.values():
            host.stop()
