"""What a role sees of the world: links to write to, a port to ask, and nothing else.

A *role* (broker, matcher, connector…) is a plain class of decisions. It never touches a
socket, a clock or a disk. Whoever runs it (the node's shell, the simulator, a test) calls it:

    opened(link, now)             a peer is there and has finished its handshake
    receive(link, message, now)   one whole message from it
    receive_all(link, messages, now)  every message of a chunk, where a role has such a method
    closed(link, now)             the peer is gone; the link will not be used again
    wake(key, now)                a moment asked for with Port.later has come
    journaled(number, now)        every event up to this number is as durable as configured

and it answers by calling `link.send`, `link.close` and the methods of its Port. On a ZMTP
link a message is the wire image of one whole ZeroMQ message (all frames with their headers,
see homing.wire.zmtp); on a push link it is one packet; on a subscriber's link one command.

A role that knows what nearly all messages of a link are may set `link.skim`: a function that takes
as many whole messages as it knows from the beginning of a chunk, and says where it stopped. What
follows is given to `receive` and `receive_all`; a shell that has no chunks never calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, Protocol

try:
    from mypy_extensions import mypyc_attr as mypyc_attr
except ImportError:  # it comes with the compiler, and tells only the compiler something

    def mypyc_attr(**_: bool) -> Any:  # type: ignore[misc]
        """Leaves a class as it is."""
        return lambda kind: kind


@mypyc_attr(allow_interpreted_subclasses=True)  # tests and the simulator have links of their own
class Link(ABC):
    """One ordered stream of messages to a peer. Shells subclass it; roles only use it.

    `plug` names the socket or listener it belongs to (`localfe`, `dispatchers`, …), `peer` is
    what the handshake told (ZMTP routing id, node id, …), `user` the authenticated name or
    key (empty: none), `state` is the role's own place to hang what it knows of this peer.
    """

    __slots__ = ("peer", "plug", "skim", "state", "user")

    def __init__(self, plug: str, peer: bytes = b"", user: str = "") -> None:
        self.plug = plug
        self.peer = peer
        self.user = user
        self.state: Any = None
        self.skim: Callable[[bytes, float], int] | None = None

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Queue one message; it leaves, in order, at the end of this loop turn."""

    def send_with_others(self, message: bytes) -> None:
        """Queue one message that may wait for a moment, so that others leave with it."""
        self.send(message)

    def send_soon(self, message: bytes) -> None:
        """Queue one message that may wait while others come at once: its receiver is busy."""
        self.send(message)

    @abstractmethod
    def close(self, reason: str = "") -> None:
        """Send what is queued, then close; `closed` is not called for one's own close."""

    @property
    @abstractmethod
    def backlog(self) -> int:
        """Bytes queued and not yet taken by the peer: what back-pressure is decided on."""


class Port(Protocol):
    """What a role may ask of the process it runs in."""

    def connect(self, plug: str, endpoint: str) -> None:
        """Keep a link to `endpoint`, with back-off, until told otherwise; ends in `opened`."""
        ...

    def disconnect(self, plug: str, endpoint: str) -> None:
        """Stop keeping it; an open link is closed."""
        ...

    def later(self, deadline: float, key: Hashable) -> None:
        """Call `wake(key, now)` at or soon after `deadline`; a second call moves it."""
        ...

    def cancel(self, key: Hashable) -> None:
        """Forget a `later`; unknown keys are ignored."""
        ...

    def journal(self, event: object) -> int:
        """Append one of homing.journal's events; its number (of a RequestRun: its last event's) comes back in `journaled`.

        Raises DiskFull while nothing can be written: the role refuses the work instead.
        """
        ...


class Role(Protocol):
    """The decisions of one node; see the module's docstring."""

    def opened(self, link: Link, now: float) -> None: ...

    def receive(self, link: Link, message: bytes, now: float) -> None: ...

    def closed(self, link: Link, now: float) -> None: ...

    def wake(self, key: Hashable, now: float) -> None: ...

    def journaled(self, number: int, now: float) -> None: ...
