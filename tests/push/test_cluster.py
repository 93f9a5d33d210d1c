"""Real clusters: matchers under a plan that changes, nodes killed -9, `homing up --cluster`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from homing.cli.verb import NO_FLAGS
from homing.node.cluster import Cluster, lay_out
from homing.node.supervisor import Supervisor
from homing.push.placement import Cut, Plan, Tree, dump_plan
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.push.tokens import Keyring
from homing.wire.pushed import Push
from tests.push.processes import free_cluster_offset, free_offset
from tests.push.test_nodes import collect, publish_on, wait_for

pytestmark = pytest.mark.slow

KEY = f"a key that all nodes share, and no other cluster on this machine: {os.urandom(8).hex()}"
SETTLED = 1000
"""Publications: with some hundred a second they go on until a member that came back has all its links, and its share."""


def subscriber(connector: str, key: str, client: str, **how: Any) -> Subscriber:
    keys = Keyring([key.encode()])

    def credentials() -> tuple[int, str]:
        stamp = int(time.time())
        return stamp, keys.issue(client, stamp)

    return Subscriber(client, connector, credentials=credentials, durable=True, **how)


@contextlib.asynccontextmanager
async def traffic(
    publisher: Publisher, *subscribers: Subscriber
) -> AsyncIterator[tuple[list[int], Callable[..., asyncio.Future[None]]]]:
    """Publications all the while; at the end all that were accepted arrived, once, in order."""
    accepted: list[int] = []
    got: list[list[Push]] = [[] for _ in subscribers]
    stop = asyncio.Event()
    readers = [
        asyncio.create_task(collect(one, into)) for one, into in zip(subscribers, got, strict=True)
    ]
    writer = asyncio.create_task(publish_on(publisher, accepted, stop))

    async def more(count: int) -> None:
        after = len(accepted)
        await wait_for(lambda: len(accepted) > after + count)

    try:
        yield accepted, lambda count=50: asyncio.ensure_future(more(count))
        stop.set()
        await writer
        await wait_for(lambda: all(len(into) >= len(accepted) for into in got))
        for into in got:
            numbers = [int(one.attrs["n"]) for one in into]
            assert numbers == sorted(accepted) == list(range(len(accepted)))
    finally:
        for task in (writer, *readers):
            task.cancel()
        await asyncio.gather(writer, *readers, return_exceptions=True)


# --- a plan -----------------------------------------------------------------------------------

MATCHERS = [f"00000000000000a{number}" for number in range(1, 5)]


def plan(epoch: int, pivot: int) -> bytes:
    """Two tiles, each with two owners; the next epoch cuts elsewhere and swaps them."""
    owners = (tuple(MATCHERS[:2]), tuple(MATCHERS[2:]))
    tree = Tree((Cut("n", pivot, ~0, ~1),), owners if epoch % 2 else owners[::-1])
    return dump_plan(Plan(epoch, (tree,)))


class Ring:
    """Four matchers, one of which is given a plan, a dispatcher and a connector."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offset = free_offset()
        self.plan = directory / "plan.json"
        self.plan.write_bytes(plan(1, 100))
        self.supervisor = Supervisor(watch=lambda _name, _line: None)
        self.matchers = [self._at(7001 + 10 * n) for n in range(len(MATCHERS))]
        self.connector = self._at(7005)
        self._status = [self._at(7002 + 10 * n) for n in range(len(MATCHERS))]

    def _at(self, port: int) -> str:
        return f"127.0.0.1:{port + self._offset}"

    async def start(self) -> None:
        flags = ["--port-offset", str(self._offset), "--set", f"security.token_key={KEY}"]
        for kind in ("connector", "dispatcher"):
            self._run(kind, kind, *flags)
        for number, identity in enumerate(MATCHERS):
            own = ["--id", identity, "--set", f"push.publishers={self.matchers[number]}"]
            own += ["--set", f"push.status={self._status[number]}"]
            for other, status in zip(MATCHERS, self._status, strict=True):
                own += ["--join", f"matcher:{other}@status={status}"]
            if number == 0:
                own += ["--plan", str(self.plan)]
            self._run(f"matcher-{number}", "matcher", *flags, *own)
        await self.supervisor.ready(180.0)

    def _run(self, name: str, kind: str, *words: str) -> None:
        data = str(self._directory / name)
        argv = [sys.executable, "-m", "homing.cli", kind, "--data", data, *words]
        self.supervisor.start(name, argv, {**os.environ, "PYTHONUNBUFFERED": "1"})

    def kill(self, name: str) -> None:
        self.supervisor.children[name].signal(signal.SIGKILL)


async def matchers_die_and_plans_change(directory: Path) -> None:
    ring = Ring(directory)
    async with ring.supervisor:
        await ring.start()
        client = os.urandom(12).hex()
        async with (
            Publisher(*ring.matchers, timeout=60.0) as publisher,
            subscriber(ring.connector, KEY, client) as durable,
        ):
            await durable.subscribe("n >= 0")
            async with traffic(publisher, durable) as (_, more):
                await more()
                ring.kill("matcher-2")  # an owner of the tile that is asked for elsewhere
                await more()
                ring.plan.write_bytes(plan(2, 400))
                await more()
                ring.kill("matcher-0")  # the one that the publisher talks to
                await more()
                ring.plan.write_bytes(plan(3, 700))
                ring.supervisor.children["matcher-0"].signal(signal.SIGHUP)
                await more()
                await more()


def test_matchers_die_and_plans_change_and_nobody_misses_anything(tmp_path: Path) -> None:
    asyncio.run(matchers_die_and_plans_change(tmp_path))


# --- a cluster of whole nodes -----------------------------------------------------------------


@contextlib.asynccontextmanager
async def whole_nodes(directory: Path, count: int, serf: bool = False) -> AsyncIterator[Cluster]:
    """So many whole nodes, ready."""
    given = {"node.data": str(directory), "node.port_offset": free_cluster_offset(count)}
    given |= {"dashboard.enabled": False, "security.token_key": KEY}
    nodes = lay_out(lambda more: NO_FLAGS.load({**given, **more}), count, serf=serf)
    words = ["--set", "dashboard.enabled=false"]
    async with Cluster(nodes, words, serf=serf, drain_seconds=5.0) as cluster:
        await cluster.ready(180.0)
        yield cluster


async def a_node_is_killed(directory: Path, serf: bool) -> None:
    async with whole_nodes(directory, 3, serf) as cluster:
        nodes = cluster.nodes
        first, second, third = (node.config.push for node in nodes)
        async with (
            Publisher(first.publishers, second.publishers, timeout=60.0) as publisher,
            subscriber(second.subscribers, KEY, os.urandom(12).hex()) as one,
            subscriber(third.subscribers, KEY, os.urandom(12).hex()) as other,
        ):
            await one.subscribe("n >= 0")
            await other.subscribe("n >= 0")
            async with traffic(publisher, one, other) as (_, more):
                await more()
                cluster.signal(nodes[2].name, signal.SIGKILL)
                await more()
                await wait_for(lambda: cluster.lives(nodes[2].name) == 2)
                await cluster.ready(180.0)
                await more(SETTLED)


@pytest.mark.parametrize("serf", [False, True], ids=["static", "serf"])
def test_a_cluster_loses_a_node_and_nothing_else(tmp_path: Path, serf: bool) -> None:
    if serf and shutil.which("serf") is None:
        pytest.skip("needs Debian's package serf (apt-get install serf)")
    asyncio.run(a_node_is_killed(tmp_path, serf))


async def publish_from(publisher: Publisher, who: int, stop: asyncio.Event) -> int:
    """Publish until told to stop; how many were accepted."""
    number = 0
    while not stop.is_set():
        await publisher.publish({"who": who, "n": number})
        number += 1
        await asyncio.sleep(0.02)
    return number


async def publishers_spread(directory: Path) -> None:
    """All come to the first node's matcher, which sends half of them to the other."""
    async with whole_nodes(directory, 2) as cluster, contextlib.AsyncExitStack() as stack:
        first, second = (node.config.push for node in cluster.nodes)
        durable = subscriber(second.subscribers, KEY, os.urandom(12).hex())
        await stack.enter_async_context(durable)
        await durable.subscribe("n >= 0")
        publishers = [Publisher(first.publishers, timeout=60.0) for _ in range(4)]
        for one in publishers:
            await stack.enter_async_context(one)
        stop = asyncio.Event()
        got: list[Push] = []
        reader = asyncio.create_task(collect(durable, got))
        writers = [
            asyncio.create_task(publish_from(one, who, stop)) for who, one in enumerate(publishers)
        ]
        stack.callback(reader.cancel)
        places = [first.publishers, second.publishers]
        await wait_for(lambda: [one.matcher for one in publishers].count(places[1]) == 2)
        after = len(got)
        await wait_for(lambda: len(got) > after + 100)
        stop.set()
        counts = await asyncio.gather(*writers)
        await wait_for(lambda: len(got) >= sum(counts))
        for who, count in enumerate(counts):
            assert [one.attrs["n"] for one in got if one.attrs["who"] == who] == list(range(count))


def test_publishers_are_spread_over_matchers(tmp_path: Path) -> None:
    asyncio.run(publishers_spread(tmp_path))


async def a_client_moves(directory: Path) -> None:
    async with whole_nodes(directory, 2) as cluster:
        first, second = (node.config.push for node in cluster.nodes)
        client = os.urandom(12).hex()
        async with Publisher(first.publishers, timeout=60.0) as publisher:
            async with subscriber(first.subscribers, KEY, client, ack="manual") as here:
                await here.subscribe("n >= 0")
                for n in range(10):
                    await publisher.publish({"n": n})
                for n in range(10):
                    push = await anext(here)
                    assert isinstance(push, Push)
                    if n < 5:
                        await here.ack(push)
                await asyncio.sleep(0.2)  # the acks arrive
            for n in range(10, 400):
                await publisher.publish({"n": n})
            # Says nothing of what it asked for at the other one: that too has moved.
            async with subscriber(second.subscribers, KEY, client) as there:
                got = [await anext(there) for _ in range(395)]
                assert await publisher.publish({"n": 400}) >= 1
                got.append(await anext(there))
            pushes = [one for one in got if isinstance(one, Push)]
            assert [one.attrs["n"] for one in pushes] == list(range(5, 401))
            assert all(one.redelivered for one in pushes[:5])


def test_a_durable_session_follows_its_client(tmp_path: Path) -> None:
    asyncio.run(a_client_moves(tmp_path))


async def a_former_connector_is_killed(directory: Path) -> None:
    async with whole_nodes(directory, 2) as cluster:
        first, second = (node.config.push for node in cluster.nodes)
        client = os.urandom(12).hex()
        async with Publisher(first.publishers, timeout=60.0) as publisher:
            async with subscriber(second.subscribers, KEY, client) as there:
                await there.subscribe("n >= 0")
            for n in range(100):
                await publisher.publish({"n": n})
            cluster.signal(cluster.nodes[1].name, signal.SIGKILL)
            async with subscriber(first.subscribers, KEY, client, wait=300.0) as here:
                await here.subscribe("n >= 0")
                for n in range(100, 200):
                    await publisher.publish({"n": n})
                got = [await anext(here) for _ in range(200)]
        assert [one.attrs["n"] for one in got if isinstance(one, Push)] == list(range(200))


def test_what_a_killed_connector_held_comes_first_when_it_is_back(tmp_path: Path) -> None:
    asyncio.run(a_former_connector_is_killed(tmp_path))
