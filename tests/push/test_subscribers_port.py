"""The subscribers' port as it is reached: TLS, WebSockets, a page in a browser, many and bad ones."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect, sync_playwright
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

import homing
from homing import sync
from homing.errors import RequestTimeout
from homing.node.limits import raise_file_limit
from homing.testing import Fabric, fabric
from homing.testing.fabric import _TOKEN_KEY as TOKEN_KEY
from homing.wire.pushed import Push

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "browser" / "index.html"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


@contextmanager
def running(*settings: str) -> Iterator[tuple[Fabric, int]]:
    """A push plane whose subscribers come over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with fabric(f"push.subscribers=127.0.0.1:{port}", *settings, push=True) as here:
        yield here, port


def auth(here: Fabric, client: str, **more: object) -> dict[str, object]:
    stamp, token = here.credentials(client)
    return {"type": "auth", "client_id": client, "timestamp": stamp, "token": token, **more}


def ask(page: ClientConnection, **message: object) -> dict[str, Any]:
    page.send(json.dumps(message))
    return hear(page)


def hear(page: ClientConnection) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(page.recv(timeout=10))
    return told


def test_a_websocket_is_a_session_like_any_other() -> None:
    client = os.urandom(12).hex()
    with (
        running() as (here, port),
        connect(f"ws://127.0.0.1:{port}/ws") as page,
        sync.Publisher(here.publishers) as publisher,
    ):
        assert ask(page, type="sub", fields={})["text"] == "command error: auth first"
        assert ask(page, **auth(here, client)) == {
            "type": "status",
            "ok": True,
            "text": "authsuccess",
        }
        assert ask(page, type="hb")["text"] == "h"
        price = {"use": 2, "low": 10, "high": 20}
        assert ask(page, type="sub", name="Mine", fields={"price": price})["text"] == "sub"
        assert publisher.publish({"price": 12.5}, "text\r\n") == 1
        assert publisher.publish({"price": 15}, b"\xff\x00") == 1
        first, second = hear(page), hear(page)
        assert (first["payload"], first["subs"]) == ("text\r\n", ["Mine"])
        assert (second["payload"], second["encoding"]) == ("/wA=", "base64")
        assert not ask(page, type="dance")["ok"]
        with connect(f"ws://127.0.0.1:{port}/ws") as newer:
            assert ask(newer, **auth(here, client))["ok"]
            assert hear(page)["text"] == "replaced"
            with pytest.raises(ConnectionClosed) as closed:
                page.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000


def test_a_durable_session_goes_on_from_tcp_to_a_websocket() -> None:
    client = os.urandom(12).hex()
    with running() as (here, port), sync.Publisher(here.publishers) as publisher:
        stamp, token = here.credentials(client)
        where = f"127.0.0.1:{port}"
        settings: dict[str, Any] = {"token": token, "timestamp": stamp, "durable": True}
        with sync.Subscriber(client, where, **settings) as first:
            first.subscribe("n >= 0")
        assert publisher.publish({"n": 1}, "while away") == 1
        with connect(f"ws://{where}/ws") as page:
            assert ask(page, **auth(here, client, ack=True, resume=True))["ok"]
            told = hear(page)
            assert (told["payload"], told["redelivered"]) == ("while away", True)
            page.send(json.dumps({"type": "ack", "id": told["id"]}))
            assert ask(page, type="hb")["text"] == "h"


def test_what_a_page_says_before_it_closes_is_heard() -> None:
    """An acknowledgement that came in one chunk with the close was lost, and its publication sent again."""
    client = os.urandom(12).hex()
    with running() as (here, port), sync.Publisher(here.publishers) as publisher:
        words = auth(here, client, ack=True, resume=True)
        with connect(f"ws://127.0.0.1:{port}/ws") as page:
            assert ask(page, **words)["ok"]
            assert ask(page, type="sub", fields={"n": {"use": 2}})["ok"]
            assert publisher.publish({"n": 1}, "once") == 1
            page.protocol.send_text(json.dumps({"type": "ack", "id": hear(page)["id"]}).encode())
            page.protocol.send_close(1000)
            page.socket.sendall(b"".join(page.protocol.data_to_send()))
            with pytest.raises(ConnectionClosed) as closed:
                page.recv(timeout=10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1000
        with connect(f"ws://127.0.0.1:{port}/ws") as page:
            assert ask(page, **words)["ok"]
            assert publisher.publish({"n": 2}, "twice") == 1
            assert hear(page)["payload"] == "twice"


def test_other_paths_and_other_pages_are_turned_away() -> None:
    with running("push.origins=https://good.example") as (_, port):
        with pytest.raises(InvalidStatus, match="404"):
            connect(f"ws://127.0.0.1:{port}/other")
        for origin in (None, Origin("https://evil.example")):
            with pytest.raises(InvalidStatus, match="403"):
                connect(f"ws://127.0.0.1:{port}/ws", origin=origin)
        with connect(f"ws://127.0.0.1:{port}/ws", origin=Origin("https://good.example")):
            pass


def certificate(directory: Path) -> tuple[Path, Path]:
    """A key and a certificate of its own for localhost."""
    key, cert = directory / "key.pem", directory / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext"]
    words += ["subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    return key, cert


def test_subscribers_come_over_tls_and_only_so(tmp_path: Path) -> None:
    key, cert = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    client = os.urandom(12).hex()

    async def main(here: Fabric, port: int) -> None:
        where = f"localhost:{port}"
        stamp, token = here.credentials(client)
        settings: dict[str, Any] = {"token": token, "timestamp": stamp}
        async with (
            homing.Subscriber(client, where, tls=trusting, **settings) as subscriber,
            homing.Publisher(here.publishers) as publisher,
        ):
            await subscriber.subscribe("n >= 0")
            await publisher.publish({"n": 1}, b"x" * 300_000)
            got = await anext(subscriber)
            assert isinstance(got, Push)
            assert got.body == b"x" * 300_000
        for context in (None, ssl.create_default_context()):  # no TLS, and one that trusts nobody
            stranger = homing.Subscriber(client, where, tls=context, timeout=0.5, **settings)
            async with stranger:
                with pytest.raises(RequestTimeout):
                    await stranger.subscribe("n >= 0")

    with running(f"security.tls_cert={cert}", f"security.tls_key={key}") as (here, port):
        asyncio.run(main(here, port))
        with connect(f"wss://localhost:{port}/ws", ssl=trusting) as page:
            assert ask(page, **auth(here, client))["ok"]


def test_a_renewed_certificate_is_shown_after_sighup(tmp_path: Path) -> None:
    """And one whose key is another's is told: it was put in force, and nobody came in any more."""
    key, cert = certificate(tmp_path)
    (tmp_path / "other").mkdir()
    settings = {
        "push.subscribers": "127.0.0.1:0",
        "push.connector": "127.0.0.1:0",
        "security.tls_cert": str(cert),
        "security.tls_key": str(key),
    }
    words = [f"--set={name}={value}" for name, value in settings.items()]
    connector = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", "connector", "--data", str(tmp_path), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert connector.stdout is not None
        assert connector.stderr is not None
        ends = dict(word.partition("=")[::2] for word in connector.stdout.readline().split())
        where = ("127.0.0.1", int(ends["subscribers"].rpartition(":")[2]))
        first = cert.read_text().split()
        assert ssl.get_server_certificate(where).split() == first
        shutil.copy(certificate(tmp_path / "other")[1], cert)
        connector.send_signal(signal.SIGHUP)
        assert "security.tls_cert cannot be read" in connector.stderr.readline()
        assert ssl.get_server_certificate(where).split() == first
        certificate(tmp_path)
        connector.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while ssl.get_server_certificate(where).split() != cert.read_text().split():
            assert time.monotonic() < end, "the old certificate is still shown"
    finally:
        connector.kill()
        connector.communicate()


@pytest.mark.parametrize("how", ["--ca", "settings"])
def test_the_command_subscribes_over_tls(tmp_path: Path, how: str) -> None:
    key, cert = certificate(tmp_path)
    settings = (f"security.tls_cert={cert}", f"security.tls_key={key}")
    key_file = tmp_path / "data" / "token.key"
    key_file.parent.mkdir()
    key_file.write_text(TOKEN_KEY)
    with running(*settings) as (here, port), sync.Publisher(here.publishers) as publisher:
        words = [sys.executable, "-m", "homing.cli", "subscribe", "n >= 0", "--count", "1"]
        words += ["--connector", f"127.0.0.1:{port}", "--data", str(key_file.parent)]
        more = [f"--set={one}" for one in settings] if how == "settings" else ["--ca", str(cert)]
        subscriber = subprocess.Popen([*words, *more], stdout=subprocess.PIPE)
        try:
            end = time.monotonic() + 60
            while not publisher.publish({"n": 1}, b"over TLS"):
                assert subscriber.poll() is None
                assert time.monotonic() < end, "it never subscribed"
            told, _ = subscriber.communicate(timeout=60)
        finally:
            subscriber.kill()
            subscriber.wait()
    assert json.loads(told)["payload"] == "over TLS"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Debian's package chromium")
def test_the_example_page_subscribes_in_a_browser() -> None:
    client = os.urandom(12).hex()
    with (
        running() as (here, port),
        sync.Publisher(here.publishers) as publisher,
        sync_playwright() as tools,
    ):
        stamp, token = here.credentials(client)
        where = f"ws://127.0.0.1:{port}/ws"
        given = {"ws": where, "client": client, "timestamp": stamp, "token": token}
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        page = browser.new_page()
        page.goto(f"{EXAMPLE.as_uri()}?{urlencode({'ws': where})}")
        expect(page.locator("#state")).to_contain_text("no client, timestamp, token")
        page.goto(f"{EXAMPLE.as_uri()}?{urlencode(given)}")
        expect(page.locator("#state")).to_have_text("authsuccess")
        page.get_by_role("button", name="Subscribe").click()
        expect(page.locator("#state")).to_have_text("sub")
        assert publisher.publish({"price": 12.5}, "Grüße") == 1
        assert publisher.publish({"price": 30}, "too dear") == 0
        expect(page.locator("#pushes li")).to_have_text(['{"price":12.5} Grüße'])
        browser.close()


def test_idlers_before_auth_are_closed_on() -> None:
    with running("push.auth_timeout=0.3s") as (_, port), ExitStack() as stack:
        began = time.monotonic()
        silent, slow, half = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(3)
        )
        slow.sendall(b"#12\r\n*1\r\n$2\r\nhb\r\n")
        half.sendall(b"GET /ws HT")
        assert silent.recv(100) == b""
        assert half.recv(100) == b""
        said = b""
        while chunk := slow.recv(100):
            said += chunk
        assert said == b"+h\r\n-auth error none within 0.3 s\r\n"
        assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("broken", [b"hello\r\n", b"#-5\r\n", b"#99999999\r\n"])
def test_who_breaks_the_framing_is_told_so(broken: bytes) -> None:
    with running() as (_, port), socket.create_connection(("127.0.0.1", port), 10) as peer:
        peer.sendall(b"#12\r\n*1\r\n$2\r\nhb\r\n")
        assert peer.recv(100) == b"+h\r\n"
        peer.sendall(broken)
        said = b""
        while chunk := peer.recv(100):
            said += chunk
        assert said.startswith(b"-command error: ")
        assert said.endswith(b"\r\n")


def test_five_thousand_subscribers_come_and_go_and_leave_nothing() -> None:
    raise_file_limit()
    with running() as (here, port), sync.Publisher(here.publishers) as publisher:
        client = os.urandom(12).hex()
        assert publisher.publish({"n": 0}) == 0  # connected before files are counted
        files = len(os.listdir("/proc/self/fd"))
        words = _native(here, client)
        for _ in range(10):
            peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
            for peer in peers[:100]:
                peer.sendall(words)  # the same client again and again: the newest wins
            for peer in peers:
                peer.close()
        _wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files)
        gc.collect()
        _wait_until(lambda: publisher.publish({"n": 1}) == 0)
        with sync.Subscriber(client, f"127.0.0.1:{port}", **_given(here, client)) as last:
            last.subscribe("n >= 0")
            assert publisher.publish({"n": 2}, "still here") == 1
            assert isinstance(got := last.get(10), Push)
            assert got.body == b"still here"


def _given(here: Fabric, client: str) -> dict[str, Any]:
    stamp, token = here.credentials(client)
    return {"token": token, "timestamp": stamp}


def _native(here: Fabric, client: str) -> bytes:
    from homing.wire.session import command

    said = auth(here, client)
    return command([b"auth", json.dumps(said).encode()]) + command([b"sub", b"n", b'{"use":2}'])


def _wait_until(reached: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.05)
