"""Accepts connections for one plug, a few a turn, so that a stampede does not stop the traffic."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from functools import partial
from typing import TYPE_CHECKING, Any

from homing.endpoint import Endpoint
from homing.errors import Unavailable
from homing.node.limits import keep_spare
from homing.node.link import by_shape

if TYPE_CHECKING:
    from homing.node.host import Host
    from homing.node.link import StreamLink
    from homing.node.plug import Plug

# Each costs some 100 µs to set up: five milliseconds of a turn at most.
ACCEPTS_A_TURN = 50
# The kernel keeps this many while a turn of the loop is long.
BACKLOG = 4096
# Seconds without accepting once the process has no file to spare; links that end give some back.
PAUSE = 0.1

_HINTS = {
    errno.EADDRINUSE: "another process has it: `homing doctor` names the ports that are taken, "
    "--port-offset moves all of ours",
    errno.EADDRNOTAVAIL: "this machine has no such address: take 127.0.0.1, 0.0.0.0 or one of its own",
    errno.EACCES: "ports below 1024 and foreign directories are for root: choose another",
    errno.ENOENT: "the directory of that socket is not there: make it first",
}
_IN_THE_WAY = "another process listens there, or a file that is no socket has its name"
_log = logging.getLogger("homing.node")


class Listener:
    """A listening socket."""

    def __init__(self, host: Host, plug: Plug, sock: socket.socket, endpoint: Endpoint) -> None:
        self.endpoint = endpoint  # with the port that a port of 0 became
        self.accepted = 0
        self.refused = 0
        self._host = host
        self._plug = plug
        self._socket = sock
        self._coming: dict[asyncio.Task[None], StreamLink] = {}
        self._open = False
        self._file = _file_at(endpoint.path)

    def start(self) -> None:
        """Begin to accept."""
        self._open = True
        self._host.loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening; links that are there stay, connections still on their way do not."""
        if not self._open:
            return
        self._open = False
        self._host.loop.remove_reader(self._socket.fileno())
        # While it listens nobody takes its file for stale; who removed it may have given its name to another's.
        if self._file is not None and self._file == _file_at(self.endpoint.path):
            with contextlib.suppress(OSError):
                os.unlink(self.endpoint.path)
        self._socket.close()
        for task in self._coming:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                keep_spare(self._socket.fileno(), self._plug.bounds.inside)
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._suffer(error)
                return
            if self._full():
                self.refused += 1
                sock.close()
                continue
            self.accepted += 1
            link = self._plug.link(self._host)
            task = self._host.loop.create_task(self._welcome(sock, link, address))
            self._coming[task] = link
            task.add_done_callback(partial(self._arrived, sock))

    def _arrived(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        del self._coming[task]
        if task.cancelled():  # perhaps before it began
            sock.close()

    def _full(self) -> bool:
        links, limit = self._plug.links, self._plug.bounds.connections
        if len(links) + len(self._coming) < limit:
            return False
        # Close to it, those that are both coming and there must not count twice.
        return len(links) + sum(link not in links for link in self._coming.values()) >= limit

    async def _welcome(self, sock: socket.socket, link: StreamLink, address: Any) -> None:
        """Give the connection its link; a TLS handshake that fails ends here."""
        sock.setblocking(False)
        plug = self._plug
        options: dict[str, Any] = {}
        if plug.tls is not None:
            options = {"ssl": plug.tls, "ssl_handshake_timeout": plug.bounds.handshake}
        try:
            await self._host.loop.connect_accepted_socket(by_shape(link), sock, **options)
        except OSError as error:  # ssl.SSLError is one
            self._tell(address, error)
            sock.close()

    def _tell(self, address: Any, error: OSError) -> None:
        """As a warning, for these are thinned out: anybody may knock as often as it likes."""
        what = "no connection" if self._plug.tls is None else "a TLS handshake failed"
        known = isinstance(address, tuple)  # a unix socket's peer has no name
        peer = str(Endpoint(address[0], address[1])) if known else ""
        # Whoever hangs up in the middle of it leaves an error without words.
        told = {"plug": self._plug.name, "peer": peer, "reason": str(error) or "it hung up"}
        _log.warning(what, extra=told)

    def _suffer(self, error: OSError) -> None:
        """No files or memory left, or worse: rest, or the loop would turn in vain."""
        _log.error("%s accepts nothing for now: %s", self._plug.name, error)
        self._host.loop.remove_reader(self._socket.fileno())
        self._host.loop.call_later(PAUSE, self._recover)

    def _recover(self) -> None:
        if self._open:
            self._host.loop.add_reader(self._socket.fileno(), self._accept)


def bind(endpoint: Endpoint, *, reuse_port: bool = False, backlog: int = BACKLOG) -> socket.socket:
    """A socket that listens there; Unavailable says why not.

    `reuse_port`: several processes share one port and the kernel spreads connections.
    """
    if endpoint.path:
        return _bind_unix(endpoint, backlog)
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((endpoint.host, endpoint.port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise _unable(endpoint, error) from error
    return sock


def _bind_unix(endpoint: Endpoint, backlog: int) -> socket.socket:
    _remove_stale(endpoint.path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.bind(endpoint.path)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise _unable(endpoint, error) from error
    return sock


def _unable(endpoint: Endpoint, error: OSError) -> Unavailable:
    hint = _HINTS.get(error.errno or 0, "")
    if endpoint.path and error.errno == errno.EADDRINUSE:
        hint = _IN_THE_WAY
    return Unavailable(f"cannot listen on {endpoint}: {error.strerror or error}", hint=hint)


def _remove_stale(path: str) -> None:
    """A socket file that nobody listens on any more is in the way."""
    with contextlib.suppress(OSError):
        if path[0] == "\0" or not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        if knock(path) == errno.ECONNREFUSED:
            os.unlink(path)


def knock(path: str) -> int:
    """What the kernel says to a connection there: 0 or EAGAIN (it is busy) if somebody listens, or why not."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a node that stands still accepts nobody, and is there
        return probe.connect_ex(path)


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file has this name, if any."""
    if not path or path[0] == "\0":
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
