"""ZMTP against recorded bytes: derived by hand from RFC 37, and CURVE as libzmq sent it."""

from __future__ import annotations

import hashlib

import pytest
from nacl.bindings import crypto_scalarmult_base

from homing.errors import HandshakeRefused
from homing.wire.curve import CurveClient, CurveServer, KeyPair
from homing.wire.frames import pack, unpack
from homing.wire.mechanisms import PlainClient, PlainServer
from homing.wire.z85 import z85
from homing.wire.zmtp import Connection
from tests.compat import load


def dealer() -> Connection:
    return Connection("DEALER", identity=b"alice")


def greeted(ours: Connection, greeting: str = "greeting-null") -> Connection:
    ours.receive(load(f"zmtp/{greeting}"))
    ours.take()
    return ours


def met(ours: Connection, ready: str = "ready-dealer") -> Connection:
    greeted(ours).receive(load(f"zmtp/{ready}"))
    assert ours.ready
    return ours


def test_what_a_dealer_says_first() -> None:
    ours = dealer()
    assert ours.take() == load("zmtp/greeting-null")
    ours.receive(load("zmtp/greeting-null"))
    assert ours.take() == load("zmtp/ready-dealer")


def test_what_a_publisher_says_of_itself() -> None:
    ours = Connection("PUB")
    ours.receive(load("zmtp/greeting-null"))
    assert ours.take() == load("zmtp/greeting-null") + load("zmtp/ready-pub")


def test_a_router_learns_who_the_dealer_is() -> None:
    ours = met(Connection("ROUTER"))
    assert (ours.peer_type, ours.peer_identity, ours.minor) == ("DEALER", b"alice", 1)


def test_the_greeting_of_a_3_0_libzmq() -> None:
    ours = greeted(Connection("ROUTER"), "greeting-3.0-libzmq")
    ours.receive(load("zmtp/ready-dealer"))
    assert ours.ready
    assert ours.minor == 0


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("message-mdp", [b"", b"MDPC0X", b"echo", b"hello"]),
        ("message-long", [b"a" * 255, b"b" * 256]),
    ],
)
def test_messages(name: str, frames: list[bytes]) -> None:
    image = load(f"zmtp/{name}")
    ours = met(Connection("ROUTER"))
    assert ours.receive(image) == [image]
    assert unpack(image) == frames
    assert ours.encode(pack(frames)) == image


def test_a_ping_inside_a_message() -> None:
    ours = met(Connection("ROUTER"))
    ours.take()
    assert ours.receive(load("zmtp/ping-inside-message")) == [pack([b"a", b"b"])]
    assert ours.peer_ttl == 3.0
    assert ours.take() == load("zmtp/pong")


def test_subscriptions_in_both_versions() -> None:
    asked = [pack([b"\1news"]), pack([b"\0news"]), pack([b"\1"])]
    for version in ("3.1", "3.0"):
        publisher = greeted(Connection("PUB"))
        publisher.receive(b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB")
        assert publisher.receive(load(f"zmtp/subscriptions-{version}")) == asked
    subscriber = met(Connection("SUB"), "ready-pub")
    sent = subscriber.subscribe(b"news") + subscriber.cancel(b"news") + subscriber.subscribe(b"")
    assert sent == load("zmtp/subscriptions-3.1")
    subscriber.minor = 0
    sent = subscriber.subscribe(b"news") + subscriber.cancel(b"news") + subscriber.subscribe(b"")
    assert sent == load("zmtp/subscriptions-3.0")


def test_a_plain_conversation_from_both_sides() -> None:
    def check(user: str, password: str) -> str:
        assert password == "s3cret-pw"
        return user

    client = Connection("DEALER", identity=b"alice", mechanism=PlainClient("admin", "s3cret-pw"))
    server = Connection("ROUTER", mechanism=PlainServer(check))
    greeting = client.take()
    assert server.take() == load("zmtp/greeting-plain-server")
    client.receive(load("zmtp/greeting-plain-server"))
    hello = client.take()
    client.receive(load("zmtp/plain-server"))
    assert hello + client.take() == load("zmtp/plain-client")
    server.receive(greeting + load("zmtp/plain-client"))
    assert server.take() == load("zmtp/plain-server")
    assert client.ready
    assert server.ready
    assert server.user == "admin"


@pytest.mark.parametrize("recording", ["error-400", "error-400-libzmq"])
def test_an_error_ends_the_handshake(recording: str) -> None:
    with pytest.raises(HandshakeRefused, match="400"):
        greeted(dealer()).receive(load(f"zmtp/{recording}"))


# -- CURVE as libzmq 4.3.5 sent it; keys and entropy as the recordings' headers say ---------------


def keys(label: str) -> KeyPair:
    secret = hashlib.sha256(label.encode()).digest()
    return crypto_scalarmult_base(secret), secret


def entropy(size: int) -> bytes:
    return hashlib.sha256(b"entropy").digest()[:size]


def test_a_curve_server_reads_what_libzmq_s_client_sent() -> None:
    mechanism = CurveServer(keys("server"), make_keys=lambda: keys("server short"), entropy=entropy)
    ours = Connection("ROUTER", mechanism=mechanism)
    assert ours.receive(load("zmtp/curve-libzmq-client")) == [pack([b"", b"hello"])]
    assert ours.user == z85(keys("client")[0])
    assert ours.peer_identity == b"alice"


def test_a_curve_client_and_libzmq_s_server() -> None:
    mechanism = CurveClient(
        keys("server")[0], keys("client"), make_keys=lambda: keys("client short"), entropy=entropy
    )
    ours = Connection("DEALER", identity=b"alice", mechanism=mechanism)
    recorded = load("zmtp/curve-libzmq-server")
    # Its last two frames, 33 and 40 bytes long and 2 of header each, answer our message.
    handshake, answer = recorded[:-77], recorded[-77:]
    ours.receive(handshake)
    sent = ours.take() + ours.encode(pack([b"", b"hello"]))
    assert sent == load("zmtp/curve-our-client")
    assert ours.receive(answer) == [pack([b"", b"welcome"])]
