"""The servers compared. `python -m benchmarks.loop.server LOOP PORT`.

The patterns are as small as they can be (fixed two-byte header, no liveness, no limits), so
that what differs between two runs is the loop alone.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections import deque
from collections.abc import Hashable
from typing import Any, cast

from homing.node.host import Host
from homing.node.limits import raise_file_limit
from homing.node.plug import Bounds, StreamPlug
from homing.node.run import run
from homing.ports import Link

CHUNK = 256 * 1024
BACKLOG = 4096


class Peer:
    """One connection; `out` is what leaves at the end of the turn."""

    __slots__ = ("carry", "kind", "out", "sink")

    def __init__(self, sink: Any) -> None:
        self.kind = 0
        self.carry = b""
        self.out: list[bytes] = []
        self.sink = sink


class Pattern:
    """Broker and fan-out in one: the peer's first message says which it is."""

    def __init__(self) -> None:
        self.clients: dict[bytes, Peer] = {}
        self.idle: deque[Peer] = deque()
        self.waiting: deque[bytes] = deque()
        self.subscribers: list[Peer] = []
        self.dirty: list[Peer] = []

    def receive(self, peer: Peer, data: bytes) -> None:
        """Every whole message of a chunk."""
        if peer.carry:
            data = peer.carry + data
            peer.carry = b""
        at = 0
        size = len(data)
        while at + 2 <= size:
            end = at + 2 + data[at + 1]
            if end > size:
                break
            self.message(peer, data[at], data[at:end])
            at = end
        if at < size:
            peer.carry = data[at:]

    def message(self, peer: Peer, kind: int, message: bytes) -> None:
        """Route one message."""
        if kind == 81:  # Q: a request, or a publication
            if peer.kind == 80:
                for subscriber in self.subscribers:
                    self.send(subscriber, message)
            elif self.idle:
                self.send(self.idle.popleft(), message)
            else:
                self.waiting.append(message)
        elif kind == 82:  # R: a report; its worker is idle again
            if self.waiting:
                self.send(peer, self.waiting.popleft())
            else:
                self.idle.append(peer)
            self.send(self.clients[message[2:6]], message)
        else:
            self.introduce(peer, kind, message)

    def introduce(self, peer: Peer, kind: int, message: bytes) -> None:
        """W worker, C client, S subscriber, P publisher."""
        peer.kind = kind
        if kind == 87:
            self.idle.append(peer)
        elif kind == 67:
            self.clients[message[2:6]] = peer
        elif kind == 83:
            self.subscribers.append(peer)
            self.send(peer, message)

    def send(self, peer: Peer, message: bytes) -> None:
        """Queue; the loop flushes every dirty peer once a turn."""
        if not peer.out:
            self.dirty.append(peer)
        peer.out.append(message)

    def flush(self) -> None:
        """One write a dirty peer."""
        dirty = self.dirty
        self.dirty = []
        for peer in dirty:
            out = peer.out
            peer.sink(out[0] if len(out) == 1 else b"".join(out))
            peer.out = []


def epoll_server(listener: socket.socket) -> None:
    """A plain level-triggered epoll loop; sockets are read once a turn."""
    pattern = Pattern()
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    receivers: dict[int, Any] = {}
    peers: dict[int, Peer] = {}
    while True:
        for fd, _event in poll.poll():
            if fd == listener.fileno():
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                receivers[sock.fileno()] = sock.recv
                peers[sock.fileno()] = Peer(sock.sendall)
                poll.register(sock, select.EPOLLIN)
            else:
                data = receivers[fd](CHUNK)
                if data:
                    pattern.receive(peers[fd], data)
                else:
                    poll.unregister(fd)
        if pattern.dirty:
            pattern.flush()


class Streaming(asyncio.Protocol):
    """data_received; what is sent in a turn is joined and written by a call_soon at its end."""

    pattern = Pattern()
    flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = Peer(self.transport.write)

    def data_received(self, data: bytes) -> None:
        self.pattern.receive(self.peer, data)
        if self.pattern.dirty and not Streaming.flushing:
            Streaming.flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        Streaming.flushing = False
        self.pattern.flush()


class DirectPattern(Pattern):
    """Writes at once; uvloop tries the system call for the first of them."""

    def send(self, peer: Peer, message: bytes) -> None:
        peer.sink(message)


class Direct(Streaming):
    """data_received, each message written straight to the transport."""

    pattern = DirectPattern()

    def data_received(self, data: bytes) -> None:
        self.pattern.receive(self.peer, data)


class Chunked(Streaming):
    """data_received; a chunk's sends are joined and written when the chunk is done."""

    pattern = Pattern()

    def data_received(self, data: bytes) -> None:
        self.pattern.receive(self.peer, data)
        if self.pattern.dirty:
            self.pattern.flush()


class Buffered(asyncio.BufferedProtocol):
    """buffer_updated: reads land in one shared buffer; the rest as Direct."""

    pattern = DirectPattern()
    buffer = memoryview(bytearray(CHUNK))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peer = Peer(self.transport.write)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pattern.receive(self.peer, bytes(self.buffer[:nbytes]))


class Framed:
    """The patterns' messages as a codec for homing's node."""

    def __init__(self) -> None:
        self._carry = b""

    def receive(self, data: bytes) -> list[bytes]:
        """Every whole message."""
        data = self._carry + data
        messages: list[bytes] = []
        at = 0
        while at + 2 <= len(data) and (end := at + 2 + data[at + 1]) <= len(data):
            messages.append(data[at:end])
            at = end
        self._carry = data[at:]
        return messages


class PatternRole:
    """The patterns as a role: what the node's own links, limits and timers add to a loop."""

    def __init__(self) -> None:
        self.pattern = DirectPattern()

    def opened(self, link: Link, now: float) -> None:
        link.state = Peer(link.send)

    def receive(self, link: Link, message: bytes, now: float) -> None:
        self.pattern.message(link.state, message[0], message)

    def closed(self, link: Link, now: float) -> None: ...

    def wake(self, key: Hashable, now: float) -> None: ...

    def journaled(self, number: int, now: float) -> None: ...


async def serve_node(port: int) -> None:
    """homing's host, until a signal ends the process."""
    host = Host()
    host.role = PatternRole()
    host.add(StreamPlug("all", Framed, bounds=Bounds(silence=3600)))
    host.listen("all", f"tcp://*:{port}", backlog=BACKLOG)
    await asyncio.get_running_loop().create_future()


LOOPS: dict[str, Any] = {
    "uvloop-direct": Direct,
    "uvloop-chunk": Chunked,
    "uvloop-turn": Streaming,
    "uvloop-buffered": Buffered,
    "asyncio-turn": Streaming,
}


async def serve(listener: socket.socket, protocol: type[asyncio.BaseProtocol]) -> None:
    """Until a signal ends the process."""
    server = await asyncio.get_running_loop().create_server(
        protocol, sock=listener, backlog=BACKLOG
    )
    await server.serve_forever()


def main(name: str, port: int) -> None:
    """Listen and serve."""
    raise_file_limit()
    if name == "homing-node":
        run(serve_node(port))
        return
    listener = socket.create_server(("0.0.0.0", port), backlog=BACKLOG)
    if name == "epoll":
        epoll_server(listener)
        return
    listener.setblocking(False)
    if name.startswith("uvloop"):
        import uvloop

        uvloop.run(serve(listener, LOOPS[name]))
    else:
        asyncio.run(serve(listener, LOOPS[name]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
