"""Browsers on the subscribers' port, without sockets: websockets' own client on the other side."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from homing.errors import HandshakeRefused, HomingError, RemoteProtocolError
from homing.wire.pushed import push
from homing.wire.session import HEARTBEAT, command, elements, status
from homing.wire.websocket import GOODBYE, Frames, SubscriberCodec, to_command


class Page:
    """A browser's WebSocket and the codec that serves it, back to back."""

    def __init__(self, path: str = "/ws", origin: str | None = None, **options: object) -> None:
        self.codec = SubscriberCodec(**options)  # type: ignore[arg-type]
        self.client = ClientProtocol(parse_uri(f"ws://localhost{path}"))
        request = self.client.connect()
        if origin is not None:
            request.headers["Origin"] = origin
        self.client.send_request(request)

    def pass_on(self, step: int = 1 << 20) -> list[bytes]:
        """What the client wants to send goes over, `step` bytes at a time, and the answer back."""
        data = b"".join(self.client.data_to_send())
        commands = []
        for at in range(0, len(data), step):
            commands += self.codec.receive(data[at : at + step])
        self.client.receive_data(self.codec.take())
        return commands

    def text(self, message: object) -> list[bytes]:
        self.client.send_text(json.dumps(message).encode())
        return self.pass_on()

    def heard(self, *sent: bytes) -> list[object]:
        """What the page makes of what the connector sends."""
        frames = Frames()
        self.client.receive_data(b"".join(frames.encode(message) for message in sent))
        events = [event for event in self.client.events_received() if isinstance(event, Frame)]
        return [json.loads(bytes(event.data)) for event in events if event.opcode == Opcode.TEXT]


def opened(**options: object) -> Page:
    page = Page(**options)  # type: ignore[arg-type]
    before = page.codec.ready
    assert page.pass_on() == []
    assert (before, page.codec.ready) == (False, True)
    assert page.codec.browser is not None
    return page


def test_the_first_byte_tells_who_it_is() -> None:
    codec = SubscriberCodec()
    before = codec.ready
    assert codec.receive(HEARTBEAT[:3]) == []
    assert (before, codec.ready, codec.browser) == (False, True, None)
    assert codec.receive(HEARTBEAT[3:] + HEARTBEAT) == [HEARTBEAT, HEARTBEAT]
    with pytest.raises(RemoteProtocolError):
        SubscriberCodec().receive(b"POST /ws HTTP/1.1\r\n")


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_a_browser_is_let_in_however_its_bytes_are_cut(step: int) -> None:
    page = Page(path="/ws?from=here")
    assert page.pass_on(step) == []
    assert page.codec.ready
    assert page.client.handshake_exc is None


def test_what_a_browser_says_is_the_command_it_stands_for() -> None:
    page = opened()
    auth = {"type": "auth", "client_id": "00" * 12, "timestamp": 1, "token": "t", "ack": True}
    [said] = page.text(auth)
    name, body = elements(said)
    assert name == b"auth"
    assert json.loads(body) == auth
    assert page.text({"type": "hb"}) == [HEARTBEAT]
    fields = {"city": {"use": 1, "strval": "Zürich\r\n"}, "price": {"use": 2, "low": 1.5}}
    [said] = page.text({"type": "sub", "fields": fields})
    parts = elements(said)
    assert parts[:2] == [b"sub", b"city"]
    assert json.loads(parts[2]) == fields["city"]
    assert page.text({"type": "sub", "name": "Mine", "fields": {"a": {"use": 2}}}) == [
        command([b"subn", b"Mine", b"a", b'{"use": 2}'])
    ]
    assert page.text({"type": "unsub"}) == [command([b"unsub"])]
    assert page.text({"type": "unsub", "name": "Mine"}) == [command([b"unsub", b"Mine"])]
    assert page.text({"type": "ack", "id": "ab"}) == [command([b"ack", b"ab"])]


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"{",
        b"[]",
        b'{"type": "dance"}',
        b'{"type": "sub"}',
        b"[" * 100_000,
        b'"\xff"',
        b"\xff",
    ],
)
def test_what_stands_for_no_command_is_refused_and_the_page_stays(words: bytes) -> None:
    with pytest.raises(ValueError):
        to_command(words)
    page = opened()
    page.client.send_binary(words)
    assert page.pass_on() == []
    [told] = page.heard()
    assert isinstance(told, dict)
    assert told["ok"] is False
    assert told["text"].startswith("command error: ")
    assert page.text({"type": "hb"}) == [HEARTBEAT]


def test_what_a_browser_is_told_is_json() -> None:
    page = opened()
    long = push(b"m" * 12, b"x" * 70_000, b'{"n":1}', ["default"])
    short = push(b"n" * 12, "grüße\r\n".encode(), b"{}", ["a"])
    said, refused, first, second, third = page.heard(
        status(True, "authsuccess"), status(False, "command error: no"), long, short, short
    )
    assert said == {"type": "status", "ok": True, "text": "authsuccess"}
    assert refused == {"type": "status", "ok": False, "text": "command error: no"}
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["payload"], first["attrs"]) == ("x" * 70_000, {"n": 1})
    assert second["payload"] == "grüße\r\n"
    assert third == second


def test_one_frame_serves_all_browsers_of_a_fan_out() -> None:
    frames = Frames()
    image = push(b"m" * 12, b"hello", b"{}", ["a"])
    assert frames.encode(image) is frames.encode(image)


@given(st.integers(0, 70_000))
def test_a_payload_of_any_size_is_one_frame(size: int) -> None:
    page = opened()
    [told] = page.heard(push(b"m" * 12, b"x" * size, b"{}", ["a"]))
    assert isinstance(told, dict)
    assert len(told["payload"]) == size


def test_pings_are_answered_and_fragments_joined() -> None:
    page = opened()
    page.client.send_ping(b"there?")
    page.client.send_text(b'{"type":', fin=False)
    page.client.send_continuation(b' "hb"}', fin=True)
    assert page.pass_on() == [HEARTBEAT]
    [pong] = [e for e in page.client.events_received() if isinstance(e, Frame)][-1:]
    assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, b"there?")


def test_fragments_without_end_are_too_much() -> None:
    page = opened(limit=1000)
    page.client.send_text(b"x" * 600, fin=False)
    page.pass_on()
    page.client.send_continuation(b"x" * 600, fin=False)
    with pytest.raises(RemoteProtocolError):
        page.pass_on()


@pytest.mark.parametrize(
    ("options", "code"),
    [({"path": "/"}, 404), ({"origins": ["https://a.example"], "origin": "https://evil"}, 403)],
)
def test_another_path_or_page_is_turned_away_with_a_reason(
    options: dict[str, object], code: int
) -> None:
    page = Page(**options)  # type: ignore[arg-type]
    with pytest.raises(HandshakeRefused, match=str(code)):
        page.pass_on()
    assert page.codec.take().startswith(b"HTTP/1.1 %d " % code)
    assert not page.codec.ready


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /" + b"a" * 20_000,
        b"GET /ws HTTP/1.1\r\nA: " + b"a" * 20_000,
        b"G\xff\xff\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nno colon\r\n\r\n",
    ],
)
def test_what_is_no_request_is_turned_away_at_once(request_head: bytes) -> None:
    codec = SubscriberCodec()
    with pytest.raises(HandshakeRefused):
        codec.receive(request_head)


@pytest.mark.parametrize("path", [b"/", b"/ws"])
def test_a_request_with_what_is_no_frame_behind_it_is_a_typed_error(path: bytes) -> None:
    request_head = b"GET " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    with pytest.raises(HomingError):
        SubscriberCodec().receive(request_head + b"\xff" * 50)


def test_what_browsers_do_is_not_logged_by_the_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    test_closing_is_answered_and_ends_the_connection()
    test_another_path_or_page_is_turned_away_with_a_reason({"path": "/"}, 404)
    assert "websockets.server" not in {record.name for record in caplog.records}


def test_a_page_that_is_allowed_comes_in() -> None:
    opened(origins=["https://a.example"], origin="https://a.example")


def test_closing_is_answered_and_ends_the_connection() -> None:
    page = opened()
    assert page.codec.browser is not None
    page.client.send_text(b'{"type": "hb"}')
    page.client.send_text(b"nonsense")
    page.client.send_close(1000)
    assert page.pass_on() == [HEARTBEAT]  # what it said before it left
    assert page.codec.browser.gone
    assert page.client.close_rcvd is not None
    other = opened()
    other.client.receive_data(Frames().encode(GOODBYE))
    assert other.client.close_rcvd is not None
    assert other.client.close_rcvd.code == 1000


def test_of_empty_fragments_nothing_is_kept() -> None:
    page = opened()
    assert page.codec.browser is not None
    page.client.send_text(b'{"type":', fin=False)
    for _ in range(1000):
        page.client.send_continuation(b"", fin=False)
    assert page.pass_on() == []
    assert len(page.codec.browser._fragments) == 1
    page.client.send_continuation(b'"hb"}', fin=True)
    assert page.pass_on() == [HEARTBEAT]


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_end_in_commands_or_a_typed_error(chunks: list[bytes]) -> None:
    page = opened()
    try:
        for chunk in chunks:
            page.codec.receive(chunk)
    except HomingError:
        pass


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_any_bytes_instead_of_a_handshake_do_too(chunks: list[bytes]) -> None:
    codec = SubscriberCodec()
    try:
        for chunk in chunks:
            codec.receive(b"GET " + chunk)
    except HomingError:
        pass


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    ("opcode", "answer"), [(Opcode.PING, b"\x8a\x02\x03\xe8"), (Opcode.CLOSE, b"\x88\x02\x03\xe8")]
)
def test_what_stands_behind_the_request_is_answered_after_it(
    opcode: Opcode, answer: bytes, step: int
) -> None:
    page = Page()
    early = Frame(opcode, b"\x03\xe8").serialize(mask=True)
    data = b"".join([*page.client.data_to_send(), early])
    for at in range(0, len(data), step):
        page.codec.receive(data[at : at + step])
    answered = page.codec.take()
    assert answered.startswith(b"HTTP/1.1 101 ")
    assert answered.endswith(b"\r\n\r\n" + answer)
