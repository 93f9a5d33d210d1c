"""Connection against libzmq (through pyzmq): both roles, every pair, mechanism and size."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import zmq

from homing.errors import HandshakeRefused
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import pack, unpack
from homing.wire.mechanisms import Mechanism, Null, PlainClient, PlainServer
from homing.wire.z85 import z85
from homing.wire.zmtp import Connection

PATIENCE = 20.0
SERVER_KEYS = new_keys()
CLIENT_KEYS = new_keys()
MECHANISMS = ["NULL", "PLAIN", "CURVE"]
# libzmq's side first. Every pair that homing uses, and each from the other end.
PAIRS = [
    ("ROUTER", "DEALER"),
    ("DEALER", "ROUTER"),
    ("REQ", "ROUTER"),
    ("ROUTER", "REQ"),
    ("ROUTER", "ROUTER"),
    ("REP", "DEALER"),
    ("DEALER", "REP"),
    ("REQ", "REP"),
    ("REP", "REQ"),
    ("PUB", "SUB"),
    ("SUB", "PUB"),
    ("XPUB", "SUB"),
    ("XSUB", "PUB"),
    ("PUSH", "PULL"),
    ("PULL", "PUSH"),
]


@pytest.fixture(scope="module")
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4096)
    context.setsockopt(zmq.LINGER, 0)
    zap = _Zap(context)
    yield context
    zap.stop()
    context.destroy(linger=0)


class _Zap(threading.Thread):
    """libzmq asks this whether to let a PLAIN or CURVE client in."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        super().__init__(daemon=True)
        self._socket = context.socket(zmq.REP)
        self._socket.bind("inproc://zeromq.zap.01")
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopping.is_set():
            if not self._socket.poll(50):
                continue
            ask = self._socket.recv_multipart()
            fine = ask[5] != b"PLAIN" or ask[7] == b"right"
            status = [b"200", b"OK"] if fine else [b"400", b"no"]
            # No user id: libzmq would push it as a message of its own, which its REQ drops the
            # connection for.
            self._socket.send_multipart([ask[0], ask[1], *status, b"", b""])
        self._socket.close(0)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Wire:
    """Our side: a Connection on a plain blocking socket."""

    def __init__(self, connection: Connection, stream: socket.socket) -> None:
        self.connection = connection
        self.stream = stream
        self.images: list[bytes] = []
        stream.settimeout(PATIENCE)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def shake(self) -> Wire:
        self.stream.sendall(self.connection.take())
        while not self.connection.ready:
            self.pump()
        return self

    def pump(self) -> None:
        data = self.stream.recv(1 << 18)
        if not data:
            raise ConnectionError("libzmq hung up")
        try:
            self.images += self.connection.receive(data)
        finally:
            self.stream.sendall(self.connection.take())

    def send(self, *frames: bytes) -> None:
        self.stream.sendall(self.connection.encode(pack(frames)))

    def recv(self) -> list[bytes]:
        while not self.images:
            self.pump()
        return unpack(self.images.pop(0))


def our_side(mechanism: str, server: bool) -> Mechanism:
    if mechanism == "PLAIN":
        return PlainServer(_admit) if server else PlainClient("ann", "right")
    if mechanism == "CURVE":
        return CurveServer(SERVER_KEYS) if server else CurveClient(SERVER_KEYS[0], CLIENT_KEYS)
    return Null()


def _admit(user: str, password: str) -> str:
    assert (user, password) == ("ann", "right")
    return user


def prepare(theirs: zmq.Socket[bytes], mechanism: str, server: bool) -> None:
    theirs.linger = 0
    theirs.rcvtimeo = theirs.sndtimeo = int(PATIENCE * 1000)
    if mechanism == "PLAIN" and server:
        theirs.plain_server = True
        theirs.zap_domain = b"test"
    elif mechanism == "PLAIN":
        theirs.plain_username, theirs.plain_password = b"ann", b"right"
    elif mechanism == "CURVE" and server:
        theirs.curve_server = True
        theirs.curve_secretkey = z85(SERVER_KEYS[1]).encode()
    elif mechanism == "CURVE":
        theirs.curve_serverkey = z85(SERVER_KEYS[0]).encode()
        theirs.curve_publickey = z85(CLIENT_KEYS[0]).encode()
        theirs.curve_secretkey = z85(CLIENT_KEYS[1]).encode()


@contextlib.contextmanager
def met(
    context: zmq.Context[zmq.Socket[bytes]],
    pair: tuple[str, str],
    mechanism: str,
    they_bind: bool,
    **options: int,
) -> Iterator[tuple[zmq.Socket[bytes], Wire]]:
    """libzmq's socket and our wire, through the handshake."""
    theirs = context.socket(getattr(zmq, pair[0]))
    prepare(theirs, mechanism, server=they_bind)
    for name, value in options.items():
        theirs.setsockopt(getattr(zmq, name), value)
    if pair[0] in ("SUB", "XSUB"):
        subscribe(theirs, pair[0])
    if pair[0] != "PUB" and pair[0] != "PUSH" and pair[0] != "XPUB":
        theirs.routing_id = b"them"
    ours = Connection(pair[1], identity=b"us", mechanism=our_side(mechanism, server=not they_bind))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if they_bind:
            port = theirs.bind_to_random_port("tcp://127.0.0.1")
            stream = socket.create_connection(("127.0.0.1", port))
        else:
            theirs.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            stream = listener.accept()[0]
    with stream:
        try:
            yield theirs, Wire(ours, stream).shake()
        finally:
            theirs.close(0)


def subscribe(theirs: zmq.Socket[bytes], kind: str) -> None:
    if kind == "SUB":
        theirs.setsockopt(zmq.SUBSCRIBE, b"")
    else:
        theirs.send(b"\1")


def to_us(theirs: zmq.Socket[bytes], kind: str, ours: Wire, frames: list[bytes]) -> list[bytes]:
    """libzmq sends; what arrived, without the envelope its socket type adds."""
    if kind == "ROUTER":
        _route(theirs, [b"us", *frames])
    else:
        theirs.send_multipart(frames)
    got = ours.recv()
    return got[1:] if kind == "REQ" else got


def _route(theirs: zmq.Socket[bytes], frames: list[bytes]) -> None:
    """A ROUTER may not have read our READY yet: it says so when asked to, try again."""
    theirs.router_mandatory = 1
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            theirs.send_multipart(frames)
            return
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH or time.monotonic() > deadline:
                raise
        time.sleep(0.001)


def to_them(theirs: zmq.Socket[bytes], kind: str, ours: Wire, frames: list[bytes]) -> list[bytes]:
    """We send, with the envelope its socket type needs; what libzmq's application got."""
    ours.send(*([b"", *frames] if kind in ("REQ", "REP") else frames))
    got = theirs.recv_multipart()
    return got[1:] if kind == "ROUTER" else got


@pytest.mark.parametrize("they_bind", [True, False], ids=["they-bind", "we-bind"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_pair(
    context: zmq.Context[zmq.Socket[bytes]], pair: tuple[str, str], mechanism: str, they_bind: bool
) -> None:
    kind = pair[0]
    frames = [b"one", b"", b"x" * 300]
    with met(context, pair, mechanism, they_bind) as (theirs, ours):
        assert ours.connection.peer_type == kind
        if kind in ("PUB", "XPUB"):
            ours.stream.sendall(ours.connection.subscribe(b""))
            _until_subscribed(theirs, kind, ours)
        if kind in ("SUB", "XSUB"):
            assert _their_subscription(theirs, ours) == [b"\1"]
        if kind in ("REP", "PULL", "SUB", "XSUB"):
            assert to_them(theirs, kind, ours, frames) == frames
        if kind not in ("PULL", "SUB", "XSUB"):
            if kind == "REP":
                theirs.send_multipart(frames)
                assert ours.recv() == [b"", *frames]
            else:
                assert to_us(theirs, kind, ours, frames) == frames
        if kind in ("ROUTER", "DEALER", "REQ"):
            assert to_them(theirs, kind, ours, frames) == frames
            assert ours.connection.peer_identity == b"them"


def _their_subscription(theirs: zmq.Socket[bytes], ours: Wire) -> list[bytes]:
    """A bound SUB tells a new peer its topics only when its application next looks at it."""
    deadline = time.monotonic() + PATIENCE
    ours.stream.settimeout(0.01)
    while not ours.images and time.monotonic() < deadline:
        theirs.poll(0)
        with contextlib.suppress(TimeoutError):
            ours.pump()
    ours.stream.settimeout(PATIENCE)
    return ours.recv()


def _until_subscribed(theirs: zmq.Socket[bytes], kind: str, ours: Wire) -> None:
    """A PUB does not say when it has a subscription: publish until one comes through."""
    if kind == "XPUB":
        assert theirs.recv() == b"\1"
        return
    ours.stream.settimeout(0.02)
    deadline = time.monotonic() + PATIENCE
    while not ours.images and time.monotonic() < deadline:
        theirs.send(b"probe")
        with contextlib.suppress(TimeoutError):
            ours.pump()
    ours.stream.settimeout(PATIENCE)
    theirs.send(b"end")
    while ours.recv() != [b"end"]:
        pass


SIZES = [1, 255, 256, 65_536, 1 << 20, 16 << 20]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("they_bind", [True, False], ids=["they-bind", "we-bind"])
def test_every_size(
    context: zmq.Context[zmq.Socket[bytes]], mechanism: str, they_bind: bool
) -> None:
    with met(context, ("DEALER", "ROUTER"), mechanism, they_bind) as (theirs, ours):
        for size in SIZES:
            frames = [b"head", os.urandom(size)]
            theirs.send_multipart(frames)
            assert ours.recv() == frames
            sender = threading.Thread(target=ours.send, args=frames)
            sender.start()
            assert theirs.recv_multipart() == frames
            sender.join()


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_libzmq_s_heartbeats_are_answered(
    context: zmq.Context[zmq.Socket[bytes]], mechanism: str
) -> None:
    """libzmq hangs up on a peer that leaves its PINGs unanswered; a second of it is 50 PINGs."""
    options = {"HEARTBEAT_IVL": 20, "HEARTBEAT_TIMEOUT": 200, "HEARTBEAT_TTL": 1000}
    with met(context, ("DEALER", "ROUTER"), mechanism, True, **options) as (theirs, ours):
        ours.stream.settimeout(0.05)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                ours.pump()
        assert ours.connection.peer_ttl == 1.0
        theirs.send(b"still here")
        ours.stream.settimeout(PATIENCE)
        assert ours.recv() == [b"still here"]


def test_libzmq_answers_our_ping(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with met(context, ("DEALER", "ROUTER"), "NULL", True) as (_theirs, ours):
        ours.stream.sendall(ours.connection.ping(1.0, b"context"))
        assert ours.stream.recv(100) == b"\x04\x0c\x04PONGcontext"


def test_libzmq_s_refusal_is_understood(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    theirs = context.socket(zmq.ROUTER)
    prepare(theirs, "PLAIN", server=True)
    port = theirs.bind_to_random_port("tcp://127.0.0.1")
    ours = Connection("DEALER", mechanism=PlainClient("ann", "wrong"))
    stream = socket.create_connection(("127.0.0.1", port))
    with stream, pytest.raises(HandshakeRefused, match="400"):
        Wire(ours, stream).shake()
    theirs.close(0)


def test_subscriptions_filter_in_libzmq(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with met(context, ("XPUB", "SUB"), "NULL", True) as (theirs, ours):
        ours.stream.sendall(ours.connection.subscribe(b"a") + ours.connection.subscribe(b"b"))
        assert [theirs.recv(), theirs.recv()] == [b"\1a", b"\1b"]
        ours.stream.sendall(ours.connection.cancel(b"a"))
        assert theirs.recv() == b"\0a"
        for topic in (b"a1", b"b1"):
            theirs.send(topic)
        assert ours.recv() == [b"b1"]


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
def test_thousands_of_connections_opened_and_closed(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    """1 000 from us to libzmq, 1 000 the other way; each carries a message, none stays behind."""
    before = _open_files()
    theirs = context.socket(zmq.ROUTER)
    prepare(theirs, "NULL", server=True)
    port = theirs.bind_to_random_port("tcp://127.0.0.1")
    for number in range(1000):
        with socket.create_connection(("127.0.0.1", port)) as stream:
            Wire(Connection("DEALER"), stream).shake().send(b"%d" % number)
            assert theirs.recv_multipart()[1] == b"%d" % number
    theirs.close(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        for number in range(1000):
            theirs = context.socket(zmq.DEALER)
            prepare(theirs, "NULL", server=False)
            theirs.connect(endpoint)
            theirs.send(b"%d" % number)
            with listener.accept()[0] as stream:
                assert Wire(Connection("ROUTER"), stream).shake().recv() == [b"%d" % number]
            theirs.close(0)
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while _open_files() > before + 8 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _open_files() <= before + 8
