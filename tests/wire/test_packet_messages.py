"""The typed messages of each push plane link, against recorded bytes and random values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed, RemoteProtocolError
from homing.ids import ID_BYTES
from homing.wire import packet, publish, relay, status
from homing.wire.assembly import Assembler
from homing.wire.packet import Message
from tests.compat import load

MSG = bytes.fromhex("650000000102030405000001")
CLIENT_A = b"client-aaaaa"
CLIENT_B = b"client-bbbbb"
C1 = bytes.fromhex("00000000000000c1")
C2 = bytes.fromhex("00000000000000c2")


def messages(data: bytes, key: int = relay.MESSAGE_ID) -> list[Message]:
    assembler = Assembler(key)
    whole = assembler.receive(data, 0.0)
    assert assembler.take() == b""
    return whole


def test_publish_as_recorded() -> None:
    data = load("packet/publish")
    [message] = messages(data, publish.MESSAGE_ID)
    typed = publish.from_publisher(message)
    attributes = b'{"price": 12.5, "city": "Paris"}'
    assert typed == publish.Publish(attributes, b"hello\r\n\x00\xff\\x", MSG)
    assert typed.encode() == data


def test_answers_to_a_publisher_as_recorded() -> None:
    for name, typed in (
        ("packet/accepted", publish.Accepted(MSG, 3)),
        ("packet/refused", publish.Refusal(MSG, "queue-full ")),
    ):
        [message] = messages(load(name), publish.MESSAGE_ID)
        assert publish.from_matcher(message) == typed
        assert typed.encode() == load(name)


def test_dispatch_and_redirect_as_recorded() -> None:
    dispatch = relay.Push(MSG, b"hi", CLIENT_A + C1 + CLIENT_B + C2, b"")
    redirect = relay.Push(MSG, b"hi", CLIENT_A + C1, b"{}", redirected=True)
    for name, typed in (("packet/dispatch", dispatch), ("packet/redirect", redirect)):
        [message] = messages(load(name))
        assert relay.decode(message) == typed
        assert typed.encode() == load(name)


@given(st.integers(0, 2100), st.integers(1, 3), st.booleans(), st.booleans())
def test_the_short_way_to_encode_gives_the_same_bytes(
    size: int, clients: int, redirected: bool, first: bool
) -> None:
    payload, listed = bytes(size), CLIENT_A * clients
    items = [(relay.PAYLOAD, payload), (relay.CLIENTS, listed), (relay.ATTRIBUTES, b"{}")]
    items += [(relay.FIRST, b"\x01")] * first
    key = (relay.MESSAGE_ID, MSG)
    push = relay.Push(MSG, payload, listed, b"{}", redirected, first)
    assert push.encode() == packet.encode(packet.PUSH, items, key=key, redirected=redirected)
    many = CLIENT_B * (size // ID_BYTES)
    told = [item for item in ((relay.CLIENTS, many), (relay.CONNECTOR, C1)) if item[1]]
    assert relay.Ack(MSG, many, C1).encode() == packet.encode(packet.ACK, told, key=key)


def test_a_long_push_as_recorded() -> None:
    typed = relay.Push(MSG, b"a" * 4100, CLIENT_A, b"{}")
    [message] = messages(load("packet/long"))
    assert relay.decode(message, ID_BYTES) == typed
    assert typed.encode() == load("packet/long")


def test_a_less_busy_matcher_as_recorded() -> None:
    hello = publish.Hello(elsewhere="127.0.0.1:7101")
    waits = [(b"conn0001", b"match002".hex())]
    told = status.Status(b"m-1", rpc_address=b"127.0.0.1:7101", load=3000, waits=waits)
    first, second = messages(load("packet/elsewhere"))
    assert (publish.from_matcher(first), status.decode(second)) == (hello, told)
    assert hello.encode() + told.encode() == load("packet/elsewhere")
    assert publish.from_publisher(first) == publish.Hello()  # it means nothing the other way


def test_eras_follow_the_late_connectors_and_may_be_missing() -> None:
    late = b"conn0001" + b"conn0002"
    told = status.Status(b"m-1", late=late, eras=[7, 3, 0])
    older = status.Status(b"m-1", late=late)
    assert [status.decode(one) for one in messages(told.encode())] == [told]
    assert [status.decode(one) for one in messages(older.encode())] == [older]
    [few] = messages(status.Status(b"m-1", late=late, eras=[7, 3]).encode())
    with pytest.raises(Malformed, match="bytes"):
        status.decode(few)


def test_a_status_has_a_number_that_is_confirmed() -> None:
    [message] = messages(status.Status(b"m-1", number=2**40).encode())
    assert status.decode(message).number == 2**40
    [answer] = messages(status.confirm(2**40))
    assert (answer.command, status.confirmed(answer)) == (packet.ACK, 2**40)
    assert status.confirmed(Message(packet.ACK, {1: bytes(12)})) is None, (
        "it answers something else"
    )
    with pytest.raises(Malformed):
        status.confirmed(Message(packet.ACK, {status.NUMBER: b"\x01"}))


@pytest.mark.parametrize("item", [status.LOAD, status.WAITS, status.ERAS, status.NUMBER])
def test_a_load_or_wait_of_another_length_is_malformed(item: int) -> None:
    [message] = messages(packet.encode(packet.STATUS, [(item, b"12")], key=(1, b"m-1")))
    with pytest.raises(Malformed, match="bytes"):
        status.decode(message)


def test_handshake_and_heartbeat_as_recorded() -> None:
    hello = relay.Hello(bytes.fromhex("00000000000000d1"), token=b"secret")
    heartbeat = relay.Heartbeat(0x0005F5E100000000)
    assert [relay.decode(m) for m in messages(load("packet/handshake"))] == [hello, heartbeat]
    assert hello.encode() + heartbeat.encode() == load("packet/handshake")


def test_subscriptions_and_acks_as_recorded() -> None:
    fields = b'{"p":{"use":2,"low":1,"high":null}}'
    second, third = MSG[:-1] + b"\x02", MSG[:-1] + b"\x03"
    typed: list[relay.Relayed] = [
        relay.Subscribe(second, CLIENT_A, C1, b"Eins", fields),
        relay.Unsubscribe(third, CLIENT_A, C1, b"Eins"),
        relay.Ack(MSG, CLIENT_A),
    ]
    data = load("packet/subscribe")
    assert [relay.decode(m) for m in messages(data)] == typed
    assert b"".join(message.encode() for message in typed) == data


def test_a_claim_and_a_push_that_moves_byte_by_byte() -> None:
    claim = relay.Claim(MSG, CLIENT_A, C1, 0x0005F5E100000000)
    data = claim.encode()
    items = b"\x01\x00\x0c" + MSG + b"\x08\x00\x0c" + CLIENT_A + b"\x09\x00\x08" + C1
    items += b"\x0d\x00\x01\x02" + b"\x06\x00\x08\x00\x05\xf5\xe1\x00\x00\x00\x00"
    assert data == b"\x08" + len(items).to_bytes(2, "big") + b"\x01" + items
    assert [relay.decode(m) for m in messages(data)] == [claim]
    visit = relay.Claim(MSG, CLIENT_A, C1, 0x0005F5E100000000, durable=False)
    assert visit.encode() == data.replace(b"\x0d\x00\x01\x02", b"\x0d\x00\x01\x03")
    assert [relay.decode(m) for m in messages(visit.encode())] == [visit]
    among_dispatchers = relay.Claim(MSG, CLIENT_A, C1, 7, owing=C1 + C2)
    assert among_dispatchers.encode().endswith(b"\x0c\x00\x10" + C1 + C2)
    assert [relay.decode(m) for m in messages(among_dispatchers.encode())] == [among_dispatchers]
    push = relay.Push(MSG, b"p", CLIENT_A + C1, b"{}", first=True, moved=True)
    assert push.encode().endswith(b"\x13\x00\x01\x01\x14\x00\x01\x01")
    assert [relay.decode(m) for m in messages(push.encode())] == [push]
    with pytest.raises(Malformed, match="time is missing"):
        relay.decode(Message(packet.STATUS, {1: MSG, 8: CLIENT_A, 9: C1, 13: relay.CLAIM}))


def test_status_as_recorded() -> None:
    typed = status.Status(b"m-1", b"127.0.0.1:7002", vnodes=b"\xaa" * 20 + b"\xbb" * 20)
    [message] = messages(load("packet/status"))
    assert status.decode(message) == typed
    assert typed.encode() == load("packet/status")


def test_an_item_of_65535_bytes_in_a_12_byte_packet() -> None:
    assert len(load("packet/broken")) == 12
    with pytest.raises(RemoteProtocolError, match="longer than its packet"):
        messages(load("packet/broken"))


def test_many_virtual_nodes_are_split_by_host_name() -> None:
    typed = status.Status(b"m-1", vnodes=bytes(20 * 512))
    data = typed.encode()
    assert data[3] == packet.HEAD
    assert [status.decode(m) for m in messages(data, publish.MESSAGE_ID)] == [typed]


def test_a_dispatcher_with_many_connectors_says_hello() -> None:
    hello = relay.Hello(C1, b"dispatcher", connectors=bytes(8 * 1000))
    assert [relay.decode(m) for m in messages(hello.encode())] == [hello]


ids = st.binary(min_size=12, max_size=12)
nodes = st.binary(min_size=8, max_size=8)
blobs = st.binary(max_size=5000)
typed_messages = st.one_of(
    st.builds(relay.Hello, nodes, st.sampled_from([b"", b"matcher"]), st.binary(max_size=40)),
    st.builds(relay.Heartbeat, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)),
    st.builds(
        relay.Push,
        ids,
        blobs,
        st.lists(st.binary(min_size=20, max_size=20), min_size=1, max_size=300).map(b"".join),
        blobs,
        st.booleans(),
    ),
    st.builds(relay.Ack, ids, st.lists(ids, max_size=300).map(b"".join), nodes | st.just(b"")),
    st.builds(
        relay.Nak,
        ids | st.just(b""),
        st.text(max_size=50),
        nodes | st.just(b""),
        ids | st.just(b""),
        st.integers(0, 2**64 - 1),
    ),
    st.builds(relay.Subscribe, ids, ids, nodes, st.binary(max_size=50), blobs),
    st.builds(relay.Unsubscribe, ids, ids, nodes, st.binary(max_size=50)),
    st.builds(relay.Sync, ids, nodes, st.sampled_from([relay.SYNC_BEGIN, relay.SYNC_END])),
)


@given(st.lists(typed_messages, max_size=5))
def test_any_relayed_message_round_trips(sent: list[relay.Relayed]) -> None:
    data = b"".join(message.encode() for message in sent)
    assert [relay.decode(m) for m in messages(data)] == sent


@given(st.builds(publish.Publish, blobs, blobs, ids), st.integers(0, 2**32 - 1))
def test_any_publication_round_trips(publication: publish.Publish, count: int) -> None:
    [message] = messages(publication.encode(), publish.MESSAGE_ID)
    assert publish.from_publisher(message) == publication
    answer = publish.Accepted(publication.message_id, count)
    [message] = messages(answer.encode(), publish.MESSAGE_ID)
    assert publish.from_matcher(message) == answer


@pytest.mark.parametrize(
    ("command", "items", "reason"),
    [
        (packet.PUSH, {1: MSG}, "client list"),
        (packet.PUSH, {1: MSG, 3: b"x" * 19}, "20 bytes an entry"),
        (packet.PUSH, {3: b"x" * 20}, "message id is missing"),
        (packet.PUSH, {1: b"short", 3: b"x" * 20}, "12 bytes, got 5"),
        (packet.ACK, {1: MSG, 3: b"x"}, "12 bytes each"),
        (packet.HANDSHAKE, {}, "node id is missing"),
        (packet.HANDSHAKE, {5: C1, 12: b"x"}, "8 bytes each"),
        (packet.SUBSCRIBE, {1: MSG, 8: CLIENT_A}, "connector id is missing"),
        (packet.UNSUBSCRIBE, {1: MSG, 9: C1}, "client id is missing"),
        (packet.STATUS, {1: MSG, 9: C1}, "begins or ends"),
        (99, {}, "no meaning"),
    ],
)
def test_malformed_relayed_messages(command: int, items: dict[int, bytes], reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        relay.decode(Message(command, items))


@pytest.mark.parametrize(
    ("command", "items", "reason"),
    [
        (packet.PUSH, {3: b"x"}, "12 bytes, got 1"),
        (packet.SUBSCRIBE, {}, "no meaning from a publisher"),
    ],
)
def test_malformed_from_a_publisher(command: int, items: dict[int, bytes], reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        publish.from_publisher(Message(command, items))


@pytest.mark.parametrize(
    ("command", "items", "reason"),
    [
        (packet.ACK, {3: MSG}, "4 bytes, got 0"),
        (packet.ACK, {5: bytes(4)}, "without its message id"),
        (packet.PUSH, {}, "no meaning from a matcher"),
    ],
)
def test_malformed_from_a_matcher(command: int, items: dict[int, bytes], reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        publish.from_matcher(Message(command, items))


@pytest.mark.parametrize(
    "items", [{}, {1: b"h" * 256}, {1: b"h", 4: b"short"}, {1: b"h", 6: b"short"}]
)
def test_malformed_status(items: dict[int, bytes]) -> None:
    with pytest.raises(Malformed):
        status.decode(Message(packet.STATUS, items))
