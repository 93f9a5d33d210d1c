"""A web server on the loop that a node runs on, which also owns the signals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from homing.endpoint import parse_endpoint
from homing.node.listener import bind

KEEP_ALIVE_SECONDS = 75  # longer than the usual scrape interval

# Silent connections would take all there may be, and nobody could see the page or get a token. A request
# is a few packets; a reader that has its mind on something else is back by then.
PATIENCE = 15.0

# Where h11 lets a refusal begin. Of a body that goes on behind its answer, or breaks while that is sent, there is nothing more to say.
_UNANSWERED = (h11.IDLE, h11.SEND_RESPONSE)

Application = Callable[..., Awaitable[Any]]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _unless_gone(application: Application) -> Application:
    """The same application; whoever hangs up inside its own request is no error of ours."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        with contextlib.suppress(ClientDisconnect):
            await application(scope, receive, send)

    return serve


class _Connection(H11Protocol):
    """One that does not outlive its peer's interest: uvicorn waits for ever for the rest of a request."""

    patience = PATIENCE
    _look: asyncio.TimerHandle | None = None
    _before: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look = self.loop.call_later(self.patience, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._look is not None:
            self._look.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse it, and whatever is at work on it must not answer too; what has its answer already is cut off."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in _UNANSWERED:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _look_again(self) -> None:
        """Close it if it owes us the same as the last time."""
        owed = self._owed()
        if owed is not None and owed == self._before:
            self.transport.abort()
            return
        self._before = owed
        self._look = self.loop.call_later(self.patience, self._look_again)

    def _owed(self) -> object:
        """What we wait for: a request, the rest of one, or that an answer is read; None: nothing."""
        unread = self.transport.get_write_buffer_size()
        cycle: RequestResponseCycle | None = self.cycle
        if unread:
            return cycle, unread
        if cycle is None or cycle.response_complete:
            return None if self.timeout_keep_alive_task is not None else (cycle, 0)
        return (cycle, -1) if cycle.more_body else None


class WebServer:
    """Serves an ASGI application from `start` to `stop`."""

    def __init__(
        self, application: Application, connections: int, patience: float = PATIENCE
    ) -> None:
        """`connections`: at once; further ones are answered with 503.

        `patience`: seconds, twice which a peer has for a request, and to go on reading its answer.
        """
        self._connections = connections
        self._server = _Server(
            uvicorn.Config(
                _unless_gone(application),
                lifespan="off",
                http=type("_Patient", (_Connection,), {"patience": patience}),
                log_config=None,
                log_level="warning",
                access_log=False,
                limit_concurrency=connections,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
            )
        )
        self._task: asyncio.Task[None] | None = None

    def start(self, endpoint: str) -> str:
        """Listen; the endpoint comes back with its port. Unavailable says why not."""
        where = parse_endpoint(endpoint)
        sock = bind(where, backlog=self._connections)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]), name="web")
        return str(where if where.path else where._replace(port=sock.getsockname()[1]))

    async def stop(self) -> None:
        """Answer what is under way and close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task
