"""What strangers send to the web servers of nodes: refused, and no error of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from homing.journal.segment import BLOCKS_AT
from homing.node.authority import Desk
from homing.node.journal_pages import JournalPages
from homing.node.web import WebServer
from homing.push.authority import Authority
from homing.push.tokens import Keyring
from homing.testing import EPOCH, RecordingPort


def test_whoever_hangs_up_inside_a_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_hang_up())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _hang_up() -> None:
    role = Authority(RecordingPort(), b"auth0001", lambda: EPOCH, Keyring([b"secret"]), {})
    ended = asyncio.Event()
    desk = Desk(role, []).app

    async def app(*args: Any) -> None:
        try:
            await desk(*args)
        finally:
            ended.set()

    server = WebServer(app, 10)
    host, _, port = server.start("127.0.0.1:0").removeprefix("tcp://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/token HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{")
    await writer.drain()
    writer.close()
    await asyncio.wait_for(ended.wait(), 10)
    await server.stop()


async def _status(app: Any, method: str, path: str, body: bytes = b"") -> int:
    """What one request to an ASGI application is answered."""
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": target,
        "query_string": query.encode(),
        "headers": [],
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/advance", b'{"x":' + b"[" * 50_000),
        ("POST", "/v1/advance", b'{"offset":{"\xff":{}}}'),
        ("GET", f"/v1/blocks?journal=a%00b&segment=1&start={BLOCKS_AT}&end={BLOCKS_AT}", b""),
    ],
)
def test_what_no_reader_of_journals_asks_is_refused(
    tmp_path: Path, method: str, path: str, body: bytes
) -> None:
    assert asyncio.run(_status(JournalPages(tmp_path).app, method, path, body)) in (400, 404)
