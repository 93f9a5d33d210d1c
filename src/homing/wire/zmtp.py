"""ZMTP 3.1 as a sans-I/O connection: bytes in, whole messages out, and back.

    greeting ──► handshake (NULL, PLAIN, CURVE) ──► traffic
       │ 64 bytes each way     │ commands              │ messages, PING/PONG, SUBSCRIBE/CANCEL
       └── not ZMTP 3 ─────────┴── ERROR, refusal ─────┴── broken frame ──► an exception, once

The shell writes `take()` whenever it is not empty, gives what it reads to `receive`, and gets
messages as wire images (homing.wire.frames). A NULL or PLAIN connection sends images as they
are; with `cipher` set every image must pass through `encode`.

    connection = Connection("DEALER", identity=b"alice")
    write(connection.take())
    for image in connection.receive(read()): ...
    write(connection.take())                      # handshake answers, PONGs
    if connection.ready: write(connection.encode(pack([b"", b"hello"])))

`receive` raises RemoteProtocolError (with the offset in the peer's stream) for bytes that
break the protocol, TooLargeOnWire past a limit, HandshakeRefused when either side refuses the
other, and nothing else. After any of them: write `take()` once more (it may hold the ERROR
that tells the peer why), then close.

A PUB connection gets its peer's subscriptions as one-frame messages `\\x01topic` and
`\\x00topic`, whether they came as 3.1 commands or in the 3.0 form. Envelopes (the empty frame
of REQ and REP, the routing id of ROUTER) belong to whoever uses the connection.
"""

from __future__ import annotations

from homing.errors import (
    HandshakeRefused,
    LocalProtocolError,
    RemoteProtocolError,
    TooLargeOnWire,
)
from homing.wire.frames import COMMAND, CUT, LONG, MORE, SHORT_MAX, command, cut, frame, head
from homing.wire.mechanisms import Cipher, Mechanism, Null, pack_metadata
from homing.wire.reader import KEPT, ImageReader

# Who may talk to whom: RFC 37, "The Socket-Type Property".
PARTNERS: dict[str, frozenset[str]] = {
    "REQ": frozenset({"REP", "ROUTER"}),
    "REP": frozenset({"REQ", "DEALER"}),
    "DEALER": frozenset({"REP", "DEALER", "ROUTER"}),
    "ROUTER": frozenset({"REQ", "DEALER", "ROUTER"}),
    "PUB": frozenset({"SUB", "XSUB"}),
    "SUB": frozenset({"PUB", "XPUB"}),
    "PUSH": frozenset({"PULL"}),
    "PULL": frozenset({"PUSH"}),
}
_TELLS_IDENTITY = ("REQ", "DEALER", "ROUTER")

# What libzmq's PLAIN server sends for ERROR: its source says "\x05ERROR", and to a C compiler
# \x05E is one character.
_LIBZMQ_ERROR = b"^RROR"

_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_GREETING_BYTES = 64
_VERSION = (3, 1)
MAX_IDENTITY = 255

# What a broker forwards unless told otherwise (64 MiB), and room for the envelope around it.
MAX_MESSAGE = 65 << 20
# Majordomo needs eight and a body; a thousand leaves room for multi-part bodies while a flood
# of empty frames stays cheap to refuse.
MAX_FRAMES = 1024
# The longest command homing obeys is SUBSCRIBE; topics are names, not documents.
MAX_COMMAND = 64 << 10
# Greeting and all handshake commands of one peer: CURVE needs under 1 KiB besides metadata.
MAX_HANDSHAKE = 8 << 10


class Limits:
    """What one peer may make us hold."""

    __slots__ = ("command", "frames", "handshake", "message", "passed")

    def __init__(
        self,
        *,
        message: int = MAX_MESSAGE,
        frames: int = MAX_FRAMES,
        command: int = MAX_COMMAND,
        handshake: int = MAX_HANDSHAKE,
        passed: int = 0,
    ) -> None:
        """`passed`: how large a message over the limits may be that goes by (homing.wire.reader); 0: none does."""
        self.passed = passed
        self.message = message
        self.frames = frames
        self.command = command
        self.handshake = handshake


LIMITS = Limits()
NULL = Null()


class Connection:
    """One side of one ZMTP connection; see the module's docstring."""

    __slots__ = (
        "_greeted",
        "_handshake",
        "_inbox",
        "_inner",
        "_inner_bytes",
        "_inner_frames",
        "_limits",
        "_mechanism",
        "_metadata",
        "_out",
        "_read",
        "cipher",
        "minor",
        "peer_identity",
        "peer_ttl",
        "peer_type",
        "reader",
        "ready",
        "socket_type",
        "user",
    )

    def __init__(
        self,
        socket_type: str,
        *,
        identity: bytes = b"",
        mechanism: Mechanism = NULL,
        limits: Limits = LIMITS,
    ) -> None:
        if socket_type not in PARTNERS:
            raise ValueError(f"no socket type {socket_type!r}; there are: {', '.join(PARTNERS)}")
        if len(identity) > MAX_IDENTITY or identity[:1] == b"\0":
            raise ValueError("an identity is at most 255 bytes and does not start with a zero byte")
        self.socket_type = socket_type
        self.ready = False
        self.peer_type = ""
        self.peer_identity = b""
        self.peer_ttl = 0.0  # seconds of silence after which the peer wants us to hang up; 0: never
        self.user = ""
        self.minor = _VERSION[1]
        self.cipher: Cipher | None = None
        properties = {b"Socket-Type": socket_type.encode()}
        if socket_type in _TELLS_IDENTITY:
            properties[b"Identity"] = identity
        self._metadata = pack_metadata(properties)
        self._mechanism = mechanism
        self._handshake = mechanism.handshake()
        self._limits = limits
        self._out: list[bytes] = [_greeting(mechanism)]
        self._greeted = False
        self._inbox = bytearray()  # greeting and handshake; empty from then on
        self._read = 0  # bytes of greeting and handshake obeyed so far
        self._inner: list[bytes] = []  # frames of an encrypted message under way
        self._inner_bytes = 0
        self._inner_frames = 0
        self.reader = ImageReader(
            max_message=limits.message + mechanism.overhead,
            max_frames=limits.frames,
            max_command=limits.command,
            max_passed=limits.passed,
        )

    # -- what the shell calls ---------------------------------------------------------------

    def receive(self, data: bytes) -> list[bytes]:
        """Every message that these bytes complete, in order, as wire images."""
        if not self.ready:
            data = self._shake(data)
            if not data:
                return []
        images = self.reader.feed(data)
        if self.cipher is not None:
            images = self._decrypt(images, self.cipher)
        elif self.reader.commands:
            images = self._obey_all(images)
        return images

    def take(self) -> bytes:
        """What the protocol itself wants to send now: greeting, handshake, PONG, ERROR."""
        if not self._out:
            return b""
        out = b"".join(self._out)
        self._out.clear()
        return out

    @property
    def unheard(self) -> bool:
        """Whether the peer, a CURVE server, has said nothing yet to our HELLO: it hangs up on one for another's key."""
        told = self._read > _GREETING_BYTES or self._mechanism.server
        return self._greeted and not told and self._mechanism.name == b"CURVE"

    def encode(self, image: bytes) -> bytes:
        """The bytes to send for one message."""
        if not self.ready:
            raise LocalProtocolError("a message before the handshake is done")
        cipher = self.cipher
        if cipher is None:
            return image
        sealed = []
        at = 0
        while at < len(image):
            flags = image[at]
            (body,), at = head(image, 1, at)
            sealed.append(cipher.seal(flags & MORE, body))
        return b"".join(sealed)

    def ping(self, ttl: float = 0.0, context: bytes = b"") -> bytes:
        """A PING; `ttl` asks the peer to hang up after so many silent seconds (0: not to)."""
        if len(context) > 16:
            raise LocalProtocolError("a PING context is at most 16 bytes")
        tenths = min(round(ttl * 10), 0xFFFF)
        return self._wrap(b"PING", tenths.to_bytes(2, "big") + context)

    def subscribe(self, topic: bytes) -> bytes:
        """The bytes by which a SUB asks for a topic."""
        return (
            self._wrap(b"SUBSCRIBE", topic)
            if self.minor
            else self.encode(frame(b"\1" + topic, False))
        )

    def cancel(self, topic: bytes) -> bytes:
        """The bytes by which a SUB gives up a topic."""
        return (
            self._wrap(b"CANCEL", topic) if self.minor else self.encode(frame(b"\0" + topic, False))
        )

    # -- greeting and handshake ---------------------------------------------------------------

    def _shake(self, data: bytes) -> bytes:
        """Obey greeting and handshake commands; the bytes behind them once all is done."""
        inbox = self._inbox
        inbox += data
        if not self._greeted and not self._greet():
            return b""
        while not self.ready:
            body = self._next_command()
            if body is None:
                return b""
            self._answer(body)
        rest = bytes(inbox)
        self._inbox = bytearray()
        self.reader.offset = self._read
        return rest

    def _greet(self) -> bool:
        """Check as much of the greeting as there is; true once it is complete."""
        inbox = self._inbox
        if not inbox:
            return False
        if inbox[0] != 0xFF or (len(inbox) > 9 and not inbox[9] & 1):
            raise RemoteProtocolError("not a ZMTP 3 greeting", 0)
        if len(inbox) > 10 and inbox[10] < _VERSION[0]:
            raise RemoteProtocolError(f"ZMTP {inbox[10] or 1} is too old, homing needs 3", 10)
        if len(inbox) < _GREETING_BYTES:
            return False
        self.minor = min(_VERSION[1], inbox[11]) if inbox[10] == _VERSION[0] else _VERSION[1]
        mechanism = bytes(inbox[12:32]).rstrip(b"\0")
        if mechanism != self._mechanism.name:
            ours = self._mechanism.name.decode()
            theirs = mechanism.decode("ascii", "backslashreplace")
            raise HandshakeRefused(f"the peer wants {theirs}, we speak {ours}")
        # libzmq leaves as-server zero on both sides, so only two that claim it are wrong.
        if inbox[32] and self._mechanism.server:
            raise RemoteProtocolError("both sides want to be the server", 32)
        del inbox[:_GREETING_BYTES]
        self._read = _GREETING_BYTES
        self._greeted = True
        self._out.append(self._handshake.start(self._metadata))
        return True

    def _next_command(self) -> bytes | None:
        """The body of the handshake's next command; None while it is not all there."""
        inbox = self._inbox
        if not inbox:
            return None
        flags = inbox[0]
        if flags not in (COMMAND, COMMAND | LONG):
            raise RemoteProtocolError("a message before the handshake is done", self._read)
        start = 9 if flags & LONG else 2
        if len(inbox) < start:
            return None
        end = start + int.from_bytes(inbox[1:start], "big")
        if self._read + end > self._limits.handshake:
            raise TooLargeOnWire(f"handshake over {self._limits.handshake} bytes", self._read)
        if len(inbox) < end:
            return None
        body = bytes(inbox[start:end])
        del inbox[:end]
        self._read += end
        return body

    def _answer(self, body: bytes) -> None:
        offset = self._read - len(body)
        if body.startswith(_LIBZMQ_ERROR):
            body = b"\x05ERROR" + body[len(_LIBZMQ_ERROR) :]
        name, rest = _split_command(body, offset)
        if name == b"ERROR":
            reason = rest[1 : 1 + rest[0]] if rest else b""
            told = reason.decode("ascii", "replace")
            raise HandshakeRefused(f"the peer refused our handshake with {told!r}")
        handshake = self._handshake
        self._out.append(handshake.receive(name, rest, offset))
        if handshake.refused:
            whom = f" {handshake.denied!r}" if handshake.denied else ""
            raise HandshakeRefused(f"refused the peer{whom} with {handshake.refused.decode()}")
        if handshake.peer_metadata is not None:
            self._admit(handshake.peer_metadata, offset)

    def _admit(self, metadata: dict[bytes, bytes], offset: int) -> None:
        peer_type = metadata.get(b"socket-type", b"").decode("ascii", "replace")
        if peer_type not in PARTNERS[self.socket_type]:
            raise RemoteProtocolError(
                f"a {self.socket_type} does not talk to {peer_type[:20]!r}", offset
            )
        identity = metadata.get(b"identity", b"")
        if len(identity) > MAX_IDENTITY or identity[:1] == b"\0":
            raise RemoteProtocolError("the peer's identity is too long or starts with zero", offset)
        self.peer_type = peer_type
        self.peer_identity = identity
        self.user = self._handshake.user
        self.cipher = self._handshake.cipher
        if self.cipher is not None:
            self.reader.watch = self.cipher.watch
        self.ready = True

    # -- traffic ------------------------------------------------------------------------------

    def _wrap(self, name: bytes, body: bytes) -> bytes:
        """A command as this connection sends it."""
        if not self.ready:
            raise LocalProtocolError("a command before the handshake is done")
        whole = command(name, body)
        if self.cipher is None:
            return whole
        return self.cipher.seal(COMMAND, whole[9 if whole[0] & LONG else 2 :])

    def _obey_all(self, images: list[bytes]) -> list[bytes]:
        """Obey the commands among these images; what is left are messages."""
        messages: list[bytes] = []
        for image in images:
            if image[0] & COMMAND:
                self._obey(image[9 if image[0] & LONG else 2 :], messages)
            else:
                messages.append(image)
        return messages

    def _obey(self, body: bytes, messages: list[bytes]) -> None:
        offset = self.reader.offset
        name, rest = _split_command(body, offset)
        if name == b"PING":
            if len(rest) < 2 or len(rest) > 18:
                raise RemoteProtocolError(
                    "a PING has a TTL and at most 16 bytes of context", offset
                )
            self.peer_ttl = int.from_bytes(rest[:2], "big") / 10
            self._pong(rest[2:])
        elif name == b"SUBSCRIBE":
            messages.append(frame(b"\1" + rest, False))
        elif name == b"CANCEL":
            messages.append(frame(b"\0" + rest, False))
        elif name == b"ERROR":
            raise RemoteProtocolError(f"the peer gave up: {rest[1:100]!r}", offset)
        # PONG says nothing that its arrival does not; unknown commands are for later versions.

    def _pong(self, context: bytes) -> None:
        # One chunk can hold thousands of PINGs; sixteen answers prove as much.
        if len(self._out) < 16:
            self._out.append(self._wrap(b"PONG", context))

    def _decrypt(self, images: list[bytes], cipher: Cipher) -> list[bytes]:
        """Open every frame, and put the messages inside together."""
        messages: list[bytes] = []
        offset = self.reader.offset
        inner = self._inner
        for image in images:
            if image[0] == CUT:
                flags, body = self.reader.watched.pop(0).flags(offset), b""
                self._inner_bytes += self._limits.message  # more than that, and past the limit
            elif image[0] & MORE:
                raise RemoteProtocolError("an encrypted frame with MORE in clear", offset)
            else:
                flags, body = cipher.open(image[9 if image[0] & LONG else 2 :], offset)
            if flags & COMMAND:
                self._obey(body, messages)
                continue
            self._inner_bytes += len(body) + (2 if len(body) <= SHORT_MAX else 9)
            self._inner_frames += 1
            if self._goes_by():
                self._keep_beginning(offset)
            else:
                inner.append(frame(body, bool(flags & MORE)))
            if not flags & MORE:
                whole = b"".join(inner)
                messages.append(cut(whole) if self._goes_by() else whole)
                inner.clear()
                self._inner_bytes = self._inner_frames = 0
        return messages

    def _goes_by(self) -> bool:
        """Whether the encrypted message under way breaks a limit."""
        limits = self._limits
        return self._inner_frames > limits.frames or self._inner_bytes > limits.message

    def _keep_beginning(self, offset: int) -> None:
        """Of a message that is too large only its first frames are kept, to tell whose it is."""
        if self._inner_bytes > self._limits.passed:
            raise TooLargeOnWire("message over a limit", offset)
        beginning = b"".join(self._inner)[:KEPT]
        self._inner[:] = [beginning] if beginning else []


def _greeting(mechanism: Mechanism) -> bytes:
    """Signature, version, mechanism, as-server, filler: 64 bytes."""
    name = mechanism.name.ljust(20, b"\0")
    return _SIGNATURE + bytes(_VERSION) + name + bytes((mechanism.server,)) + bytes(31)


def _split_command(body: bytes, offset: int) -> tuple[bytes, bytes]:
    """Name and data of a command."""
    end = 1 + body[0] if body else 0
    if end < 2 or end > len(body):
        raise RemoteProtocolError("a command without a name", offset)
    return body[1:end], body[end:]
