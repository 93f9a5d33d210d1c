"""ZeroMQ sockets as plugs: who gets in under which routing id, heartbeats, PUB and SUB.

A ROUTER knows every peer by a routing id: the identity it told, or five bytes made up here, a
zero byte first, which no peer may claim. When two peers tell the same identity the newest is
turned away, as libzmq does; with `handover` it takes the place of the older one instead.

A link that has been silent is sent a PING; one that stays silent is given up. libzmq
answers PINGs by itself, so this finds dead machines behind any peer of this century.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from homing.errors import HandshakeRefused
from homing.node.link import StreamLink
from homing.node.plug import Bounds, Codec, Plug
from homing.ports import Link, Role
from homing.wire.frames import head
from homing.wire.mechanisms import Mechanism
from homing.wire.reader import ImageReader
from homing.wire.zmtp import LIMITS, NULL, Connection, Limits

if TYPE_CHECKING:
    from homing.node.dial import Dial
    from homing.node.host import Host

_log = logging.getLogger("homing.node")

# Seconds of silence before a PING, a third of the patience: two may be lost on the way.
PINGS_PER_SILENCE = 3
BOUNDS = Bounds(silence=45.0)
# Topics of one subscriber: names, not documents; one who asks for more is turned away.
MAX_TOPICS = 4096


class ZmtpPlug(Plug):
    """One ZeroMQ socket, bound or connecting, with all its connections."""

    def __init__(
        self,
        name: str,
        socket_type: str,
        *,
        identity: bytes = b"",
        mechanism: Mechanism = NULL,
        topics: tuple[bytes, ...] = (),
        handover: bool = False,
        limits: Limits = LIMITS,
        bounds: Bounds = BOUNDS,
    ) -> None:
        """`topics`: what a SUB asks every publisher for (b"" is everything)."""
        super().__init__(name, bounds=bounds)
        self.routes: dict[bytes, ZmtpLink] = {}
        self._socket_type = socket_type
        self._identity = identity
        self.mechanism = mechanism  # of connections from now on
        self._topics = topics
        self._handover = handover
        self._limits = limits

    def link(self, host: Host, dial: Dial | None = None) -> StreamLink:
        kind = PubLink if self._socket_type == "PUB" else ZmtpLink
        return kind(host, self, dial)

    def codec(self) -> Codec:
        return Connection(
            self._socket_type,
            identity=self._identity,
            mechanism=self.mechanism,
            limits=self._limits,
        )

    def admit(self, link: StreamLink) -> None:
        assert isinstance(link, ZmtpLink)
        connection = link.connection
        peer = connection.peer_identity or link.host.routing_id()
        older = self.routes.get(peer)
        if older is not None and self._socket_type == "ROUTER":
            if not self._handover:
                raise HandshakeRefused(f"{self.name} has a peer named {peer!r} already")
            # One that restarts behind a broken line does so once; two of one name, again and again.
            told = {"plug": self.name, "peer": peer.decode("utf-8", "backslashreplace")}
            _log.warning("a newer connection takes over a peer's name", extra=told)
            older.lose("replaced by a newer connection with its name")
        self.routes[peer] = link
        link.peer = peer
        link.seal()

    def greet(self, link: StreamLink) -> None:
        assert isinstance(link, ZmtpLink)
        for topic in self._topics:
            link.command(link.connection.subscribe(topic))

    def deliver_to(self, role: Role) -> None:
        if self._socket_type == "PUB":
            self.deliver = _note_topic
        else:
            super().deliver_to(role)

    def forget(self, link: StreamLink) -> None:
        super().forget(link)
        if self.routes.get(link.peer) is link:
            del self.routes[link.peer]


class ZmtpLink(StreamLink):
    """A link that can seal what it sends, and ask a silent peer whether it lives."""

    __slots__ = ("_reader",)

    def __init__(self, host: Host, plug: Plug, dial: Dial | None) -> None:
        super().__init__(host, plug, dial)
        self._reader: ImageReader | None = None  # where messages stand in the bytes as they come

    @property
    def connection(self) -> Connection:
        """The codec, which on these links is a ZMTP connection."""
        assert isinstance(self.codec, Connection)
        return self.codec

    @property
    def host(self) -> Host:
        """The host this link belongs to."""
        return self._host

    def command(self, data: bytes) -> None:
        """Write a ZMTP command now, before what waits for the end of the turn."""
        if not self._transport.is_closing():
            self._write(data)

    def seal(self) -> None:
        """Encrypt what is sent from now on, where the handshake agreed on a cipher."""
        if self.connection.cipher is not None:
            self._encode = self.connection.encode
        else:
            self._reader = self.connection.reader

    def skimmed(self, data: bytes, now: float) -> int:
        skim, reader = self.skim, self._reader
        if skim is None or reader is None or len(data) > reader.skimmable:
            return 0
        at = skim(data, now)
        reader.offset += at
        return at

    def limit(self) -> float:
        silence, ttl = self._plug.bounds.silence, self.connection.peer_ttl
        return self.heard + (min(silence, ttl) if ttl else silence)

    def look_again(self, now: float) -> float:
        silence = self._plug.bounds.silence
        step = silence / PINGS_PER_SILENCE
        # A 3.0 peer need not know PING.
        if now >= self.heard + step and self.connection.minor:
            self.command(self.connection.ping(silence))
        return min(self.limit(), now + step)


class PubLink(ZmtpLink):
    """A subscriber's link: lets through what begins with one of its topics."""

    __slots__ = ("topics",)

    def __init__(self, host: Host, plug: Plug, dial: Dial | None) -> None:
        super().__init__(host, plug, dial)
        self.topics: dict[bytes, None] = {}

    def send(self, message: bytes) -> None:
        """Queue it if the subscriber asked for it."""
        (first,), _ = head(message, 1)
        for topic in self.topics:
            if first.startswith(topic):
                super().send(message)
                return


def _note_topic(link: Link, message: bytes, now: float) -> None:
    """A subscriber asks for a topic or gives it up; libzmq asks each time and gives up once."""
    assert isinstance(link, PubLink)
    (body,), _ = head(message, 1)
    topic = body[1:]
    if body[:1] == b"\x01":
        link.topics[topic] = None
        if len(link.topics) > MAX_TOPICS:
            raise HandshakeRefused(f"a subscriber with more than {MAX_TOPICS} topics")
    elif body[:1] == b"\x00":
        link.topics.pop(topic, None)
