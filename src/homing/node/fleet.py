"""Who else is there: a fixed list, or what a Serf agent tells, for the nodes of one process.

    fleet = Fleet(config)
    start_matcher(host, config, node, fleet)     # watches
    fleet.start({"matcher": node}, endpoints)

With Serf a node is one member of the gossip, whatever roles it has: `cluster.serf` is the RPC port
of its own agent. A member that leaves is dialled no more. One that is said to have failed is,
for links know better and sooner who answers; but nobody waits for it, and others take its
connectors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from homing.clock import SystemClock
from homing.cluster.members import Change, Member
from homing.cluster.serf import SerfMembership
from homing.cluster.static import parse_members
from homing.config import Config
from homing.endpoint import parse_endpoint
from homing.errors import HomingError, LinkError

ABSENT_SECONDS = 3600.0
"""A failed member is dialled for this long: whoever repairs it needs no more."""
WITHDRAW_SECONDS = 2.0
"""For the agent to take our tags back when we go: it is on this machine."""
PLUGS = ("publishers", "status", "nodes", "dispatchers", "subscribers")
"""What others dial, or tell publishers and subscribers of."""

_log = logging.getLogger("homing.cluster")

Watcher = Callable[["Roster"], None]


class Roster:
    """The members as they are at one moment: those alive, and those that may come back."""

    def __init__(self, alive: list[Member], absent: list[Member]) -> None:
        self.alive = alive
        self.absent = absent

    @property
    def ids(self) -> set[bytes]:
        """Of those alive."""
        return {member.id for member in self.alive}

    def endpoints(self, role: str, plug: str, *, but: bytes = b"") -> dict[bytes, str]:
        """Where the members of a role listen, by id; without one of them (ourselves)."""
        return {
            member.id: member.endpoints[plug]
            for member in (*self.absent, *self.alive)
            if role in member.roles and plug in member.endpoints and member.id != but
        }

    def having(self, role: str) -> list[Member]:
        """Those alive that have a role."""
        return [member for member in self.alive if role in member.roles]


class Fleet:
    """The members that the nodes of this process are told of."""

    def __init__(self, config: Config) -> None:
        self._settings = config.cluster
        self._alive = {member.id: member for member in parse_members(config.cluster.members)}
        self._absent: dict[bytes, tuple[float, Member]] = {}
        self._watchers: list[Watcher] = []
        self._serf: SerfMembership | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def dynamic(self) -> bool:
        """Whether members come and go."""
        return self._settings.membership == "serf"

    @property
    def complete(self) -> bool:
        """Whether as many members are known as are expected; of a list all are."""
        return not self.dynamic or len(self._alive) >= self._settings.expect

    @property
    def roster(self) -> Roster:
        return Roster(list(self._alive.values()), [member for _, member in self._absent.values()])

    def watch(self, watcher: Watcher) -> None:
        """Tell it whenever members come and go."""
        self._watchers.append(watcher)

    def start(self, nodes: Mapping[str, bytes], endpoints: Mapping[str, str]) -> None:
        """Tell the others of the nodes in this process, ids by role; needs a running loop."""
        if not self.dynamic:
            return
        me = self._member(nodes, endpoints)
        settings = self._settings
        self._serf = SerfMembership(settings.serf, me, self._changed, settings.serf_key)
        self._task = asyncio.get_running_loop().create_task(self._follow(self._serf))

    def _member(self, nodes: Mapping[str, bytes], endpoints: Mapping[str, str]) -> Member:
        [identity] = set(nodes.values())  # one member has one id
        reachable = {plug: self.advertised(endpoints[plug]) for plug in PLUGS if plug in endpoints}
        epoch = int(SystemClock.wall() * 1000)
        return Member(identity.hex(), identity, frozenset(nodes), reachable, epoch)

    def advertised(self, endpoint: str) -> str:
        """Where others reach what listens at an endpoint."""
        where = parse_endpoint(endpoint)
        host = self._settings.advertise or where.host
        return f"[{host}]:{where.port}" if ":" in host else f"{host}:{where.port}"

    async def _follow(self, serf: SerfMembership) -> None:
        try:
            await serf.run()
        except HomingError as error:
            _log.error("membership ends, and stays as it was: %s", error)

    def _changed(self, change: Change) -> None:
        member = change.member
        _log.info("%s %s", member.name, change.kind)
        self._alive.pop(member.id, None)
        self._absent.pop(member.id, None)
        now = SystemClock.monotonic()
        if change.kind in ("joined", "changed"):
            self._alive[member.id] = member
        elif change.kind == "failed":
            self._absent[member.id] = (now, member)
        for gone in [m for m, (at, _) in self._absent.items() if now - at > ABSENT_SECONDS]:
            del self._absent[gone]
        for watcher in self._watchers:
            watcher(self.roster)

    async def withdraw(self) -> None:
        """We go on purpose: the others need not wait for us."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._serf is not None:
            with suppress(LinkError, TimeoutError):
                async with asyncio.timeout(WITHDRAW_SECONDS):
                    await self._serf.withdraw()
