"""Two Connections talking, every pair and mechanism, and everything a peer can do wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import (
    Denied,
    HandshakeRefused,
    LocalProtocolError,
    QueueFull,
    RemoteProtocolError,
    TooLargeOnWire,
)
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import CUT, command, pack, unpack
from homing.wire.mechanisms import Mechanism, Null, PlainClient, PlainServer
from homing.wire.z85 import z85
from homing.wire.zmtp import PARTNERS, Connection, Limits

SERVER_KEYS = new_keys()
CLIENT_KEYS = new_keys()
PAIRS = [
    (ours, theirs) for ours in PARTNERS for theirs in sorted(PARTNERS[ours]) if theirs in PARTNERS
]


def check_password(user: str, password: str) -> str:
    if password != "right":
        raise Denied("no")
    return f"user:{user}"


def sides(name: str) -> tuple[Mechanism, Mechanism]:
    """The client's and the server's settings."""
    if name == "PLAIN":
        return PlainClient("ann", "right"), PlainServer(check_password)
    if name == "CURVE":
        return CurveClient(SERVER_KEYS[0], CLIENT_KEYS), CurveServer(SERVER_KEYS)
    return Null(), Null()


def converse(client: Connection, server: Connection, chunk: int = 1 << 20) -> None:
    """Carry bytes both ways until neither side has more to say."""
    while True:
        up, down = client.take(), server.take()
        if not up and not down:
            return
        for at in range(0, len(up), chunk):
            assert server.receive(up[at : at + chunk]) == []
        for at in range(0, len(down), chunk):
            assert client.receive(down[at : at + chunk]) == []


def trickle(to: Connection, stream: bytes, chunk: int) -> list[bytes]:
    """Let a connection have a stream in pieces."""
    got: list[bytes] = []
    for at in range(0, len(stream), chunk):
        got += to.receive(stream[at : at + chunk])
    return got


def connected(
    mechanism: str = "NULL",
    types: tuple[str, str] = ("DEALER", "ROUTER"),
    limits: Limits | None = None,
    chunk: int = 1 << 20,
) -> tuple[Connection, Connection]:
    ours, theirs = sides(mechanism)
    limits = limits or Limits()
    client = Connection(types[0], identity=b"alice", mechanism=ours, limits=limits)
    server = Connection(types[1], mechanism=theirs, limits=limits)
    converse(client, server, chunk)
    assert client.ready
    assert server.ready
    return client, server


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
@pytest.mark.parametrize("types", PAIRS, ids="-".join)
def test_every_pair_with_every_mechanism(
    types: tuple[str, str], mechanism: str, chunk: int
) -> None:
    client, server = connected(mechanism, types, chunk=chunk)
    assert (client.peer_type, server.peer_type) == (types[1], types[0])
    assert server.peer_identity == (b"alice" if types[0] in ("REQ", "DEALER", "ROUTER") else b"")
    image = pack([b"", b"x" * 300, b"last"])
    assert server.receive(client.encode(image)) == [image]
    assert client.receive(server.encode(image)) == [image]


@given(
    st.sampled_from(["NULL", "CURVE"]),
    st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=5),
    st.integers(1, 400),
)
def test_messages_arrive_whole_in_any_chunking(
    mechanism: str, messages: list[list[bytes]], chunk: int
) -> None:
    client, server = connected(mechanism)
    images = [pack(frames) for frames in messages]
    stream = b"".join(map(client.encode, images))
    assert trickle(server, stream, chunk) == images


def test_messages_may_follow_the_handshake_in_the_same_chunk() -> None:
    client, server = connected()
    stream = b"".join([*_greeting_and_ready(b"DEALER"), pack([b"a"]), pack([b"b"])])
    fresh = Connection("ROUTER")
    assert fresh.receive(stream) == [pack([b"a"]), pack([b"b"])]
    assert client.take() == server.take() == b""


def _greeting_and_ready(socket_type: bytes, *properties: bytes) -> list[bytes]:
    greeting = Connection("DEALER").take()
    body = b"\x0bSocket-Type" + len(socket_type).to_bytes(4, "big") + socket_type
    return [greeting, command(b"READY", body + b"".join(properties))]


def test_users_are_told() -> None:
    assert connected("PLAIN")[1].user == "user:ann"
    assert connected("CURVE")[1].user == z85(CLIENT_KEYS[0])
    assert connected("NULL")[1].user == ""


# -- versions ---------------------------------------------------------------------------------


def _peer_of_minor(minor: int, socket_type: str) -> Connection:
    """A connection whose peer has greeted with 3.<minor>."""
    partner = {"PUB": b"SUB", "SUB": b"PUB", "ROUTER": b"DEALER"}[socket_type]
    greeting, ready = _greeting_and_ready(partner)
    ours = Connection(socket_type)
    ours.receive(greeting[:11] + bytes((minor,)) + greeting[12:] + ready)
    assert ours.ready
    ours.take()
    return ours


def test_a_3_0_peer_gets_subscriptions_as_messages() -> None:
    assert _peer_of_minor(0, "SUB").subscribe(b"news") == b"\x00\x05\x01news"
    assert _peer_of_minor(0, "SUB").cancel(b"news") == b"\x00\x05\x00news"
    assert _peer_of_minor(1, "SUB").subscribe(b"news") == command(b"SUBSCRIBE", b"news")
    assert _peer_of_minor(7, "SUB").cancel(b"news") == command(b"CANCEL", b"news")


@pytest.mark.parametrize("minor", [0, 1])
def test_a_publisher_sees_both_forms_alike(minor: int) -> None:
    publisher = _peer_of_minor(minor, "PUB")
    assert publisher.receive(command(b"SUBSCRIBE", b"a") + command(b"CANCEL", b"a")) == [
        pack([b"\1a"]),
        pack([b"\0a"]),
    ]
    assert publisher.receive(pack([b"\1a"])) == [pack([b"\1a"])]


def test_a_later_major_is_met_as_3_1() -> None:
    greeting, ready = _greeting_and_ready(b"DEALER")
    ours = Connection("ROUTER")
    ours.receive(greeting[:10] + b"\x04\x00" + greeting[12:] + ready)
    assert ours.ready
    assert ours.minor == 1


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"\x01\x00", "not a ZMTP 3 greeting"),  # ZMTP 1: a length and flags
        (b"GET / HTTP/1.1\r\n", "not a ZMTP 3 greeting"),
        (b"\xff" + bytes(8) + b"\x00", "not a ZMTP 3 greeting"),  # ZMTP 1 with a long length
        (b"\xff" + bytes(8) + b"\x7f\x00", "too old"),
        (b"\xff" + bytes(8) + b"\x7f\x01\x05", "ZMTP 1 is too old"),  # libzmq 3.2: ZMTP 2.0
        (b"\xff" + bytes(8) + b"\x7f\x02", "ZMTP 2 is too old"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 100])
def test_what_is_not_zmtp_3_is_refused_at_the_first_byte_that_shows_it(
    start: bytes, message: str, chunk: int
) -> None:
    ours = Connection("ROUTER")
    with pytest.raises(RemoteProtocolError, match=message):
        trickle(ours, start, chunk)


# -- handshakes that fail -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(Denied("x"), b"400"), (QueueFull("x"), b"300"), (RuntimeError("x"), b"500")],
)
def test_a_refused_user_is_told_a_status(refusal: Exception, status: bytes) -> None:
    def refuse(user: str, password: str) -> str:
        raise refusal

    client = Connection("DEALER", mechanism=PlainClient("ann", "x"))
    server = Connection("ROUTER", mechanism=PlainServer(refuse))
    with pytest.raises(HandshakeRefused, match=status.decode()):
        converse(client, server)
    told = server.take()
    assert told.endswith(command(b"ERROR", b"\x03" + status))
    with pytest.raises(HandshakeRefused, match=status.decode()):
        client.receive(told)
    assert not server.ready


def test_a_curve_key_that_is_not_allowed_is_refused() -> None:
    def refuse(key: bytes) -> str:
        assert key == CLIENT_KEYS[0]
        raise Denied("not you")

    client = Connection("DEALER", mechanism=CurveClient(SERVER_KEYS[0], CLIENT_KEYS))
    server = Connection("ROUTER", mechanism=CurveServer(SERVER_KEYS, refuse))
    with pytest.raises(HandshakeRefused, match="400"):
        converse(client, server)
    with pytest.raises(HandshakeRefused, match="400"):
        client.receive(server.take())


def test_a_client_that_expects_another_server_key_is_refused() -> None:
    client = Connection("DEALER", mechanism=CurveClient(new_keys()[0]))
    server = Connection("ROUTER", mechanism=CurveServer(SERVER_KEYS))
    with pytest.raises(RemoteProtocolError, match="does not open"):
        converse(client, server)


def test_mechanisms_must_agree() -> None:
    with pytest.raises(HandshakeRefused, match="PLAIN"):
        converse(Connection("DEALER"), Connection("ROUTER", mechanism=PlainServer(check_password)))


def test_two_servers_do_not_talk() -> None:
    mechanism = PlainServer(check_password)
    with pytest.raises(RemoteProtocolError, match="server"):
        converse(
            Connection("DEALER", mechanism=mechanism), Connection("ROUTER", mechanism=mechanism)
        )


@pytest.mark.parametrize("ours", PARTNERS)
def test_types_that_do_not_fit_are_refused(ours: str) -> None:
    for theirs in ["PAIR", "", "router", "REQ\xff", *PARTNERS]:
        if theirs not in PARTNERS[ours]:
            fresh = Connection(ours)
            with pytest.raises(RemoteProtocolError, match="does not talk to"):
                fresh.receive(b"".join(_greeting_and_ready(theirs.encode("latin-1"))))


READY = b"\x0bSocket-Type\x00\x00\x00\x06DEALER"


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (pack([b"early"]), RemoteProtocolError),
        (b"\x08", RemoteProtocolError),
        (command(b"HELLO", b""), RemoteProtocolError),
        (command(b"READY", b"\x00\x00\x00\x00\x00"), RemoteProtocolError),
        (command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x07DEALER"), RemoteProtocolError),
        (command(b"READY", b"\x0bSocket"), RemoteProtocolError),
        (command(b"READY", READY + b"\x08Identity\x00\x00\x00\x02\x00a"), RemoteProtocolError),
        (
            command(b"READY", READY + b"\x08Identity\x00\x00\x01\x00" + b"a" * 256),
            RemoteProtocolError,
        ),
        (b"\x04\x00", RemoteProtocolError),
        (b"\x04\x01\x00", RemoteProtocolError),
        (b"\x04\x02\x05x", RemoteProtocolError),
        (b"\x06" + (1 << 40).to_bytes(8, "big"), TooLargeOnWire),
        (command(b"READY", bytes(9000)), TooLargeOnWire),
        (command(b"ERROR", b"\x03400"), HandshakeRefused),
        (command(b"ERROR"), HandshakeRefused),
    ],
)
def test_broken_handshakes(sent: bytes, error: type[Exception]) -> None:
    for chunk in (1, len(sent)):
        ours = Connection("ROUTER")
        ours.receive(Connection("DEALER").take())
        with pytest.raises(error) as caught:
            trickle(ours, sent, chunk)
        if isinstance(caught.value, RemoteProtocolError):
            assert caught.value.offset >= 64


def test_property_names_ignore_case() -> None:
    ours = Connection("ROUTER")
    ours.receive(Connection("DEALER").take())
    ours.receive(command(b"READY", READY.replace(b"Socket-Type", b"SOCKET-type")))
    assert ours.ready


@pytest.mark.parametrize(
    "hello", [b"", b"\x03ann", b"\x03ann\x09right", b"\x03ann\x05right!", b"\x01\xff\x00"]
)
def test_broken_plain_hellos(hello: bytes) -> None:
    server = Connection("ROUTER", mechanism=PlainServer(check_password))
    server.receive(Connection("DEALER", mechanism=PlainClient("", "")).take())
    with pytest.raises(RemoteProtocolError):
        server.receive(command(b"HELLO", hello))


@given(st.integers(0, 2), st.integers(0, 400), st.integers(1, 255))
def test_a_curve_handshake_with_one_byte_changed_never_succeeds(
    which: int, position: int, change: int
) -> None:
    client, server = (
        Connection("DEALER", mechanism=sides("CURVE")[0]),
        Connection("ROUTER", mechanism=sides("CURVE")[1]),
    )
    server.receive(client.take())
    client.receive(server.take())
    parties = [server, client, server]
    for step, to in enumerate(parties):
        sent = (client if to is server else server).take()
        if step == which:
            at = 2 + position % (len(sent) - 2)
            # HELLO's version minor and padding are not covered by any box.
            if step == 0 and 9 <= at < 82:
                return
            sent = sent[:at] + bytes((sent[at] ^ change,)) + sent[at + 1 :]
            with pytest.raises((RemoteProtocolError, HandshakeRefused)):
                trickle(to, sent + bytes(300), len(sent))
            assert not to.ready
            return
        to.receive(sent)


def test_curve_refuses_replayed_reordered_and_changed_messages() -> None:
    client, server = connected("CURVE")
    first, second = client.encode(pack([b"1"])), client.encode(pack([b"2"]))
    assert server.receive(second) == [pack([b"2"])]
    for bad in (second, first, pack([b"in clear"]), client.encode(pack([b"3"]))[:-1] + b"\0"):
        with pytest.raises(RemoteProtocolError):
            server.receive(bad)


def test_curve_limits_hold_inside_the_boxes() -> None:
    client, server = connected("CURVE", limits=Limits(message=1000, frames=3))
    assert server.receive(client.encode(pack([b"x"] * 3)))
    with pytest.raises(TooLargeOnWire):
        server.receive(client.encode(pack([b"x"] * 4)))
    client, server = connected("CURVE", limits=Limits(message=1000, frames=3))
    with pytest.raises(TooLargeOnWire):
        server.receive(client.encode(pack([b"x" * 600] * 2)))


PASSING = Limits(message=1000, frames=4, passed=100_000)
LARGE = [
    [b"", b"MDPC0X", b"echo", bytes(5000)],
    [b"", b"MDPC0X", b"echo", bytes(5000), b"more", bytes(2000), b""],
    [b"", b"MDPC0X", b"echo", bytes(600), bytes(600)],
    [b"", b"MDPC0X", b"echo", b"a", b"b"],
    [bytes(5000)],
]


@pytest.mark.parametrize("chunk", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_what_is_too_large_goes_by_whatever_the_mechanism(mechanism: str, chunk: int) -> None:
    client, server = connected(mechanism, limits=PASSING)
    small = pack([b"small"])
    for frames in LARGE:
        stream = client.encode(small) + client.encode(pack(frames)) + client.encode(small)
        before, left, after = trickle(server, stream, chunk)
        assert (before, after) == (small, small)
        assert left[0] == CUT
        if len(frames) > 1:
            assert unpack(left[1:])[:3] == frames[:3]


def test_what_goes_by_sealed_is_checked_as_what_is_opened() -> None:
    def sealed() -> tuple[Connection, bytes, int]:
        client, server = connected("CURVE", limits=PASSING)
        head = len(client.encode(pack([b"", b"more"]))) - len(client.encode(pack([b"more"])))
        return server, client.encode(pack([b"", bytes(5000), b"tail"])), head

    for place in (9, 9 + 8, 9 + 8 + 8, 9 + 33, 4000):  # name, nonce, tag, flags, body
        server, stream, start = sealed()
        changed = bytearray(stream)
        changed[start + place] ^= 1
        with pytest.raises(RemoteProtocolError):
            trickle(server, bytes(changed), 500)
    server, stream, start = sealed()
    large = stream[start : -(2 + 33 + 4)]
    trickle(server, stream[:start] + large, 500)
    with pytest.raises(RemoteProtocolError, match="does not grow"):
        trickle(server, large, 500)
    server, stream, start = sealed()
    in_clear = bytes((stream[start] | 1,)) + stream[start + 1 :]
    with pytest.raises(RemoteProtocolError):
        trickle(server, stream[:start] + in_clear, 500)


def test_sealed_frames_without_end_are_too_much_to_go_by() -> None:
    client, server = connected("CURVE", limits=PASSING)
    with pytest.raises(TooLargeOnWire):
        trickle(server, client.encode(pack([bytes(900)] * 200)), 5000)


@pytest.mark.parametrize("mechanism", ["NULL", "PLAIN", "CURVE"])
def test_the_limit_is_of_the_message_not_of_its_box(mechanism: str) -> None:
    client, server = connected(mechanism, limits=Limits(message=5000))
    largest = pack([bytes(5000 - 9)])
    assert server.receive(client.encode(largest)) == [largest]
    with pytest.raises(TooLargeOnWire):
        server.receive(client.encode(pack([bytes(5001)])))


# -- traffic ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["NULL", "CURVE"])
def test_a_ping_is_answered_with_its_context(mechanism: str) -> None:
    client, server = connected(mechanism)
    assert server.receive(client.ping(3.0, b"ctx")) == []
    assert server.peer_ttl == 3.0
    pong = server.take()
    if mechanism == "NULL":
        assert pong == command(b"PONG", b"ctx")
    assert client.receive(pong) == []
    assert client.take() == b""


def test_a_flood_of_pings_is_not_answered_one_by_one() -> None:
    client, server = connected()
    server.receive(client.ping(0, b"x" * 16) * 10_000)
    assert len(server.take()) < 1000


@pytest.mark.parametrize(
    "sent",
    [
        command(b"PING"),
        command(b"PING", b"\0\0" + bytes(17)),
        command(b"ERROR", b"\x03bad"),
        b"\x04\x00",
    ],
)
def test_broken_commands_in_traffic(sent: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        connected()[1].receive(sent)


def test_unknown_commands_are_left_alone() -> None:
    assert connected()[1].receive(command(b"FUTURE", b"?") + pack([b"x"])) == [pack([b"x"])]


def test_offsets_count_from_the_start_of_the_stream() -> None:
    greeting, ready = _greeting_and_ready(b"DEALER")
    server = Connection("ROUTER")
    server.receive(greeting + ready + pack([b"x"]))
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(b"\x08")
    assert caught.value.offset == len(greeting + ready + pack([b"x"]))


# -- our own mistakes ---------------------------------------------------------------------------


def test_nothing_can_be_sent_before_the_handshake() -> None:
    fresh = Connection("SUB")
    with pytest.raises(LocalProtocolError):
        fresh.encode(pack([b"x"]))
    with pytest.raises(LocalProtocolError):
        fresh.ping()
    with pytest.raises(LocalProtocolError):
        connected()[0].ping(0, bytes(17))


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="no socket type"):
        Connection("PAIR")
    for identity in (b"\0a", bytes(256), b"a" * 256):
        with pytest.raises(ValueError, match="identity"):
            Connection("DEALER", identity=identity)
    with pytest.raises(ValueError, match="255"):
        PlainClient("u" * 256, "")
    with pytest.raises(ValueError, match="CURVE key"):
        CurveClient(b"short")
    assert CurveClient(z85(SERVER_KEYS[0]).encode()).server_key == SERVER_KEYS[0]


def test_nothing_received_is_nothing() -> None:
    assert Connection("ROUTER").receive(b"") == []
    assert connected()[0].receive(b"") == []
