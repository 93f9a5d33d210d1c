"""CURVE (CurveZMQ, RFC 26): both sides prove a key, and everything after is encrypted.

    client: HELLO     C', box of zeros C'→S             proves it knows the server's key
    server: WELCOME   box S→C' of S' and a cookie       the cookie holds C' and s', sealed
    client: INITIATE  cookie, box C'→S' of C, vouch and metadata
    server: READY     box S'→C' of metadata
    both:   MESSAGE   box C'↔S' of flags and body, one for each frame

Capital letters are public keys, primes the short-term ones made for this connection alone: who
steals S and s later can read nothing of what was recorded. Every nonce is a fixed prefix and
either a counter that only grows or random bytes, so none is ever used twice.
"""

from __future__ import annotations

from collections.abc import Callable

from nacl.bindings import (
    crypto_box,
    crypto_box_afternm,
    crypto_box_beforenm,
    crypto_box_keypair,
    crypto_box_open,
    crypto_box_open_afternm,
    crypto_secretbox,
    crypto_secretbox_open,
    randombytes,
)
from nacl.exceptions import CryptoError

from homing.errors import RemoteProtocolError
from homing.wire.boxes import PassingBox
from homing.wire.frames import COMMAND, LONG, MORE, command, frame
from homing.wire.mechanisms import Cipher, Handshake, Mechanism, Watched, expect, parse_metadata
from homing.wire.z85 import from_z85, z85

KEY_BYTES = 32
_HELLO_BYTES = 194
_WELCOME_BYTES = 160
_COOKIE_BYTES = 96
_VOUCH_BYTES = 96
_BOX_OVERHEAD = 16
# Inside a MESSAGE box ZMTP's COMMAND flag is bit 1, where LONG is outside.
_BOXED_COMMAND = 0x02
_MESSAGE = b"\x07MESSAGE"

# MESSAGE and its nonce, the box, and the flags inside.
_BODY_AT = len(_MESSAGE) + 8 + _BOX_OVERHEAD
_OVERHEAD = _BODY_AT + 1

KeyPair = tuple[bytes, bytes]  # public, secret


def new_keys() -> KeyPair:
    """A fresh public and secret key."""
    public, secret = crypto_box_keypair()
    return public, secret


class CurveClient(Mechanism):
    """Connects to a server whose public key is known."""

    name = b"CURVE"
    overhead = _OVERHEAD

    def __init__(
        self,
        server_key: bytes,
        keys: KeyPair | None = None,
        *,
        make_keys: Callable[[], KeyPair] = new_keys,
        entropy: Callable[[int], bytes] = randombytes,
    ) -> None:
        """`keys` is our long-term pair; without it we come as nobody in particular."""
        self.server_key = checked_key(server_key)
        self.keys = checked_pair(keys or make_keys())
        self.make_keys = make_keys
        self.entropy = entropy

    def handshake(self) -> Handshake:
        return _ClientHandshake(self)


class CurveServer(Mechanism):
    """Accepts clients that know our public key.

    `authenticate(client_key)` returns the name to know the peer by, or raises Denied; without
    it every key is let in and named by its Z85 text.
    """

    name = b"CURVE"
    server = True
    overhead = _OVERHEAD

    def __init__(
        self,
        keys: KeyPair,
        authenticate: Callable[[bytes], str] | None = None,
        *,
        make_keys: Callable[[], KeyPair] = new_keys,
        entropy: Callable[[int], bytes] = randombytes,
    ) -> None:
        self.keys = checked_pair(keys)
        self.authenticate = authenticate or z85
        self.make_keys = make_keys
        self.entropy = entropy

    def handshake(self) -> Handshake:
        return _ServerHandshake(self)


class _CurveHandshake(Handshake):
    """What both sides do: short-term keys, the session's box, and growing nonces."""

    def __init__(self, settings: CurveClient | CurveServer) -> None:
        super().__init__()
        self._entropy = settings.entropy
        self._public, self._secret = settings.make_keys()
        self._metadata = b""
        self._sent = 0
        self._received = 0

    def start(self, metadata: bytes) -> bytes:
        self._metadata = metadata
        return b""

    def _next_nonce(self) -> bytes:
        self._sent += 1
        return self._sent.to_bytes(8, "big")

    def _take_nonce(self, nonce: bytes, offset: int) -> None:
        value = int.from_bytes(nonce, "big")
        if value <= self._received:
            raise RemoteProtocolError("a nonce that does not grow", offset)
        self._received = value


class _ClientHandshake(_CurveHandshake):
    def __init__(self, settings: CurveClient) -> None:
        super().__init__(settings)
        self._server_key = settings.server_key
        self._keys = settings.keys
        self._session = b""

    def start(self, metadata: bytes) -> bytes:
        self._metadata = metadata
        nonce = self._next_nonce()
        proof = crypto_box(bytes(64), b"CurveZMQHELLO---" + nonce, self._server_key, self._secret)
        return command(b"HELLO", b"\1\0" + bytes(72) + self._public + nonce + proof)

    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        if not self._session:
            expect(name, b"WELCOME", offset)
            return self._initiate(body, offset)
        expect(name, b"READY", offset)
        if len(body) < 8 + _BOX_OVERHEAD:
            raise RemoteProtocolError("READY is too short", offset)
        nonce = b"CurveZMQREADY---" + body[:8]
        metadata = opened(crypto_box_open_afternm, body[8:], nonce, self._session, offset=offset)
        self._take_nonce(body[:8], offset)
        self.peer_metadata = parse_metadata(metadata, offset)
        self.cipher = CurveCipher(self._session, False, self._sent, self._received)
        return b""

    def _initiate(self, body: bytes, offset: int) -> bytes:
        if len(body) != _WELCOME_BYTES:
            raise RemoteProtocolError("WELCOME has the wrong length", offset)
        plain = opened(
            crypto_box_open,
            body[16:],
            b"WELCOME-" + body[:16],
            self._server_key,
            self._secret,
            offset=offset,
        )
        server_short, cookie = plain[:KEY_BYTES], plain[KEY_BYTES:]
        self._session = shared(server_short, self._secret, offset)
        public, secret = self._keys
        salt = self._entropy(16)
        vouch = crypto_box(
            self._public + self._server_key, b"VOUCH---" + salt, server_short, secret
        )
        nonce = self._next_nonce()
        box = crypto_box_afternm(
            public + salt + vouch + self._metadata, b"CurveZMQINITIATE" + nonce, self._session
        )
        return command(b"INITIATE", cookie + nonce + box)


class _ServerHandshake(_CurveHandshake):
    def __init__(self, settings: CurveServer) -> None:
        super().__init__(settings)
        self._keys = settings.keys
        self._authenticate = settings.authenticate
        self._cookie_key = self._entropy(32)
        self._client_short = b""

    def receive(self, name: bytes, body: bytes, offset: int) -> bytes:
        if not self._client_short:
            expect(name, b"HELLO", offset)
            return self._welcome(body, offset)
        expect(name, b"INITIATE", offset)
        return self._ready(body, offset)

    def _welcome(self, body: bytes, offset: int) -> bytes:
        if len(body) != _HELLO_BYTES or body[0] != 1:
            raise RemoteProtocolError("HELLO has the wrong length or version", offset)
        client_short, nonce, proof = body[74:106], body[106:114], body[114:]
        secret = self._keys[1]
        zeros = opened(
            crypto_box_open,
            proof,
            b"CurveZMQHELLO---" + nonce,
            client_short,
            secret,
            offset=offset,
        )
        if any(zeros):
            raise RemoteProtocolError("HELLO proves nothing", offset)
        self._take_nonce(nonce, offset)
        self._client_short = client_short
        salt = self._entropy(16)
        cookie = salt + crypto_secretbox(
            client_short + self._secret, b"COOKIE--" + salt, self._cookie_key
        )
        salt = self._entropy(16)
        box = crypto_box(self._public + cookie, b"WELCOME-" + salt, client_short, secret)
        return command(b"WELCOME", salt + box)

    def _ready(self, body: bytes, offset: int) -> bytes:
        if len(body) < _COOKIE_BYTES + 8 + _BOX_OVERHEAD + KEY_BYTES + _VOUCH_BYTES:
            raise RemoteProtocolError("INITIATE is too short", offset)
        cookie, nonce, box = body[:96], body[96:104], body[104:]
        kept = opened(
            crypto_secretbox_open,
            cookie[16:],
            b"COOKIE--" + cookie[:16],
            self._cookie_key,
            offset=offset,
        )
        if kept != self._client_short + self._secret:
            raise RemoteProtocolError("the cookie is of another connection", offset)
        session = shared(self._client_short, self._secret, offset)
        plain = opened(
            crypto_box_open_afternm, box, b"CurveZMQINITIATE" + nonce, session, offset=offset
        )
        self._take_nonce(nonce, offset)
        client_key = plain[:KEY_BYTES]
        self._check_vouch(client_key, plain[KEY_BYTES : KEY_BYTES + _VOUCH_BYTES], offset)
        refusal = self.admit(lambda: self._authenticate(client_key))
        if refusal:
            return refusal
        self.peer_metadata = parse_metadata(plain[KEY_BYTES + _VOUCH_BYTES :], offset)
        answer = self._next_nonce()
        box = crypto_box_afternm(self._metadata, b"CurveZMQREADY---" + answer, session)
        self.cipher = CurveCipher(session, True, self._sent, self._received)
        return command(b"READY", answer + box)

    def _check_vouch(self, client_key: bytes, vouch: bytes, offset: int) -> None:
        """The long-term key says that the short-term key is its own, and meant for us."""
        plain = opened(
            crypto_box_open,
            vouch[16:],
            b"VOUCH---" + vouch[:16],
            client_key,
            self._secret,
            offset=offset,
        )
        if plain != self._client_short + self._keys[0]:
            raise RemoteProtocolError("the vouch is for another key", offset)


class CurveCipher(Cipher):
    """MESSAGE boxes, each with the next nonce; one that does not grow is a replay."""

    __slots__ = ("_from_us", "_received", "_sent", "_session", "_to_us")

    def __init__(self, session: bytes, server: bool, sent: int, received: int) -> None:
        to_client, to_server = b"CurveZMQMESSAGES", b"CurveZMQMESSAGEC"
        self._from_us, self._to_us = (to_client, to_server) if server else (to_server, to_client)
        self._session = session
        self._sent = sent
        self._received = received

    def seal(self, flags: int, body: bytes) -> bytes:
        self._sent += 1
        nonce = self._sent.to_bytes(8, "big")
        boxed = bytes((flags & MORE | (_BOXED_COMMAND if flags & COMMAND else 0),))
        box = crypto_box_afternm(boxed + body, self._from_us + nonce, self._session)
        return frame(_MESSAGE + nonce + box, False)

    def open(self, body: bytes, offset: int) -> tuple[int, bytes]:
        if not body.startswith(_MESSAGE) or len(body) < _OVERHEAD:
            raise RemoteProtocolError("not a MESSAGE where only those are allowed", offset)
        nonce = body[8:16]
        self._check(nonce, offset)
        plain = opened(
            crypto_box_open_afternm, body[16:], self._to_us + nonce, self._session, offset=offset
        )
        self._received = int.from_bytes(nonce, "big")
        return unboxed(plain[0]), plain[1:]

    def watch(self) -> Watched:
        return _WatchedMessage(self)

    def passing(self, start: bytes) -> PassingBox:
        """The box of a MESSAGE, of which as much is there as stands before its second byte."""
        nonce, tag = self._to_us + start[8:16], start[16:_BODY_AT]
        return PassingBox(self._session, nonce, tag, start[_BODY_AT])

    def passed(self, nonce: bytes, offset: int) -> None:
        """A box has gone by that is genuine."""
        self._check(nonce, offset)
        self._received = int.from_bytes(nonce, "big")

    def _check(self, nonce: bytes, offset: int) -> None:
        if int.from_bytes(nonce, "big") <= self._received:
            raise RemoteProtocolError("a nonce that does not grow", offset)


class _WatchedMessage(Watched):
    """A MESSAGE that goes by."""

    def __init__(self, cipher: CurveCipher) -> None:
        self._cipher = cipher
        self._start = b""  # its header, MESSAGE, nonce and tag
        self._box: PassingBox | None = None

    def feed(self, data: bytes) -> None:
        if self._box is None:
            self._start += data
            body = _header_bytes(self._start) + _BODY_AT
            if len(self._start) <= body:
                return
            self._box = self._cipher.passing(self._start[body - _BODY_AT :])
            self._start, data = self._start[:body], self._start[body:]
        self._box.feed(data)

    def flags(self, offset: int) -> int:
        box, message = self._box, self._start[_header_bytes(self._start) :]
        if box is None or self._start[0] & MORE or not message.startswith(_MESSAGE):
            raise RemoteProtocolError("not a MESSAGE where only those are allowed", offset)
        if not box.genuine():
            raise RemoteProtocolError("a box that does not open", offset)
        self._cipher.passed(message[8:16], offset)
        return unboxed(box.first)


def _header_bytes(frame_: bytes) -> int:
    return 9 if frame_[:1] and frame_[0] & LONG else 2


def unboxed(flags: int) -> int:
    """Flags as they are outside of a box."""
    return flags & MORE | (COMMAND if flags & _BOXED_COMMAND else 0)


def opened(opener: Callable[..., bytes], *arguments: bytes, offset: int) -> bytes:
    """Open a box, or say that it was not meant for us or has been tampered with."""
    try:
        return opener(*arguments)
    except (CryptoError, ValueError):
        raise RemoteProtocolError("a box that does not open", offset) from None


def shared(public: bytes, secret: bytes, offset: int) -> bytes:
    """The key two sides have in common; some public keys are no keys."""
    try:
        key: bytes = crypto_box_beforenm(public, secret)
    except (CryptoError, ValueError):
        raise RemoteProtocolError("a public key that is no key", offset) from None
    return key


def checked_key(key: bytes) -> bytes:
    """A key of 32 bytes, or given as its 40 characters of Z85."""
    if len(key) == 40:
        key = from_z85(key.decode("ascii"))
    if len(key) != KEY_BYTES:
        raise ValueError(f"a CURVE key is 32 bytes or 40 characters of Z85, got {len(key)}")
    return key


def checked_pair(keys: KeyPair) -> KeyPair:
    """Both keys of a pair, checked."""
    return checked_key(keys[0]), checked_key(keys[1])
