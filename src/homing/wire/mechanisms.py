"""ZMTP security mechanisms: how two peers agree to talk, and who the other one is.

A `Mechanism` is the settings, shared by all connections of a socket; its `handshake()` is one
connection's way through it: command bodies in, command bodies out.

    NULL     both:   READY(metadata)
    PLAIN    client: HELLO(user, password)   server: WELCOME
             client: INITIATE(metadata)      server: READY(metadata)
    CURVE    see homing.wire.curve

A server that will not have the client answers ERROR with a status as ZAP knows them: 300 try
again later, 400 no, 500 the server itself failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from homing.errors import Denied, HomingError, RemoteProtocolError
from homing.wire.frames import command

TRY_LATER = b"300"
DENIED = b"400"
FAILED = b"500"

Metadata = dict[bytes, bytes]


class Cipher(ABC):
    """What a mechanism does to each frame once the handshake is done."""

    __slots__ = ()

    @abstractmethod
    def seal(self, flags: int, body: bytes) -> bytes:
        """The frame to send in place of one with these flags and this body."""

    @abstractmethod
    def open(self, body: bytes, offset: int) -> tuple[int, bytes]:
        """Flags (MORE, COMMAND) and body hidden in a frame received."""

    @abstractmethod
    def watch(self) -> Watched:
        """A frame received that is too large to be held: it is checked as it goes by."""


class Watched(ABC):
    """One sealed frame that goes by."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Its next bytes, those of its header first."""

    @abstractmethod
    def flags(self, offset: int) -> int:
        """Its flags, once all was fed and the frames before it were opened; raises if it is not genuine."""


class Handshake(ABC):
    """One connection's way through a mechanism."""

    def __init__(self) -> None:
        self.peer_metadata: Metadata | None = None  # not None: the handshake is done
        self.user = ""
        self.refused = b""  # the status in the ERROR that we answered
        self.denied = ""  # whom, as far as it told us
        self.cipher: Cipher | None = None

    @abstractmethod
    def start(self, metadata: bytes) -> bytes:
        """The first command, empty for a side that waits; `metadata` is what we tell of us."""

    @abstractmethod
    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        """The answer to one command of the peer's, empty when there is none."""

    def refuse(self, status: bytes) -> bytes:
        """The ERROR that ends this handshake."""
        self.refused = status
        return command(b"ERROR", bytes((len(status),)) + status)

    def admit(self, ask: Callable[[], str]) -> bytes:
        """Let an `authenticate` function decide: sets `user`, or answers the ERROR to send."""
        try:
            self.user = ask()
        except Denied as error:
            self.denied = str(error)
            return self.refuse(DENIED)
        except HomingError as error:
            return self.refuse(TRY_LATER if error.retryable else DENIED)
        except Exception:
            # The application's own function broke: the peer learns that much and no more,
            # and the node lives on.
            return self.refuse(FAILED)
        return b""


class Mechanism(ABC):
    """The settings of a mechanism on one side."""

    name: bytes = b""
    server: bool = False
    overhead: int = 0  # bytes by which a sealed frame is longer

    @abstractmethod
    def handshake(self) -> Handshake:
        """A fresh handshake for one connection."""


class Null(Mechanism):
    """No security at all."""

    name = b"NULL"

    def handshake(self) -> Handshake:
        return _NullHandshake()


class _NullHandshake(Handshake):
    def start(self, metadata: bytes) -> bytes:
        return command(b"READY", metadata)

    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        expect(name, b"READY", offset)
        self.peer_metadata = parse_metadata(body, offset)
        return b""


class PlainClient(Mechanism):
    """A user and a password, in clear."""

    name = b"PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._credentials = _short(user.encode(), "user") + _short(password.encode(), "password")

    def handshake(self) -> Handshake:
        return _PlainClientHandshake(self._credentials)


class _PlainClientHandshake(Handshake):
    def __init__(self, credentials: bytes) -> None:
        super().__init__()
        self._credentials = credentials
        self._metadata = b""
        self._welcome = False

    def start(self, metadata: bytes) -> bytes:
        self._metadata = metadata
        return command(b"HELLO", self._credentials)

    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        if not self._welcome:
            expect(name, b"WELCOME", offset)
            if body:
                raise RemoteProtocolError("WELCOME with a body", offset)
            self._welcome = True
            return command(b"INITIATE", self._metadata)
        expect(name, b"READY", offset)
        self.peer_metadata = parse_metadata(body, offset)
        return b""


class PlainServer(Mechanism):
    """Asks for a user and a password.

    `authenticate(user, password)` returns the name to know the peer by, or raises Denied;
    another retryable HomingError asks the client to come back later.
    """

    name = b"PLAIN"
    server = True

    def __init__(self, authenticate: Callable[[str, str], str]) -> None:
        self._authenticate = authenticate

    def handshake(self) -> Handshake:
        return _PlainServerHandshake(self._authenticate)


class _PlainServerHandshake(Handshake):
    def __init__(self, authenticate: Callable[[str, str], str]) -> None:
        super().__init__()
        self._authenticate = authenticate
        self._metadata = b""
        self._admitted = False

    def start(self, metadata: bytes) -> bytes:
        self._metadata = metadata
        return b""

    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        if not self._admitted:
            expect(name, b"HELLO", offset)
            user, password = _parse_hello(body, offset)
            refusal = self.admit(lambda: self._authenticate(user, password))
            self._admitted = not refusal
            return refusal or command(b"WELCOME")
        expect(name, b"INITIATE", offset)
        self.peer_metadata = parse_metadata(body, offset)
        return command(b"READY", self._metadata)


def _parse_hello(body: bytes, offset: int) -> tuple[str, str]:
    user, rest = _take_short(body, offset)
    password, rest = _take_short(rest, offset)
    if rest:
        raise RemoteProtocolError("bytes after the password", offset)
    try:
        return user.decode(), password.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("user and password are UTF-8", offset) from None


def _take_short(body: bytes, offset: int) -> tuple[bytes, bytes]:
    end = 1 + body[0] if body else 1
    if end > len(body):
        raise RemoteProtocolError("HELLO ends too early", offset)
    return body[1:end], body[end:]


def _short(text: bytes, what: str) -> bytes:
    if len(text) > 255:
        raise ValueError(f"a PLAIN {what} is at most 255 bytes, got {len(text)}")
    return bytes((len(text),)) + text


def expect(name: bytes, wanted: bytes, offset: int) -> None:
    """Raise unless the command is the one whose turn it is."""
    if name != wanted:
        raise RemoteProtocolError(f"{name[:16]!r} where {wanted.decode()} was expected", offset)


def pack_metadata(properties: Metadata) -> bytes:
    """Properties as READY and INITIATE carry them."""
    return b"".join(
        bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value
        for name, value in properties.items()
    )


def parse_metadata(body: bytes, offset: int) -> Metadata:
    """Properties by lower-case name: ZMTP compares names without regard to case."""
    properties: Metadata = {}
    at = 0
    while at < len(body):
        end = at + 1 + body[at]
        stop = end + 4 + int.from_bytes(body[end : end + 4], "big")
        if end == at + 1 or end + 4 > len(body) or stop > len(body):
            raise RemoteProtocolError("metadata ends in the middle of a property", offset)
        properties[body[at + 1 : end].lower()] = body[end + 4 : stop]
        at = stop
    return properties
