"""A plug: one named socket of a node, how its links speak, and what they may cost.

A role knows its links by the plug they belong to. The plug makes the codec of each
connection, decides whom it lets in and under which name, and holds the bounds.
"""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from homing.node.link import StreamLink
from homing.ports import Link, Role
from homing.wire import zmtp

if TYPE_CHECKING:
    from homing.config.settings import Node
    from homing.node.dial import Dial
    from homing.node.host import Host

MIB = 1 << 20

Deliver = Callable[[Link, bytes, float], None]
DeliverAll = Callable[[Link, list[bytes], float], None]


class Codec(Protocol):
    """One connection's bytes to messages and back; homing.wire.zmtp.Connection is one."""

    ready: bool  # the handshake is done
    peer_identity: bytes
    user: str

    def receive(self, data: bytes) -> list[bytes]:
        """Every message that these bytes complete."""
        ...

    def take(self) -> bytes:
        """What the protocol itself wants to send now."""
        ...


class Stream(Protocol):
    """A codec with no handshake and nothing to say by itself, such as a packet stream."""

    def receive(self, data: bytes) -> list[bytes]: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the links of one plug may cost; each with its reason."""

    connections: int = 100_000
    """Past it new ones are closed at once, so that those served stay so."""
    handshake: float = 10.0
    """Seconds: a connection that says nothing must not be held for long."""
    silence: float = 0.0
    """Seconds without a byte after which a link is given up; 0: the role decides."""
    high_water: int = 4 * MIB
    """Bytes the peer has not taken at which it counts as stuck."""
    low_water: int = 1 * MIB
    """And at which it does no more: well below, so that it does not flutter."""
    backlog: int = 2 * zmtp.MAX_MESSAGE
    """Bytes kept for a stuck peer before it is given up: two of the largest messages."""
    wait_for_reader: bool = True
    """Whether a stuck peer is not read from: who takes no answers may ask nothing more. Off
    between nodes that both send, where two who wait for each other would wait for ever."""
    breathe: bool = True
    """Whether a peer that floods is read one chunk a turn. Off between nodes, where what is read
    in one turn leaves in one write: libuv itself stops after 32 chunks, 8 MB."""

    inside: bool = False
    """Whether they are between a fabric's own nodes and processes: without these the others are of no use, and may have
    taken all descriptors that they may."""

    def with_settings(self, node: Node) -> Bounds:
        """These, with what the settings say of every plug."""
        return replace(
            self,
            connections=node.max_connections,
            handshake=node.handshake_timeout,
            high_water=node.high_water,
            low_water=node.low_water,
        )


BOUNDS = Bounds()


class Plug(ABC):
    """A named socket; subclasses know its protocol."""

    def __init__(
        self, name: str, *, bounds: Bounds = BOUNDS, tls: ssl.SSLContext | None = None
    ) -> None:
        self.name = name
        self.bounds = bounds
        self.tls = tls
        self.links: dict[StreamLink, None] = {}
        self.deliver: Deliver = _nobody
        self.deliver_all: DeliverAll | None = None

    def link(self, host: Host, dial: Dial | None = None) -> StreamLink:
        """A link for one new connection."""
        return StreamLink(host, self, dial)

    @abstractmethod
    def codec(self) -> Codec:
        """A codec for one new connection."""

    def admit(self, link: StreamLink) -> None:
        """Name a peer that has finished its handshake, or raise HandshakeRefused."""

    def greet(self, link: StreamLink) -> None:
        """Say what is to be said first on an open link."""

    def deliver_to(self, role: Role) -> None:
        """Set where messages go; one function for all links, which are many.

        A role may have a `receive_all`: what one chunk brought is then given to it together.
        """
        self.deliver = role.receive
        self.deliver_all = getattr(role, "receive_all", None)

    def forget(self, link: StreamLink) -> None:
        """The link is over."""
        self.links.pop(link, None)


class StreamPlug(Plug):
    """A plug whose peers just begin to talk: packets, subscribers' commands."""

    def __init__(
        self,
        name: str,
        stream: Callable[[], Stream],
        *,
        bounds: Bounds = BOUNDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(name, bounds=bounds, tls=tls)
        self._stream = stream

    def codec(self) -> Codec:
        return _Bare(self._stream())


class _Bare:
    """A Stream as a Codec."""

    __slots__ = ("receive",)

    ready = True
    peer_identity = b""
    user = ""

    def __init__(self, stream: Stream) -> None:
        self.receive = stream.receive

    def take(self) -> bytes:
        return b""


def _nobody(link: Link, message: bytes, now: float) -> None:
    raise LookupError("a host without a role")
