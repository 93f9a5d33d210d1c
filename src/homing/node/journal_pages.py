"""Journals over HTTP, for readers on other machines: `homing journal serve`.

    POST /v1/advance  {"offset", "most", "until"}   how far a reader may go
    POST /v1/between  {"start", "end"}              the ranges between two positions
    GET  /v1/blocks?journal=…&segment=…&start=…&end=…   a segment's header and those bytes of it

The server keeps nothing about its readers: they hold their positions (homing.journal.positions)
and ask again for whatever they lost. It is a process of its own beside the nodes, so that a
reader of a week costs no node's loop anything.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from homing.errors import CorruptSegment, Denied, HomingError, JournalError, Malformed
from homing.journal.log import segment_name
from homing.journal.positions import Offset, advance, between
from homing.journal.segment import BLOCKS_AT

MAX_REQUEST = 1 << 20
"""Bytes of a request: positions in ten thousand journals."""
MAX_PIECE = 128 << 20
"""Bytes of one answer: several times a range, and the largest block."""
MAX_OFFSET = 1 << 63
"""What a byte of a file, and an event's number, is below."""
MAX_CONNECTIONS = 256
"""Readers at once: a cluster's tasks."""

_CODES: dict[type[HomingError], int] = {Malformed: 400, Denied: 401, JournalError: 404}
_log = logging.getLogger("homing.node")
T = TypeVar("T")


class Advance(msgspec.Struct):
    """How far from an offset, with at most about so many events, no further than `until`."""

    offset: Offset
    most: int | None = None
    until: Offset | None = None

    def __post_init__(self) -> None:
        _check(self.offset, self.until or {})


class Between(msgspec.Struct):
    """What lies between two offsets."""

    start: Offset
    end: Offset

    def __post_init__(self) -> None:
        _check(self.start, self.end)


class JournalPages:
    """The journals below one directory, as an ASGI application."""

    def __init__(self, root: Path, token: str = "") -> None:
        """`token`: what readers must show; empty: nothing."""
        self._root = root
        self._token = token.encode()
        self.app = Starlette(
            routes=[
                Route("/v1/advance", self._guarded(self._advance), methods=["POST"]),
                Route("/v1/between", self._guarded(self._between), methods=["POST"]),
                Route("/v1/blocks", self._guarded(self._blocks), methods=["GET"]),
            ]
        )

    def _guarded(
        self, page: Callable[[Request], Awaitable[bytes]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                self._check(request)
                return Response(await page(request), media_type="application/octet-stream")
            except HomingError as error:
                return Response(f"{error}\n", _CODES.get(type(error), 500), media_type="text/plain")

        return answer

    def _check(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self._token and not hmac.compare_digest(shown, self._token):
            raise Denied("show the journal's token")

    async def _advance(self, request: Request) -> bytes:
        asked = await _asked(request, Advance)
        found = await asyncio.to_thread(
            advance, self._root, asked.offset, asked.most, _tell, asked.until
        )
        return msgspec.json.encode(found)

    async def _between(self, request: Request) -> bytes:
        asked = await _asked(request, Between)
        for name in asked.end:
            self._journal(name)
        found = await asyncio.to_thread(between, self._root, asked.start, asked.end, _tell)
        return msgspec.json.encode(found)

    async def _blocks(self, request: Request) -> bytes:
        asked = request.query_params
        try:
            segment, start, end = (int(asked[name]) for name in ("segment", "start", "end"))
        except (KeyError, ValueError):
            raise Malformed("give journal, segment, start and end") from None
        if not BLOCKS_AT <= start <= end < MAX_OFFSET or end - start > MAX_PIECE:
            raise Malformed(f"a piece has 0 to {MAX_PIECE} bytes behind the header")
        if not 0 <= segment < MAX_OFFSET:
            raise Malformed("a segment is called after the number of its first event")
        path = self._journal(asked.get("journal", "")) / segment_name(segment)
        return await asyncio.to_thread(_piece, path, start, end)

    def _journal(self, name: str) -> Path:
        """A journal below the root, and nothing else of this machine."""
        if "\0" in name:
            raise JournalError("a journal's path has no zero byte")
        path = (self._root / name).resolve()
        if not path.is_relative_to(self._root.resolve()) or not _is_directory(path):
            raise JournalError(f"there is no journal {name!r} here")
        return path


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # its name is too long, for example
        return False


def _check(*offsets: Offset) -> None:
    """ValueError for a position that nobody was ever told."""
    for offset in offsets:
        for position in offset.values():
            segment, at = position.get("segment", -1), position.get("at", -1)
            if not (0 <= segment < MAX_OFFSET and BLOCKS_AT <= at < MAX_OFFSET):
                raise ValueError("a position is a segment, and a byte of it behind the header")


async def _asked(request: Request, kind: type[T]) -> T:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_REQUEST:
            raise Malformed(f"a request has at most {MAX_REQUEST} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"not a request: {error}") from error


def _piece(path: Path, start: int, end: int) -> bytes:
    try:
        with path.open("rb") as file:
            header = file.read(BLOCKS_AT)
            file.seek(start)
            return header + file.read(end - start)
    except FileNotFoundError:
        raise JournalError(f"{path.name} is gone: retention removed it") from None


def _tell(damage: CorruptSegment) -> None:
    _log.warning("%s", damage)
