"""A broker behind real ZMTP links whose bytes the test carries, cut as it likes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

from homing.node.host import Host
from homing.node.link import StreamLink
from homing.node.zmtp import ZmtpPlug
from homing.wire.zmtp import LIMITS, Connection, Limits
from tests.service.stage import Stage


class Wire:
    """One connection to the broker: what the peer writes, and what it has been written."""

    def __init__(self, host: Host, plug: str, mine: str, peer: bytes) -> None:
        self.out: list[bytes] = []
        self.link: StreamLink = host.plugs[plug].link(host)
        self._codec = Connection(mine, identity=peer)
        self.link.connection_made(cast(asyncio.Transport, self))
        while said := self._codec.take():
            self.link.data_received(said)
            self._codec.receive(b"".join(self.out))
            self.out.clear()

    def say(self, data: bytes, cuts: list[int]) -> None:
        """Write these bytes, cut at these places."""
        places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
        for start, end in itertools.pairwise(places):
            if start < end:
                self.link.data_received(data[start:end])

    def take(self) -> list[bytes]:
        """The messages it was sent."""
        self.link.flush()
        data = b"".join(self.out)
        self.out.clear()
        return self._codec.receive(data)

    # -- what a link asks of a transport ------------------------------------------------------

    def get_extra_info(self, name: str) -> str:
        """Where it comes from."""
        return name

    def write(self, data: bytes) -> None:
        self.out.append(data)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        """Nothing is ever kept."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """The test looks at `link.over`."""

    abort = close


class Loop:
    """As much of a loop as links need: the test flushes by itself, and nothing is ever late."""

    def call_soon(self, call: Callable[..., None], *_: Any) -> None:
        """Left to `take`."""

    def call_later(self, delay: float, call: Callable[..., None], *_: Any) -> Any:
        return self

    def cancel(self) -> None:
        """As a timer's handle."""


class WiredStage(Stage):
    """A stage whose peers come over the wire."""

    def __init__(self, limits: Limits = LIMITS, **options: Any) -> None:
        super().__init__(**options)
        self.host = Host(loop=cast(asyncio.AbstractEventLoop, Loop()))
        self.host.now = lambda: self.now
        self.host.role = self.broker
        for plug in ("localfe", "localbe", "cloudfe"):
            self.host.add(ZmtpPlug(plug, "ROUTER", limits=limits))
        self.host.add(ZmtpPlug("cloudbe/n", "DEALER", identity=b"here", limits=limits))
        self.host.add(ZmtpPlug("statefe/n", "SUB", limits=limits))

    def wire(self, plug: str, peer: bytes) -> Wire:
        mine = {"cloudbe/n": "ROUTER", "statefe/n": "PUB"}.get(plug, "DEALER")
        return Wire(self.host, plug, mine, peer if mine != "PUB" else b"")
