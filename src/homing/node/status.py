"""What a node tells over HTTP: /metrics for Prometheus, /livez and /readyz for supervisors.

`/livez` answers while the loop turns, `/readyz` while the node takes new work: a draining node is
alive and not ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from homing.metrics import Registry, Source
from homing.node.host import Host
from homing.node.instruments import watch_node, watch_role
from homing.node.metrics import Exposition
from homing.node.web import WebServer

# A scraper or two and a supervisor; more than this at once is somebody's mistake.
MAX_CONNECTIONS = 64

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


def start_status(host: Host, endpoint: str, more: Source | None = None) -> str:
    """Serve a node's pages until its loop ends; the endpoint comes back with its port.

    `more`: figures of a role that no other room knows.
    """
    registry = Registry()
    watch_node(registry, host)
    watch_role(registry, host.role)
    if more is not None:
        registry.watch(more)
    page = StatusPage(Exposition(registry), lambda: not host.draining)
    return WebServer(page, MAX_CONNECTIONS).start(endpoint)
