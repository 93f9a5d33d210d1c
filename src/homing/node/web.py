"""A web server on the loop that a node runs on, which also owns the signals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect

from homing.endpoint import parse_endpoint
from homing.node.listener import bind

KEEP_ALIVE_SECONDS = 75  # longer than the usual scrape interval

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


class WebServer:
    """Serves an ASGI application from `start` to `stop`."""

    def __init__(self, application: Application, connections: int) -> None:
        """`connections`: at once; further ones are answered with 503."""
        self._connections = connections
        self._server = _Server(
            uvicorn.Config(
                _unless_gone(application),
                lifespan="off",
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
