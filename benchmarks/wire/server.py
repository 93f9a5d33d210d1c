"""The ROUTER-echo servers: `python -m benchmarks.wire.server homing|pyzmq PORT`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable

from homing.ports import Link


class Echo:
    """A role that sends every message back where it came from."""

    def opened(self, link: Link, now: float) -> None: ...

    def receive(self, link: Link, message: bytes, now: float) -> None:
        link.send(message)

    def closed(self, link: Link, now: float) -> None: ...

    def wake(self, key: Hashable, now: float) -> None: ...

    def journaled(self, number: int, now: float) -> None: ...


def homing(port: int) -> None:
    """homing's own ZMTP on the node's loop."""
    from homing.node.host import Host
    from homing.node.run import run
    from homing.node.zmtp import ZmtpPlug

    async def live() -> int:
        host = Host()
        host.role = Echo()
        host.add(ZmtpPlug("echo", "ROUTER"))
        host.listen("echo", f"tcp://127.0.0.1:{port}")
        await asyncio.Event().wait()
        return 0

    run(live())


def pyzmq(port: int) -> None:
    """libzmq's ROUTER in the leanest loop pyzmq allows: blocking, nothing polled."""
    import zmq

    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{port}")
    receive: Callable[[], list[bytes]] = router.recv_multipart
    while True:
        router.send_multipart(receive())


if __name__ == "__main__":
    {"homing": homing, "pyzmq": pyzmq}[sys.argv[1]](int(sys.argv[2]))
