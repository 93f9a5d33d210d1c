"""Keeps one outgoing link: dials, waits for its end, dials again after a pause that grows."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from homing.backoff import Backoff
from homing.endpoint import Endpoint, why_unreachable
from homing.errors import Unavailable
from homing.node.link import by_shape

if TYPE_CHECKING:
    from homing.node.host import Host
    from homing.node.link import StreamLink
    from homing.node.plug import Plug

# Seconds for the network to answer; a peer that is there does in far less.
CONNECT_TIMEOUT = 5.0
# A link must live this long before the next loss starts from the shortest pause again, or a
# peer that accepts and hangs up would be dialled twenty times a second for ever.
SETTLED = 5.0

_log = logging.getLogger("homing.node")


class Dial:
    """An endpoint that is to be connected, until `stop`."""

    def __init__(self, host: Host, plug: Plug, endpoint: Endpoint, backoff: Backoff) -> None:
        self.endpoint = endpoint
        self.failures = 0  # tries since it was last connected
        self._host = host
        self._plug = plug
        self._backoff = backoff
        self._link: StreamLink | None = None
        self._over = asyncio.Event()
        self._task = host.loop.create_task(self._keep())

    def stop(self) -> None:
        """No more; an open link is closed after what is queued on it."""
        self._task.cancel()
        if self._link is not None:
            self._link.close("no longer wanted")

    def lost(self, link: StreamLink) -> None:
        """The link is over."""
        if link.since and self._host.now() - link.since >= SETTLED:
            self._backoff.reset()
        self._link = None
        self._over.set()

    async def _keep(self) -> None:
        while True:
            try:
                await self._connect()
            except (OSError, Unavailable) as error:
                self._complain(error)
            else:
                self.failures = 0
                await self._over.wait()
            await asyncio.sleep(self._backoff.pause())

    async def _connect(self) -> None:
        self._over.clear()
        link = self._plug.link(self._host, self)
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await connect(self._host.loop, link, self.endpoint, self._plug)
        self._link = link

    def _complain(self, error: Exception) -> None:
        """Once: who watches knows from the metrics that it is still so."""
        self.failures += 1
        why = why_unreachable(error)
        level = logging.WARNING if self.failures == 1 else logging.DEBUG
        _log.log(level, "%s: %s does not answer: %s", self._plug.name, self.endpoint, why)


async def connect(
    loop: asyncio.AbstractEventLoop, link: StreamLink, endpoint: Endpoint, plug: Plug
) -> None:
    """Connect a link to an endpoint; OSError if nobody answers."""
    options: dict[str, Any] = {}
    if plug.tls is not None:
        options = {"ssl": plug.tls, "server_hostname": endpoint.host}
    make = by_shape(link)
    if endpoint.path:
        await loop.create_unix_connection(make, endpoint.path, **options)
    else:
        await loop.create_connection(make, endpoint.host or "127.0.0.1", endpoint.port, **options)
