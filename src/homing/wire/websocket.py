"""The subscribers' wire for browsers: one JSON message a WebSocket frame, on the same port (§5).

A subscriber's first byte tells which it is: `#` begins a command, `G` the GET of an upgrade. What
a browser says becomes the command it stands for, so that one doorway serves both; what it is
told becomes JSON:

    {"type": "auth", …}  {"type": "sub", "name"?, "fields"}  {"type": "unsub", "name"?}
    {"type": "ack", "id"}  {"type": "hb"}            →  auth, sub or subn, unsub, ack, hb
    +text, -text                                     →  {"type": "status", "ok", "text"}
    #<bytes>, json                                   →  json

The handshake, pings, fragments and closing are websockets' sans-I/O protocol; whole frames to the
browser are made here, once for all browsers that get the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from homing.errors import HandshakeRefused, RemoteProtocolError
from homing.wire.session import HEARTBEAT, MAX_COMMAND, CommandStream, command

if TYPE_CHECKING:
    from websockets.frames import Frame
    from websockets.http11 import Request
    from websockets.server import ServerProtocol

PATH: Final = "/ws"
GOODBYE: Final = b""
"""The message that ends a WebSocket: a close frame."""
_CLOSE: Final = b"\x88\x02\x03\xe8"  # 1000, the normal end
_TEXT: Final = 0x81


class _Auth(Struct, tag="auth"):
    """Handed on as it is."""


class _Subscribe(Struct, tag="sub"):
    fields: dict[str, Raw]
    name: str = ""


class _Unsubscribe(Struct, tag="unsub"):
    name: str = ""


class _Acknowledge(Struct, tag="ack"):
    id: str


class _Heartbeat(Struct, tag="hb"):
    pass


class _Status(Struct, tag="status"):
    ok: bool
    text: str


# The library has a line for every browser that comes, goes or is refused. Whoever owns the link logs
# what is worth a line, thinned out: a stranger would write as much of the log as it liked.
_silent = logging.getLogger(f"{__name__}.library")
_silent.setLevel(logging.CRITICAL + 1)

_words = msgspec.json.Decoder(_Auth | _Subscribe | _Unsubscribe | _Acknowledge | _Heartbeat)
_encode = msgspec.json.Encoder().encode


def to_command(json: bytes) -> bytes:
    """The command that a browser's message stands for; ValueError says why it stands for none."""
    try:
        said = _words.decode(json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if isinstance(said, _Heartbeat):
        return HEARTBEAT
    if isinstance(said, _Auth):
        return command([b"auth", json])
    if isinstance(said, _Acknowledge):
        return command([b"ack", said.id.encode()])
    if isinstance(said, _Unsubscribe):
        return command([b"unsub", said.name.encode()] if said.name else [b"unsub"])
    parts = [b"subn", said.name.encode()] if said.name else [b"sub"]
    for name, field in said.fields.items():
        parts += (name.encode(), bytes(field))
    return command(parts)


def to_json(message: bytes) -> bytes:
    """A status line or a push of the connector as a browser gets it."""
    if message[:1] == b"#":
        return message[message.index(b"\n") + 1 : -2]
    return _encode(_Status(message[:1] == b"+", message[1:-2].decode("utf-8", "replace")))


class Frames:
    """What browsers are sent as WebSocket frames; a fan-out sends all of them the same object."""

    __slots__ = ("_frame", "_message")

    def __init__(self) -> None:
        self._message = GOODBYE
        self._frame = _CLOSE

    def encode(self, message: bytes) -> bytes:
        """One message as one frame; the one before is remembered."""
        if message is not self._message:
            self._frame = _framed(to_json(message)) if message else _CLOSE
            self._message = message
        return self._frame


def _framed(text: bytes) -> bytes:
    size = len(text)
    if size < 126:
        return bytes((_TEXT, size)) + text
    if size < 1 << 16:
        return bytes((_TEXT, 126)) + size.to_bytes(2, "big") + text
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + text


class SubscriberCodec:
    """A homing.node.plug.Codec: commands from either kind of subscriber."""

    __slots__ = ("_limit", "_origins", "_stream", "browser", "ready", "receive")

    peer_identity = b""
    user = ""

    def __init__(self, limit: int = MAX_COMMAND, origins: Sequence[str] = ()) -> None:
        """`origins`: pages that may connect; none given: all of them."""
        self.ready = False
        self.browser: Browser | None = None
        self.receive: Callable[[bytes], list[bytes]] = self._first
        self._stream: CommandStream | None = None
        self._limit = limit
        self._origins = origins

    def take(self) -> bytes:
        if self._stream is not None:
            return self._stream.last_words
        return b"" if self.browser is None else self.browser.take()

    def _first(self, data: bytes) -> list[bytes]:
        """The first byte decides; what it decided is called directly from then on."""
        if data[:1] == b"G":
            self.browser = Browser(self._limit, self._origins)
            self.receive = self._upgrade
        else:
            self.ready = True
            self._stream = CommandStream(self._limit)
            self.receive = self._stream.receive
        return self.receive(data)

    def _upgrade(self, data: bytes) -> list[bytes]:
        assert self.browser is not None
        commands = self.browser.receive(data)
        if self.browser.open:
            self.ready = True
            self.receive = self.browser.receive
        return commands


class Browser:
    """The server's side of one WebSocket, without sockets."""

    __slots__ = ("_fragments", "_held", "_limit", "_protocol", "gone", "open")

    def __init__(self, limit: int, origins: Sequence[str]) -> None:
        # Only a connector with browsers needs the library.
        from websockets.server import ServerProtocol
        from websockets.typing import Origin

        allowed = [Origin(origin) for origin in origins] or None
        self._protocol: ServerProtocol = ServerProtocol(
            origins=allowed, max_size=limit, logger=_silent
        )
        self._limit = limit
        self._fragments: list[bytes] = []
        self._held = 0
        self.open = False
        self.gone = False  # it closed the WebSocket: nothing is heard or told behind that

    def take(self) -> bytes:
        """What the protocol itself wants to say: the handshake, pongs, a close."""
        return b"".join(self._protocol.data_to_send())

    def receive(self, data: bytes) -> list[bytes]:
        """The commands that these bytes complete. Raises what ends the connection."""
        protocol = self._protocol
        protocol.receive_data(data if self.open else self._greeted(data))
        # First: what stands behind a broken frame is not asked for, and the protocol has said its last words.
        if protocol.parser_exc is not None:
            raise RemoteProtocolError(f"not a WebSocket: {protocol.parser_exc}")
        commands: list[bytes] = []
        for event in protocol.events_received():
            self._frame(event, commands)  # type: ignore[arg-type]  # the request was the only other
        self.gone = protocol.close_rcvd is not None
        return commands

    def _greeted(self, data: bytes) -> bytes:
        """Take the request, line by line; what stands behind it is answered after it."""
        protocol, at = self._protocol, 0
        while not self.open and at < len(data):
            end = data.find(b"\n", at) + 1 or len(data)
            protocol.receive_data(data[at:end])
            at = end
            for request in protocol.events_received():
                self._accept(request)  # type: ignore[arg-type]
            # No request at all: there is no event to tell of it.
            if protocol.handshake_exc is not None:
                raise HandshakeRefused(f"no WebSocket: {protocol.handshake_exc}")
        return data[at:]

    def _accept(self, request: Request) -> None:
        protocol = self._protocol
        if request.path.partition("?")[0] != PATH:
            response = protocol.reject(404, f"subscribers connect to {PATH}\n")
        else:
            response = protocol.accept(request)
        protocol.send_response(response)
        if response.status_code != 101:
            raise HandshakeRefused(f"no WebSocket: {response.status_code} for {request.path[:80]}")
        self.open = True

    def _frame(self, frame: Frame, commands: list[bytes]) -> None:
        if frame.opcode >= 8:  # answered by the protocol
            return
        self._held += len(frame.data)
        if self._held > self._limit:
            raise RemoteProtocolError(f"a message of more than {self._limit} bytes")
        if frame.data:  # of empty ones there may be any number
            self._fragments.append(bytes(frame.data))
        if not frame.fin:
            return
        json = b"".join(self._fragments)
        self._fragments, self._held = [], 0
        try:
            commands.append(to_command(json))
        except ValueError as error:
            if self._protocol.close_rcvd is not None:  # it stands behind, and was answered
                return
            refusal = _encode(_Status(False, f"command error: {error}"))
            self._protocol.send_text(refusal)
