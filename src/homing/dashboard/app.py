"""The web application: the page, its stream of frames, `/metrics`, health, and the try-it calls.

    GET  /                 the page            GET  /livez    the process answers
    GET  /api/now          one frame           GET  /readyz   its sockets are open
    GET  /api/stream       frames as SSE       GET  /metrics  Prometheus
    POST /api/request      try a service       GET  /api/subscribe  try a filter (SSE)
    POST /api/publish      try a publication

Looking is free; trying needs the token that `homing up` printed, as `Authorization: Bearer …` or,
for the SSE call where a browser cannot set headers, as `?token=`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from homing.clock import SystemClock
from homing.dashboard.sampler import Frame, Sampler
from homing.errors import Denied, HomingError
from homing.metrics import Registry
from homing.node.metrics import Exposition
from homing.node.status import StatusPage

EVERY = 1.0
"""Seconds between frames: what an eye follows and a node does not notice."""

SURVEY_EVERY = 5.0
"""Seconds between looks at disks and the index: they change slowly and cost milliseconds."""

MAX_VIEWERS = 64
"""Streams at once; each is a task and a socket, and more people share a big screen."""

MAX_TRY_BYTES = 64 << 10
"""A body typed into a form; real clients have the real protocols."""

_PAGE = files("homing.dashboard").joinpath("page")
_PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_log = logging.getLogger("homing.dashboard")
_T = TypeVar("_T", bound=msgspec.Struct)


class Fabric(Protocol):
    """What the page shows and tries: a whole fabric, or one node of it."""

    registry: Registry

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        ...

    def topology(self) -> dict[str, Any]:
        """Brokers with peers and services, ring, connectors, journal: see docs/reference/http.md."""
        ...

    def survey(self) -> None:
        """Find out anew what takes a while; called in a thread of its own."""
        ...

    async def request(self, service: str, body: bytes) -> bytes: ...

    async def publish(self, attributes: dict[str, Any], payload: bytes) -> int: ...

    def subscribe(self, filter_text: str) -> AsyncIterator[dict[str, Any]]: ...


class Dashboard:
    """Builds the application around one fabric."""

    def __init__(self, fabric: Fabric, token: str = "") -> None:
        self._fabric = fabric
        self._token = token
        self._sampler = Sampler()
        self._fresh = asyncio.Condition()
        self._viewers = 0
        self._closing = asyncio.Event()
        self._newest: Frame | None = None
        status = StatusPage(Exposition(fabric.registry), lambda: fabric.ready)
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/page/{name}", self._page),
                *(Route(path, status) for path in ("/metrics", "/livez", "/readyz")),
                Route("/api/now", self._now),
                Route("/api/stream", self._stream),
                Route("/api/request", self._guarded(self._request), methods=["POST"]),
                Route("/api/publish", self._guarded(self._publish), methods=["POST"]),
                Route("/api/subscribe", self._guarded(self._subscribe)),
            ]
        )

    async def sample_for_ever(self) -> None:
        """Make a frame every second and wake those who wait for it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._survey_for_ever())
            while True:
                try:
                    self._newest = self._frame()
                except Exception:
                    _log.exception("a frame could not be made")
                async with self._fresh:
                    self._fresh.notify_all()
                await asyncio.sleep(EVERY)

    async def _survey_for_ever(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._fabric.survey)
            except Exception:
                _log.exception("the survey failed; the page shows the one before")
            await asyncio.sleep(SURVEY_EVERY)

    def close(self) -> None:
        """End every stream, so that the server can."""
        self._closing.set()

    def _frame(self) -> Frame:
        families = self._fabric.registry.read()
        frame = self._sampler.sample(families, SystemClock.wall(), SystemClock.monotonic())
        frame["topology"] = self._fabric.topology()
        frame["ready"] = self._fabric.ready
        frame["trying"] = bool(self._token)
        return frame

    # -- looking ------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        kind = _PAGE_TYPES.get(name[name.rfind(".") :])
        source = next((one for one in _PAGE.iterdir() if one.name == name), None)
        if kind is None or source is None:  # no disk is asked for what a stranger makes up
            return PlainTextResponse("no such page\n", 404)
        return Response(source.read_bytes(), media_type=kind, headers=_SAFE_HEADERS)

    async def _now(self, request: Request) -> Response:
        if self._newest is None:
            self._newest = self._frame()
        return _json(self._newest)

    async def _stream(self, request: Request) -> Response:
        if self._viewers >= MAX_VIEWERS:
            return PlainTextResponse(f"{MAX_VIEWERS} pages are open already\n", 503)
        return self._events(self._frames())

    async def _frames(self) -> AsyncIterator[Any]:
        """The totals there are with the newest frame, then every new one."""
        history = self._sampler.history
        yield {"history": list(history), "now": self._newest}
        while True:
            async with self._fresh:
                await self._fresh.wait()
            yield {"history": [history[-1]], "now": self._newest}

    def _events(self, items: AsyncIterator[Any]) -> Response:
        """A stream of server-sent events, one an item, until either side has enough."""
        headers = {"Cache-Control": "no-store"}
        lines = self._lines(items)
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    async def _lines(self, items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
        self._viewers += 1
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while True:
                step = asyncio.ensure_future(anext(items))
                await asyncio.wait((step, closing), return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    step.cancel()
                    return
                yield b"data: " + msgspec.json.encode(step.result()) + b"\n\n"
        except StopAsyncIteration:
            return
        finally:
            closing.cancel()
            self._viewers -= 1

    # -- trying -------------------------------------------------------------------------------

    def _guarded(
        self, call: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Only with the token, and with homing's errors as answers."""

        async def guarded(request: Request) -> Response:
            try:
                self._check_token(request)
                return await call(request)
            except HomingError as error:
                status = 403 if isinstance(error, Denied) else 422
                return _json({"error": error.code, "message": str(error)}, status)

        return guarded

    def _check_token(self, request: Request) -> None:
        header = request.headers.get("authorization", "")
        told = header.removeprefix("Bearer ") or request.query_params.get("token", "")
        if not self._token or not hmac.compare_digest(told.encode(), self._token.encode()):
            raise Denied("trying needs the token that `homing up` printed")

    async def _request(self, request: Request) -> Response:
        asked = await _body(request, _Ask)
        body = await self._fabric.request(asked.service, asked.body.encode())
        return _json({"body": body.decode("utf-8", "replace")})

    async def _publish(self, request: Request) -> Response:
        told = await _body(request, _Tell)
        matched = await self._fabric.publish(told.attributes, told.payload.encode())
        return _json({"matched": matched})

    async def _subscribe(self, request: Request) -> Response:
        if self._viewers >= MAX_VIEWERS:
            return PlainTextResponse(f"{MAX_VIEWERS} streams are open already\n", 503)
        pushes = self._fabric.subscribe(request.query_params.get("filter", ""))
        # The first item says that the subscription holds, or raises what is wrong with it.
        await anext(pushes)
        return self._events(pushes)


class _Ask(msgspec.Struct):
    service: str
    body: str = ""


class _Tell(msgspec.Struct):
    attributes: dict[str, str | int | float | bool]
    payload: str = ""


async def _body(request: Request, kind: type[_T]) -> _T:
    size = int(request.headers.get("content-length") or MAX_TRY_BYTES + 1)
    if size > MAX_TRY_BYTES:
        raise HomingError(f"at most {MAX_TRY_BYTES} bytes can be tried here")
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HomingError(f"not what this call takes: {error}") from None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
