"""What strangers send to the web servers of nodes: refused, and no error of ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from homing.dashboard.app import Dashboard
from homing.journal.log import segment_name
from homing.journal.segment import BLOCKS_AT
from homing.metrics import Registry
from homing.node.authority import Desk
from homing.node.journal_pages import JournalPages
from homing.node.web import WebServer
from homing.push.authority import Authority
from homing.push.tokens import Keyring
from homing.testing import EPOCH, RecordingPort


def test_whoever_hangs_up_inside_a_request_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(_bounded(_hang_up()))
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
    _, writer = await _connected(server)
    writer.write(b"POST /v1/token HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{")
    await writer.drain()
    writer.close()
    await ended.wait()
    await server.stop()


@pytest.mark.parametrize(
    "head", [b"", b"GET /livez HTT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"]
)
def test_who_never_ends_its_request_is_closed(head: bytes) -> None:
    async def scenario() -> None:
        server = WebServer(_take, 10, patience=0.05)
        reader, writer = await _connected(server)
        writer.write(head)
        assert await reader.read() == b""
        writer.close()
        await server.stop()

    with contextlib.suppress(ConnectionResetError):
        asyncio.run(_bounded(scenario()))


def test_who_reads_nothing_more_is_closed() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def pour(scope: Any, receive: Any, send: Any) -> None:
            gone = asyncio.ensure_future(_gone(receive))
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
            ended.set()

        server = WebServer(pour, 10, patience=0.05)
        _, writer = await _connected(server, limit=1)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await ended.wait()
        writer.close()
        await server.stop()

    asyncio.run(_bounded(scenario()))


def test_an_answer_may_take_its_time_and_its_connection_serve_again() -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await _take(scope, receive, send)
            await closed.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"late"})

        server = WebServer(answer, 10, patience=0.05)
        reader, writer = await _connected(server)
        for _ in range(2):
            closed.clear()
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            silent, other = await asyncio.open_connection(*writer.get_extra_info("peername"))
            with contextlib.suppress(ConnectionResetError):
                await silent.read()  # so long has passed as suffices to be closed
            other.close()
            closed.set()
            assert b"late" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        await server.stop()

    asyncio.run(_bounded(scenario()))


def test_a_body_that_breaks_off_is_answered_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async def late(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        server = WebServer(late, 10)
        reader, writer = await _connected(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400")
        writer.close()
        await server.stop()

    asyncio.run(_bounded(scenario()))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("whole", [False, True], ids=["begun", "whole"])
def test_a_body_that_breaks_off_behind_its_answer_is_no_error(
    caplog: pytest.LogCaptureFixture, whole: bool
) -> None:
    """A refusal that could not be sent any more was a traceback in the log, for whoever asked for it."""

    async def scenario() -> None:
        async def early(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"early", "more_body": not whole})
            await _gone(receive)

        server = WebServer(early, 10)
        reader, writer = await _connected(server)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.readuntil(b"early")
        writer.write(b"zz\r\n")
        assert b"HTTP/1.1" not in await reader.read(), "it has its answer"
        writer.close()
        await server.stop()

    asyncio.run(_bounded(scenario()))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def _bounded(scenario: Coroutine[Any, Any, None]) -> None:
    """One that hangs is told, and does not hang the tests."""
    async with asyncio.timeout(20):
        await scenario


async def _take(scope: Any, receive: Any, send: Any) -> None:
    """Wait for the whole of a request."""
    while (await receive()).get("more_body"):
        pass


async def _gone(receive: Any) -> None:
    """Wait until the peer is."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _connected(
    server: WebServer, limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.start("127.0.0.1:0").removeprefix("tcp://").rpartition(":")
    return await asyncio.open_connection(host, int(port), limit=limit)


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
        ("POST", "/v1/advance", b'{"offset":{"j":{}}}'),
        ("POST", "/v1/advance", b'{"offset":{"j":{"segment":1,"at":-1}}}'),
        ("POST", "/v1/between", b'{"start":{},"end":{"j":{"segment":1}}}'),
        (
            "POST",
            "/v1/between",
            b'{"start":{},"end":{"%b":{"segment":1,"at":9000}}}' % (b"j" * 300),
        ),
        ("GET", f"/v1/blocks?journal=a%00b&segment=1&start={BLOCKS_AT}&end={BLOCKS_AT}", b""),
        ("GET", f"/v1/blocks?journal={'j' * 300}&segment=1&start={BLOCKS_AT}&end={BLOCKS_AT}", b""),
        ("GET", f"/v1/blocks?journal=j&segment={'9' * 300}&start={BLOCKS_AT}&end={BLOCKS_AT}", b""),
        ("GET", f"/v1/blocks?journal=j&segment=1&start={10**19}&end={10**19}", b""),
    ],
)
def test_what_no_reader_of_journals_asks_is_refused(
    tmp_path: Path, method: str, path: str, body: bytes
) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / segment_name(1)).touch()
    assert asyncio.run(_status(JournalPages(tmp_path).app, method, path, body)) in (400, 404)


@pytest.mark.parametrize("name", ["index.html", "a" * 300 + ".js", "..", "a\0.js", "\ud800.js"])
def test_a_page_is_there_or_is_not(name: str) -> None:
    """A name that is too long for a file was an error of ours, for whoever asked for it."""

    async def scenario() -> int:
        return await _status(Dashboard(_Nothing()).app, "GET", f"/page/{name}")

    assert asyncio.run(scenario()) == (200 if name == "index.html" else 404)


class _Nothing:
    """A fabric that is not looked at."""

    registry = Registry()
    ready = True

    def topology(self) -> dict[str, Any]:
        return {}

    def survey(self) -> None: ...

    async def request(self, service: str, body: bytes) -> bytes:
        return body

    async def publish(self, attributes: dict[str, Any], payload: bytes) -> int:
        return 0

    async def subscribe(self, filter_text: str) -> AsyncIterator[dict[str, Any]]:
        yield {}
