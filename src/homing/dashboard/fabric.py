"""The fabric that `homing up` runs, as its page sees it and tries it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from homing.clock import SystemClock
from homing.dashboard import topology
from homing.dashboard.survey import Place, Survey
from homing.errors import ShuttingDown
from homing.ids import ID_BYTES
from homing.journal.writer import Journal
from homing.metrics import Registry
from homing.node.instruments import watch_node, watch_role
from homing.node.push import token_keys
from homing.node.up import Nodes
from homing.push.matcher import Matcher
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.service.client import Client
from homing.wire.pushed import Gap

TRY_SECONDS = 5.0
"""A person who waits longer than this has lost interest."""


class RunningFabric:
    """homing.dashboard.app.Fabric over nodes in this process."""

    def __init__(self, nodes: Nodes) -> None:
        self.registry = Registry()
        self._nodes = nodes
        self._client = Client(nodes.config.service.localfe[0])
        keys = nodes.config.security.api_keys
        self._publisher = Publisher(nodes.config.push.publishers, token=keys[0] if keys else "")
        for host in nodes.hosts.values():
            watch_node(self.registry, host)
            watch_role(self.registry, host.role)
        self._survey = self._make_survey()

    @property
    def ready(self) -> bool:
        """Whether every node takes work."""
        matcher = self._role("matcher")
        return not self._nodes.draining and (not isinstance(matcher, Matcher) or matcher.ready)

    def _role(self, name: str) -> object:
        host = self._nodes.hosts.get(name)
        return host.role if host is not None else None

    # -- looking ------------------------------------------------------------------------------

    def topology(self) -> dict[str, Any]:
        """Nodes, peers, ring, slow subscribers; journals, index and pipeline as last surveyed."""
        hosts = self._nodes.hosts
        broker, matcher, connector = map(self._role, ("broker", "matcher", "connector"))
        return {
            "title": f"{self._nodes.config.service.name}, {len(hosts)} nodes in one process",
            "nodes": [
                topology.node(role, host, self._nodes.endpoints[role])
                for role, host in hosts.items()
            ],
            "peers": topology.peers(broker, SystemClock.monotonic()),
            "ring": topology.ring(matcher),
            "slow": topology.slow(connector),
            **self._survey.found,
        }

    def survey(self) -> None:
        """Look at disks, index and pipeline; may be called in another thread."""
        self._survey.look()

    def _make_survey(self) -> Survey:
        config = self._nodes.config
        root = Path(config.node.data) / config.journal.directory
        matcher = self._role("matcher")
        index = matcher.table.index if isinstance(matcher, Matcher) else None
        return Survey(
            [
                Place(role, root, partial(_number, host.journal_writer))
                for role, host in self._nodes.hosts.items()
                if isinstance(host.journal_writer, Journal)
            ],
            Path(config.node.data) / config.pipeline.tables,
            getattr(index, "stats", None),
        )

    # -- trying -------------------------------------------------------------------------------

    async def request(self, service: str, body: bytes) -> bytes:
        """Ask a service through the broker."""
        self._still()
        return await self._client.request(service, body, timeout=TRY_SECONDS)

    async def publish(self, attributes: dict[str, Any], payload: bytes) -> int:
        """Publish through the matcher; how many subscriptions matched."""
        self._still()
        return await self._publisher.publish(attributes, payload)

    def _still(self) -> None:
        """Nothing is tried on nodes that go: this page would dial for ever what is not there."""
        if self._nodes.draining:
            raise ShuttingDown()

    async def subscribe(self, filter_text: str) -> AsyncIterator[dict[str, Any]]:
        """Subscribe as a client of its own: first that it holds, then every push."""
        self._still()
        client = secrets.token_hex(ID_BYTES)
        keyring = Keyring(token_keys(self._nodes.config))

        def credentials() -> tuple[int, str]:
            now = int(SystemClock.wall())
            return now, keyring.issue(client, now)

        where = self._nodes.config.push.subscribers
        async with Subscriber(client, where, credentials=credentials) as subscriber:
            await subscriber.subscribe(filter_text)
            yield {"type": "subscribed"}
            async for push in subscriber:
                if isinstance(push, Gap):
                    yield {"type": "gap", "dropped": push.dropped}
                else:
                    yield {
                        "type": "push",
                        "payload": push.payload,
                        "attrs": push.attrs,
                    }

    async def close(self) -> None:
        """Hang up what the page used for trying."""
        await self._client.close()
        await self._publisher.close()


def _number(journal: Journal) -> int:
    return journal.number
