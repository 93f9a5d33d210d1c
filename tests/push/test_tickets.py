"""A subscriber that gets its tickets from an authority: asked anew for every connection."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import homing
from homing.errors import ConfigError, Denied, Malformed, RequestTimeout, Unavailable
from homing.push import tickets
from homing.push.subscriber import Subscriber
from homing.push.tickets import Ticket, ask_authority
from homing.testing import Fabric, fabric
from homing.wire.pushed import Push

CLIENT = os.urandom(12).hex()


class Answers:
    """What the authority answers, and the keys it was asked with."""

    def __init__(self, here: Fabric | None = None) -> None:
        self.asked: list[str] = []
        self.code = 200
        self.body = b""
        self._here = here

    def answer(self, client: str) -> bytes:
        if self._here is None or self.code != 200:
            return self.body
        stamp, token = self._here.credentials(client)
        ticket = Ticket("ok", client, stamp, token, self._here.subscribers)
        return json.dumps(
            {field: getattr(ticket, field) for field in ticket.__struct_fields__}
        ).encode()


@contextmanager
def authority(answers: Answers) -> Iterator[str]:
    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answers.asked.append(self.headers["X-Api-Key"])
            body = answers.answer(asked["client_id"])
            self.send_response(answers.code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_connection_has_a_ticket_of_its_own() -> None:
    async def main(here: Fabric, url: str, answers: Answers) -> None:
        async with (
            Subscriber(CLIENT, authority=url, api_key="k1", durable=True) as source,
            homing.Publisher(here.publishers) as publisher,
        ):
            await source.subscribe("n >= 0")
            assert await publisher.publish({"n": 1}, "first") == 1
            assert await body(source) == b"first"
            assert answers.asked == ["k1"]
            assert source._moorings is not None
            assert source._moorings.link is not None
            source._moorings.link.close()  # as a network does
            assert await publisher.publish({"n": 2}, "second") == 1
            assert await body(source) == b"second"
            assert answers.asked == ["k1", "k1"]

    with fabric(push=True) as here:
        answers = Answers(here)
        with authority(answers) as url:
            asyncio.run(main(here, url, answers))


async def body(source: Subscriber) -> bytes:
    async with asyncio.timeout(20):
        got = await anext(source)
    assert isinstance(got, Push)
    return got.body


def test_a_refusal_is_told_and_a_later_permission_used() -> None:
    async def main(url: str, answers: Answers) -> None:
        async with Subscriber(CLIENT, authority=url, timeout=20) as source:
            with pytest.raises(Denied, match="the authority says no: no API key"):
                await source.subscribe("n >= 0")
            answers.code = 200
            await source.subscribe("n >= 0")

    with fabric(push=True) as here:
        answers = Answers(here)
        answers.code, answers.body = 401, b'{"reason": "no API key that is known here"}'
        with authority(answers) as url:
            asyncio.run(main(url, answers))


def test_an_authority_that_is_not_there_is_named() -> None:
    async def main(url: str) -> None:
        async with Subscriber(CLIENT, authority=url, timeout=0.3) as source:
            with pytest.raises(RequestTimeout, match="no authority at http"):
                await source.subscribe("n >= 0")

    with authority(Answers()) as url:
        pass
    asyncio.run(main(url))
    with pytest.raises(Unavailable):
        ask_authority(url, CLIENT)


@pytest.mark.parametrize(
    ("code", "answer", "error"),
    [
        (200, b"<html>", Malformed),
        (200, b'{"status": "ok"}', Malformed),
        (200, b"\xff", Malformed),
        (200, b'{"x":' + b"[" * 9_000, Malformed),
        (403, b"[" * 9_000, Denied),
        (403, b'{"reason": "\xff"}', Denied),
        (403, b"<html>go away</html>", Denied),
        (404, b"Not Found", Malformed),
        (405, b"Method Not Allowed", Malformed),
        (308, b"elsewhere", Malformed),
        (408, b"what comes before it was too slow", Unavailable),
        (429, b"what comes before it has enough", Unavailable),
        (503, b'{"reason": "no connector answers"}', Unavailable),
    ],
)
def test_what_is_no_ticket_is_a_typed_error(code: int, answer: bytes, error: type) -> None:
    answers = Answers()
    answers.code, answers.body = code, answer
    with authority(answers) as url, pytest.raises(error):
        ask_authority(url, CLIENT)


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\xff\n",
        b"x" * 70_000,
        b"HTTP/1.",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    ],
)
def test_what_breaks_off_or_is_no_http_is_tried_again(said: bytes) -> None:
    """It ended the dialling: a subscriber stayed unconnected for good, and `homing subscribe` called it a bug."""

    def serve() -> None:
        with suppress(OSError):  # until it is shut
            while True:
                link, _ = listening.accept()
                with link:
                    link.recv(1000)
                    link.sendall(said)

    async def main() -> None:
        async with Subscriber(CLIENT, authority=url, timeout=0.3) as source:
            with pytest.raises(RequestTimeout, match="no authority at http"):
                await source.subscribe("n >= 0")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(Unavailable, match="no authority at http"):
                ask_authority(url, CLIENT)
            asyncio.run(main())
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_connector_that_nobody_can_look_up_is_asked_for_anew() -> None:
    """It ended the dialling."""

    async def main(url: str) -> None:
        async with Subscriber(CLIENT, authority=url, timeout=0.5) as source:
            with pytest.raises(RequestTimeout, match=r"a\.\.b"):
                await source.subscribe("n >= 0")

    answers = Answers()
    ticket = Ticket("ok", CLIENT, 1, "t", "a..b:7005")
    answers.body = json.dumps({at: getattr(ticket, at) for at in Ticket.__struct_fields__}).encode()
    with authority(answers) as url:
        asyncio.run(main(url))
    assert len(answers.asked) > 1


@pytest.mark.parametrize("head", [b"HTTP/1.1 ", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_is_not_waited_for(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece came in time, and the whole never: a subscriber stayed unconnected for hours."""
    monkeypatch.setattr(tickets, "TIMEOUT", 0.5)

    def serve() -> None:
        link, _ = listening.accept()
        with link, suppress(OSError):  # until it is shut
            link.sendall(head)
            for _ in range(200):
                link.sendall(b"7")
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(Unavailable, match="no answer"):
                ask_authority(f"http://127.0.0.1:{listening.getsockname()[1]}", CLIENT)
        finally:
            thread.join()


def test_a_bad_url_and_two_sources_of_tokens_are_refused() -> None:
    for url in ("no url", "http://host:port", "http://two words"):
        with pytest.raises(Malformed):
            ask_authority(url, CLIENT)
    with pytest.raises(ConfigError, match="not both"):
        Subscriber(CLIENT, authority="http://localhost", token="t", timestamp=int(time.time()))
