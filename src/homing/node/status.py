"""What a node tells over HTTP: /metrics for Prometheus, /livez and /readyz for supervisors.

`/livez` answers while the loop turns, `/readyz` while the node takes new work: a draining node is
alive and not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from homing.endpoint import parse_endpoint
from homing.metrics import Registry
from homing.node.host import Host
from homing.node.instruments import watch_node, watch_role
from homing.node.listener import bind
from homing.node.metrics import Exposition

# A scraper or two and a supervisor; more than this at once is somebody's mistake.
MAX_CONNECTIONS = 64
KEEP_ALIVE_SECONDS = 75  # longer than the usual scrape interval

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class StatusPage:
    """The three pages, as an ASGI application."""

    def __init__(self, exposition: Exposition, is_ready: Callable[[], bool]) -> None:
        self._exposition = exposition
        self._is_ready = is_ready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, body, content_type = self._answer(scope)
        headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if _is_head(scope) else body})

    def _answer(self, scope: Scope) -> tuple[int, bytes, bytes]:
        if scope["method"] not in ("GET", "HEAD"):
            return 405, b"only GET is served here\n", b"text/plain"
        match scope["path"]:
            case "/metrics":
                accept = dict(scope["headers"]).get(b"accept", b"").decode("latin-1")
                page, content_type = self._exposition.render(accept)
                return 200, page, content_type.encode()
            case "/livez":
                return 200, b"alive\n", b"text/plain"
            case "/readyz" if self._is_ready():
                return 200, b"ready\n", b"text/plain"
            case "/readyz":
                return 503, b"not ready\n", b"text/plain"
            case _:
                return 404, b"here are /metrics, /livez and /readyz\n", b"text/plain"


def _is_head(scope: Scope) -> bool:
    return bool(scope["method"] == "HEAD")


class _Server(uvicorn.Server):
    """uvicorn on a loop that belongs to somebody else, who also owns the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class StatusServer:
    """Serves the pages of one node on its own loop, from `start` to `stop`."""

    def __init__(self, page: Callable[..., Awaitable[None]]) -> None:
        """`page`: a StatusPage, or any other ASGI application."""
        config = uvicorn.Config(
            page,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    def start(self, endpoint: str) -> str:
        """Listen; the endpoint comes back with its port. Unavailable says why not."""
        where = parse_endpoint(endpoint)
        sock = bind(where, backlog=MAX_CONNECTIONS)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]), name="status")
        return str(where if where.path else where._replace(port=sock.getsockname()[1]))

    async def stop(self) -> None:
        """Answer what is under way and close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def start_status(host: Host, endpoint: str) -> str:
    """Serve a node's pages until its loop ends; the endpoint comes back with its port."""
    registry = Registry()
    watch_node(registry, host)
    watch_role(registry, host.role)
    page = StatusPage(Exposition(registry), lambda: not host.draining)
    return StatusServer(page).start(endpoint)
