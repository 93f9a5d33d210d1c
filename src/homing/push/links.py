"""What every role of the push plane does with its packet links: assemble, greet, keep alive.

A node that dials says Hello first; the other answers with its own. A link counts once both
are known to each other (`joined`). Whoever says nothing for `SILENCE` seconds is hung up on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from hmac import compare_digest
from typing import Final

from msgspec.structs import replace

from homing.errors import DiskFull, Malformed, Refused, RemoteProtocolError
from homing.ids import ID_BYTES
from homing.journal.events import Event
from homing.ports import Link, Port
from homing.wire import packet, relay
from homing.wire.assembly import Assembler
from homing.wire.packet import Message

HEARTBEAT: Final = 5.0
SILENCE: Final = 15.0
BEAT: Final = "beat"
DISPATCHER: Final = b"dispatcher"
"""The role, as its Hello tells it."""


class Peer:
    """What is known of the node at the other end of a packet link."""

    __slots__ = ("assembler", "dialled", "heard", "load", "node", "role")

    def __init__(self, key: int, dialled: bool, now: float) -> None:
        self.assembler = Assembler(key)
        self.dialled = dialled
        self.heard = now
        self.node = b""  # empty until its Hello
        self.role = b""
        self.load = 0  # sessions it holds, where it is a connector


class PacketRole(ABC):
    """Base of matcher, dispatcher and connector; they say what a message means."""

    role: bytes = b""
    dials: frozenset[str] = frozenset()
    """Plugs on which we dial, and so speak first."""
    callers: bytes = b""
    """The role of who names none, for that item is homing's own; empty: nobody in particular."""
    record = relay.PLACE_BYTES
    """Bytes of an entry in the client lists that this role receives."""

    def __init__(
        self, port: Port, node: bytes, wall: Callable[[], float], tokens: Sequence[bytes] = ()
    ) -> None:
        """`node`: our own 8-byte id. `tokens`: what the nodes of one fabric share; none: nothing.

        The first is what we say, any of them is what we take: so a key changes node by node.
        """
        self.port = port
        self.node = node
        self.wall = wall
        self.tokens = tuple(tokens)
        self.peers: dict[Link, Peer] = {}
        self.dialled: dict[str, dict[bytes, str]] = {}  # plug -> node -> endpoint
        port.later(0.0, BEAT)

    # What a role adds

    def joined(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        """A node said who it is; again when its Hello changes."""

    def left(self, link: Link, peer: Peer, now: float) -> None:
        """A link that had joined is gone."""

    def taken(self, link: Link, message: Message, now: float) -> bool:
        """Take a message that means something else on this link; False: it is as on all others."""
        return False

    @abstractmethod
    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        """Anything but a Hello or a heartbeat."""

    def beat(self, now: float) -> None:
        """Every HEARTBEAT seconds, for what else must be looked at from time to time."""

    @property
    def token(self) -> bytes:
        """What we say in our Hello, so that others know that we belong to them."""
        return self.tokens[0] if self.tokens else b""

    def hello(self) -> relay.Hello:
        """How we introduce ourselves."""
        return relay.Hello(self.node, self.role, self.token)

    def tell(self, event: Event) -> None:
        """Journal what has happened anyway: a full disk cannot undo it."""
        with suppress(DiskFull):
            self.port.journal(event)

    def heartbeat(self) -> bytes:
        """Our sign of life."""
        return relay.Heartbeat(int(self.wall() * 1e6)).encode()

    # homing.ports.Role

    def opened(self, link: Link, now: float) -> None:
        dialled = link.plug in self.dials
        link.state = self.peers[link] = Peer(relay.MESSAGE_ID, dialled, now)
        if dialled:
            link.send(self.hello().encode())

    def receive(self, link: Link, message: bytes, now: float) -> None:
        peer: Peer | None = link.state
        if peer is None:
            return  # we hung up; this was under way
        peer.heard = now
        try:
            whole = peer.assembler.receive(message, now)
        except RemoteProtocolError as error:
            self.hang_up(link, str(error), now)
            return
        for one in whole:
            self._one(link, peer, one, now)
        naks = peer.assembler.take()
        if naks:
            link.send(naks)

    def closed(self, link: Link, now: float) -> None:
        peer = self.peers.pop(link, None)
        link.state = None
        if peer is not None and peer.node:
            self.left(link, peer, now)

    def wake(self, key: Hashable, now: float) -> None:
        if key == BEAT:
            self.port.later(now + HEARTBEAT, BEAT)
            self._keep_alive(now)
            self.beat(now)

    def journaled(self, number: int, now: float) -> None:
        """Nothing waits for the journal unless a role says so."""

    def hang_up(self, link: Link, reason: str, now: float) -> None:
        """Close a link ourselves; nobody else tells us of it."""
        link.close(reason)
        self.closed(link, now)

    def dial(self, plug: str, nodes: Mapping[bytes, str], now: float = 0.0) -> None:
        """Keep links to these nodes, endpoints by id, and on this plug to no others."""
        before = self.dialled.get(plug, {})
        self.dialled[plug] = dict(nodes)
        for node, endpoint in before.items():
            if nodes.get(node) != endpoint:
                for link, peer in list(self.peers.items()):
                    if link.plug == plug and peer.node == node:
                        self.hang_up(link, "no longer a member", now)
                self.port.disconnect(plug, endpoint)
        for node, endpoint in nodes.items():
            if before.get(node) != endpoint:
                self.port.connect(plug, endpoint)

    @property
    def met(self) -> bool:
        """Whether everybody that we dial has said hello."""
        there = [link.plug for link, peer in self.peers.items() if peer.node]
        return all(there.count(plug) >= len(nodes) for plug, nodes in self.dialled.items())

    # Inside

    def _one(self, link: Link, peer: Peer, message: Message, now: float) -> None:
        try:
            if peer.node and self.taken(link, message, now):
                return
            typed = relay.decode(message, self.record)
            if message.command > packet.HEARTBEAT and peer.node and link.state is not None:
                self.relayed(link, typed, now)
            elif isinstance(typed, relay.Hello):
                self._greeted(link, peer, typed, now)
            elif isinstance(typed, relay.Heartbeat):
                peer.load = typed.load
                if not peer.dialled:  # who dialled asks, the other answers
                    link.send(self.heartbeat())
            elif not peer.node:
                raise Malformed("say hello first")
        except Refused as error:
            if message.command not in (packet.ACK, packet.NAK):
                link.send(relay.Nak(_id_of(message), f"{error.code} {error}").encode())

    def _greeted(self, link: Link, peer: Peer, hello: relay.Hello, now: float) -> None:
        known = [compare_digest(hello.token, token) for token in self.tokens]
        if known and not any(known):
            link.send(relay.Nak(b"", "denied wrong token").encode())
            self.hang_up(link, "wrong token", now)
            return
        if not hello.role and self.callers:
            hello = replace(hello, role=self.callers)
        first = not peer.node
        if not first and hello.node != peer.node:  # what we know by its id would outlast its link
            raise Malformed("a node keeps its id")
        if first:
            self._replace(link, hello, now)
        peer.node = hello.node
        peer.role = hello.role
        if first and not peer.dialled:
            link.send(self.hello().encode())
        self.joined(link, peer, hello, now)

    def _replace(self, link: Link, hello: relay.Hello, now: float) -> None:
        """A node has one link on a plug: the newer one counts, the older is a ghost."""
        for other, peer in list(self.peers.items()):
            same = peer.node == hello.node and peer.role == hello.role
            if same and other.plug == link.plug:
                self.hang_up(other, "replaced by a newer link", now)

    def _keep_alive(self, now: float) -> None:
        heartbeat = self.heartbeat()
        for link, peer in list(self.peers.items()):
            if now - peer.heard > SILENCE:
                self.hang_up(link, "silent for too long", now)
                continue
            peer.assembler.expire(now)
            message = peer.assembler.take() + (heartbeat if peer.dialled else b"")
            if message:
                link.send(message)


def unnamed(endpoints: Sequence[str]) -> dict[bytes, str]:
    """Nodes whose ids nobody told us, for `dial`."""
    return {endpoint.encode(): endpoint for endpoint in endpoints}


def _id_of(message: Message) -> bytes:
    """The id to refuse by; empty where it has no readable one."""
    identity = message.items.get(relay.MESSAGE_ID, b"")
    return identity if len(identity) == ID_BYTES else b""
