"""The broker: accepts messages on its sockets and gets rid of them; never opens a body.

Each link's `state` is what the peer behind it turned out to be (a client or worker of some dialect, a
peer, a state feed); the broker hands it every message and keeps what spans them all: the
dispatch core, heartbeats, state publications, draining.

    plug      who                     link.state
    localfe   clients and workers     Newcomer, then MdpClient or MdpWorker
    localbe   the same                the same
    cloudfe   peers' cloudbe          Origin
    cloudbe   peers' cloudfe          PeerLink
    statebe   peers' statefe          –
    statefe   peers' statebe          StateFeed
    taskfe    task clients            TaskClient
    taskbe    task workers            TaskNewcomer, then TaskWorker
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from homing.errors import RemoteProtocolError
from homing.ports import Link, Port
from homing.service import builtin
from homing.service.access import Access
from homing.service.beats import Beats
from homing.service.clients import CLIENTS, MdpClient, Origin, Req02
from homing.service.decisions import decide
from homing.service.denials import Denials
from homing.service.dispatch import DispatchCore
from homing.service.federation import Federation
from homing.service.names import may_be_served
from homing.service.peers import PeerLink, StateFeed, capacity_of
from homing.service.pending import Asker, Pending
from homing.service.policy import BrokerPolicy
from homing.service.queues import Service
from homing.service.record import Record
from homing.service.router import Route, Router, Verdict
from homing.service.router_pool import PATIENCE, RouterPool
from homing.service.tasks import TaskClient, TaskNewcomer
from homing.service.worker_pool import Worker
from homing.service.workers import WORKERS, Delimited02, Newcomer, Returned
from homing.wire.mdp import MMI
from homing.wire.mdp_messages import Dialect, Kind, Options, Ready
from homing.wire.mdp_peers import write

STATE_EVERY = 0.05
"""Seconds between state publications at most: as the protocol page says."""
SWEEP_EVERY = 2.5
"""Seconds until what nobody needs any more is let go of: seldom enough for ten thousand names, soon enough for clients that make them up."""


class Broker:
    """The role of one broker (homing.ports.Role)."""

    def __init__(
        self,
        name: bytes,
        port: Port,
        *,
        policy: BrokerPolicy = BrokerPolicy(),  # noqa: B008 - frozen, a value
        peers: Mapping[bytes, tuple[str, str]] | None = None,
        access: Access = Access(),  # noqa: B008 - frozen, a value
        route: Route | None = None,
        new_id: Callable[[], str] | None = None,
        group: tuple[str, ...] = (),
        seed: int = 1,
        journal: bool = True,
        state_every: float = STATE_EVERY,
        routers: bool = False,
    ) -> None:
        """`peers`: name -> (cloudfe, statebe). `group`: task endpoints told to task workers.

        `routers`: headers are read and policy is asked by processes on `tasks` and `decisions`.
        """
        self.name = name
        self.policy = policy
        self.group = group
        self.router = Router(access, route)
        self.guards = self.router.guards
        self.access = access
        self.federation = Federation(name, dict(peers or {}), seed)
        self.record = Record(port.journal if journal else None, policy.refuse_unjournaled)
        self.core = DispatchCore(policy, self.federation, self.record)
        self.denials = Denials()
        self._port = port
        why = b"too-large an answer over %d bytes, or of too many frames"
        self.too_large_answer = why % policy.max_body
        # With every heartbeat too, a little late at most.
        self._state_every = min(state_every, policy.heartbeat / 4)
        self.pool = RouterPool(port) if routers else None
        self.asks_routers = routers and self.guards
        self._stopped = False
        self._ids = 0
        self._new_id = new_id or self._count_id
        self._tick_every = policy.grain
        self.beats = Beats(policy, self.core.roster)
        self._away: dict[tuple[str, bytes], MdpClient] = {}  # by user and routing id
        self._watchers: dict[Link, None] = {}  # peers' statefe
        self._published = b""
        self._publish_at = 0.0
        self._told = -1  # the changes that it has in it
        self._sweep_at = 0.0
        for peer in self.federation.peers.values():
            port.connect(f"cloudbe/{peer.name.decode()}", peer.endpoints[0])
            port.connect(f"statefe/{peer.name.decode()}", peer.endpoints[1])
        port.later(0.0, "tick")

    # --- homing.ports.Role ----------------------------------------------------------------------

    def opened(self, link: Link, now: float) -> None:
        """A peer finished its handshake."""
        plug, _, known_as = link.plug.partition("/")  # a peer's own: cloudbe/NAME, statefe/NAME
        if plug in ("localfe", "localbe"):
            self._become(link, self._returned(link) or Newcomer(self, link))
        elif plug == "cloudfe":
            self._origin_opened(link)
        elif plug == "cloudbe":
            self._peer_opened(link, known_as.encode(), now)
        elif plug == "statefe":
            link.state = StateFeed(self, known_as.encode())
        elif plug == "statebe":
            self._watcher_opened(link, now)
        elif plug == "taskfe":
            link.state = TaskClient(self, link)
        elif plug == "taskbe":
            link.state = TaskNewcomer(self, link)
        elif plug == "tasks" and self.pool is not None:
            self.pool.opened(link, now)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        """One message from a peer."""
        state = link.state
        if state is not None:
            state.receive(message, now)
        elif self.pool is not None and link.plug == "decisions":
            self._apply(link, message, now)

    def receive_all(self, link: Link, messages: list[bytes], now: float) -> None:
        """All that one chunk brought: what most of it is passes faster together."""
        state = link.state
        if link.skim is not None:
            state.receive_all(messages, now)
        else:
            for message in messages:
                self.receive(link, message, now)

    def overlong(self, link: Link, now: float) -> None:
        """A peer sent more than it may: if it is a worker, what it was asked for has no answer."""
        if isinstance(link.state, Worker):
            self.core.overlong(link.state, now)

    def closed(self, link: Link, now: float) -> None:
        """A peer is gone."""
        self._watchers.pop(link, None)
        state = link.state
        if state is not None:
            state.closed(now)
            self._become(link, None)
            if self.pool is not None:
                self.pool.forget(link)
        elif self.pool is not None and link.plug in ("tasks", "decisions"):
            self.pool.closed(link)

    def wake(self, key: Hashable, now: float) -> None:
        """`tick`: deadlines and heartbeats; `state`: tell the peers; `stop`: the drain is over."""
        if key == "tick":
            self._port.later(now + self._tick_every, "tick")
            self._tick(now)
        elif key == "stop" and not self._stopped:
            self.stop(now)
        elif key == "greet" and self.pool is not None:
            self.pool.greet(now)
        elif key == "state" and self._watchers:
            self._port.later(now + self._state_every, "state")
            self._publish(now)

    def journaled(self, number: int, now: float) -> None:
        """Nothing waits for the journal here."""

    # --- askers ---------------------------------------------------------------------------------

    def admit(
        self,
        asker: Asker,
        name: bytes,
        data: bytes,
        envelope: bytes,
        options: Options | None,
        now: float,
        message_id: str = "",
        verdict: Verdict | None = None,
    ) -> None:
        """A request that could be read: take it on, answer it here, or turn it away.

        `verdict`: a router's, where one was asked already.
        """
        if verdict is not None and not verdict.reason:
            name = verdict.service
        service = self.core.services.get(name)
        if service is None or (verdict.reason if verdict is not None else self.guards):
            service = self._enter(asker, name, data, envelope, now, message_id, verdict)
            if service is None:
                return
        self.core.take_on(asker, service, data, envelope, options, now, message_id)

    def _enter(
        self,
        asker: Asker,
        name: bytes,
        data: bytes,
        envelope: bytes,
        now: float,
        message_id: str,
        verdict: Verdict | None,
    ) -> Service | None:
        """The service for a request that is not plainly allowed; None: dealt with here."""
        user = asker.link.user if asker.link is not None else ""
        if asker.origin:  # its own broker has decided already
            verdict = self.router.repost(name)
        elif verdict is None:
            verdict = self.router.decide(user, name, data)
        reason = verdict.reason
        if not reason and verdict.service.startswith(MMI):
            once = Pending(asker, Service(name, self.policy.default), b"", envelope, now, now)
            once.message_id = message_id
            asker.report(once, Kind.FINAL, builtin.answer(self.core, verdict.service, data))
            return None
        service = None if reason else self.core.service(verdict.service)
        if service is None:
            if reason.startswith(b"denied"):
                self.denials.request(user, name)
            once = Pending(asker, Service(name, self.policy.default), data, envelope, now, now)
            once.message_id = message_id
            self.core.turn_away(once, reason or b"queue-full too many services", now)
        return service

    def too_large(
        self, asker: Asker, name: bytes, envelope: bytes, now: float, task: str = ""
    ) -> None:
        """A request that broke a limit of the wire: its body went by, whoever asked is told."""
        once = Pending(asker, Service(name, self.policy.default), b"", envelope, now, now)
        once.message_id = task
        self.core.turn_away(
            once, b"too-large over %d bytes, or too many frames" % self.policy.max_body, now
        )

    def new_client(self, link: Link, dialect: Dialect, req: bool = False) -> MdpClient:
        """A link turned out to be a client's; `req`: an `02` client's that is a REQ."""
        client = Req02(self, link) if req else CLIENTS[dialect](self, link)
        self._become(link, client)
        return client

    def _become(self, link: Link, state: object) -> None:
        """What the peer behind a link turned out to be; some can skim chunks, others cannot."""
        link.state = state
        link.skim = getattr(state, "skim", None)

    def client_gone(self, client: MdpClient, identity: bytes) -> None:
        """A client with a routing id of its own may come back for its answers."""
        link, client.link = client.link, None
        if link is not None and client.outstanding and not identity.startswith(b"\x00"):
            self._away[link.user, identity] = client

    def _returned(self, link: Link) -> Returned | None:
        """Another user who tells the same routing id is somebody else."""
        client = self._away.pop((link.user, link.peer), None) if link.peer else None
        if client is None:
            return None
        client.link = link
        return Returned(self, link, client)

    def resume(self, link: Link, image: bytes, now: float, client: MdpClient | None) -> None:
        """The first message of a link that came back: its client's as before, or somebody else's."""
        self._become(link, client or Newcomer(self, link))
        self.receive(link, image, now)

    def stranger(self, link: Link, image: bytes, error: RemoteProtocolError) -> None:
        """A first message that is no Majordomo: say so if it might be `0X`, and hang up if not."""
        if image.startswith(b"\x01\x00\x01\x06MDPC0X"):
            self.new_client(link, Dialect.D0X).protest(b"malformed " + str(error).encode())
        else:
            self._become(link, None)
            link.close("malformed")

    # --- routing --------------------------------------------------------------------------------

    def decide(self, link: Link, side: bytes, image: bytes, now: float) -> bool:
        """Have a message read and judged, here or by a router process; False: too many wait."""
        if self.pool is not None:
            return self.pool.put(link, side, image, now)
        link.state.decided(image, decide(self.router, side, link.user, image), now)
        return True

    def _undecided(self, pool: RouterPool, now: float) -> None:
        """Whoever asked what no router decided is told."""
        patience = max(self.policy.expiry, PATIENCE)
        for link, image, reason in pool.tick(now, patience, self.policy.default.timeout):
            if isinstance(link.state, MdpClient | TaskClient):
                link.state.undecided(image, reason, now)

    def _apply(self, link: Link, image: bytes, now: float) -> None:
        """A router's decision on a message; its sender may be gone or have become a worker."""
        found = self.pool.decided(link, image) if self.pool is not None else None
        if found is not None:
            about, message, decision = found
            if about.state is not None:
                about.state.decided(message, decision, now)

    # --- workers --------------------------------------------------------------------------------

    def new_worker(self, link: Link, ready: Ready, now: float, delimited: bool = False) -> None:
        """READY from a link that is no worker yet; `delimited`: an `02` worker with empty frames."""
        credit = min(ready.credit, self.policy.max_credit)
        kind = Delimited02 if delimited else WORKERS[ready.dialect]
        worker = kind(self, link, credit, now)
        worker.slowest = ready.slowest / 1000
        self._become(link, worker)
        self.register(worker, ready.service, now)

    def register(self, worker: Worker, name: bytes, now: float) -> bool:
        """Let a worker serve `name` (empty: any service), or dismiss it."""
        user = worker.link.user if worker.link is not None else ""
        code = self._unfit(user, name)
        service = self.core.service(name) if name and not code else None
        if name and service is None:
            code = code or b"queue-full"
        if code:
            self.denials.worker(code, user, name)
            self.dismiss(worker, code, now)
            return False
        self.beats.join(worker, now)
        self.core.join(worker, service, now)
        return True

    def _unfit(self, user: str, name: bytes) -> bytes:
        """Why a worker is not taken on, as a code; empty: it is."""
        if self.core.draining:
            return b"shutting-down"
        if not self.access.may_serve(user, name):
            return b"denied"
        if name and not may_be_served(name):
            return b"malformed"
        return b"queue-full" if len(self.core.roster) >= self.policy.max_workers else b""

    def dismiss(self, worker: Worker, reason: bytes, now: float) -> None:
        """End a conversation from our side."""
        worker.dismiss()
        self.worker_gone(worker, reason, now)

    def worker_gone(self, worker: Worker, reason: bytes, now: float) -> None:
        """A conversation is over; the link may start another."""
        self.core.leave(worker, reason, now)
        if worker.link is not None:
            self._become(worker.link, worker.successor())

    def allow(self, access: Access, now: float) -> None:
        """Other allow-lists from now on: who works and may no longer is sent away."""
        self.access = self.router.access = access
        for worker in list(self.core.roster):
            name = worker.service.name if worker.service is not None else b""
            if worker.link is not None and not access.may_serve(worker.link.user, name):
                self.denials.worker(b"denied", worker.link.user, name)
                self.dismiss(worker, b"denied", now)

    # --- peers ----------------------------------------------------------------------------------

    def _origin_opened(self, link: Link) -> None:
        if link.peer and self.access.may_peer(link.user, link.peer):
            self._become(link, Origin(self, link))
        else:
            self.denials.peer(link.user, link.peer)
            link.close("denied")

    def _watcher_opened(self, link: Link, now: float) -> None:
        if not self.access.may_watch(link.user):
            self.denials.watcher(link.user)
            link.close("denied")
            return
        self._watchers[link] = None
        self._published, self._told = b"", -1  # not subscribed yet: tell all again in a moment
        self._port.later(now + self._state_every, "state")

    def may_stay(self, link: Link) -> bool:
        """Whether whoever came in by a peer's door still may."""
        if link.plug == "cloudfe":
            return self.access.may_peer(link.user, link.peer)
        return link.plug != "statebe" or self.access.may_watch(link.user)

    def _peer_opened(self, link: Link, known_as: bytes, now: float) -> None:
        peer = self.federation.reached(link) if link.peer == known_as else None
        if peer is None:
            self.denials.other(known_as, link.peer)
            link.close("not the peer that was configured")
            return
        self._become(link, PeerLink(self, peer, link))
        self.record.peer_reached(peer, now)
        self.core.pump_hungry(now)

    def _state(self) -> bytes:
        return write(capacity_of(self.core, self.name))

    def _publish(self, now: float) -> None:
        changes = self.core.changes
        if changes == self._told and now < self._publish_at:
            return  # of ten thousand services a state takes ten milliseconds to make
        self._told = changes
        state = self._state()
        if state != self._published or now >= self._publish_at:
            self._published = state
            self._publish_at = now + self.policy.heartbeat
            for link in self._watchers:
                link.send(state)

    # --- time -----------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        self.core.tick(now)
        if self.core.deadlines.behind:
            self._port.later(now, "tick")
        for worker in self.beats.tick(self.core.begun, now):
            self.dismiss(worker, b"expired", now)
        if self.pool is not None:
            self._undecided(self.pool, now)
        if self.core.draining and not self.core.live and not self._stopped:
            self.stop(now)
        for peer in self.federation.silent(now, self.policy.expiry):
            peer.silence()
            self.record.peer_lost(peer, b"silent", now)
            self.core.lose_held(peer, now)
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_EVERY
            self.core.sweep()
            for peer in self.federation.peers.values():
                peer.forget_ended(now)
            self._away = {key: one for key, one in self._away.items() if one.outstanding}

    # --- the end --------------------------------------------------------------------------------

    def drain(self, now: float) -> None:
        """No new requests; what is under way has until the drain's end."""
        self.core.draining = True
        self._port.later(now + self.policy.drain, "stop")

    @property
    def drained(self) -> bool:
        """Whether nothing is under way any more and the workers have been told."""
        return self._stopped

    def stop(self, now: float) -> None:
        """Refuse what is left and send the workers away."""
        self._stopped = True
        self.core.shut(now)
        self.core.tick(now)
        for worker in list(self.core.roster):
            self.dismiss(worker, b"shutting-down", now)
        self.record.stopped(now)

    def new_id(self) -> str:
        """A message id for a task that came without one."""
        return self._new_id()

    def _count_id(self) -> str:
        self._ids += 1
        return f"{self.name.decode(errors='replace')}-{self._ids}"
