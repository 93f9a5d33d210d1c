"""ZeroMQ plugs against libzmq: every socket type homing offers, names, security, heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import zmq

from homing.errors import Denied
from homing.node.host import Host
from homing.node.zmtp import BOUNDS, MAX_TOPICS, ZmtpPlug
from homing.ports import Link
from homing.wire.curve import CurveServer
from homing.wire.frames import command, frame, pack, unpack
from homing.wire.mechanisms import PlainClient, PlainServer, pack_metadata
from homing.wire.z85 import from_z85
from homing.wire.zmtp import Limits
from tests.node.stage import Memory, forward, on_loop, until


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    with zmq.Context() as context:
        yield context


def peer(context: zmq.Context[Any], kind: int, **options: Any) -> zmq.Socket[bytes]:
    """A libzmq socket that neither lingers nor waits for ever."""
    sock: zmq.Socket[bytes] = context.socket(kind)
    sock.linger = 0
    sock.rcvtimeo = sock.sndtimeo = 10_000
    for name, value in options.items():
        setattr(sock, name, value)
    return sock


def zmq_host(role: Memory, *plugs: ZmtpPlug) -> tuple[Host, list[str]]:
    host = Host(reconnect=(0.01, 0.1))
    host.role = role
    for plug in plugs:
        host.add(plug)
    return host, [host.listen(plug.name, "tcp://127.0.0.1:0") for plug in plugs]


async def talk(work: Callable[[], None]) -> None:
    """What a blocking libzmq peer does, beside the loop."""
    await asyncio.to_thread(work)


def test_dealers_and_reqs_get_their_answers_in_order(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        host, (endpoint,) = zmq_host(Memory(forward), ZmtpPlug("fe", "ROUTER"))

        def work() -> None:
            dealer, req = peer(context, zmq.DEALER), peer(context, zmq.REQ)
            dealer.connect(endpoint)
            req.connect(endpoint)
            for number in range(2000):
                dealer.send_multipart([b"", b"%d" % number, b"x" * (number % 700)])
            for number in range(2000):
                assert dealer.recv_multipart() == [b"", b"%d" % number, b"x" * (number % 700)]
            for size in (0, 1, 255, 256, 1 << 16, 5 << 20):
                req.send(b"b" * size)
                assert req.recv() == b"b" * size
            dealer.close()
            req.close()

        await talk(work)
        await until(lambda: not host.plugs["fe"].links)
        host.stop()

    on_loop(test)


def test_peers_are_known_by_their_names(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        role = Memory()
        plug = ZmtpPlug("be", "ROUTER")
        host, (endpoint,) = zmq_host(role, plug)
        named, anonymous = peer(context, zmq.DEALER, routing_id=b"alice"), peer(context, zmq.DEALER)
        named.connect(endpoint)
        anonymous.connect(endpoint)
        await until(lambda: len(role.links) == 2)
        names = sorted(link.peer for link in role.links)
        assert names[1] == b"alice"
        assert len(names[0]) == 5
        assert names[0][0] == 0
        assert plug.routes[b"alice"].peer == b"alice"
        named.close()
        anonymous.close()
        await until(lambda: not plug.routes)
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("handover", [False, True])
def test_the_second_of_a_name_is_refused_or_takes_over(
    context: zmq.Context[Any], handover: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        role = Memory(forward)
        host, (endpoint,) = zmq_host(role, ZmtpPlug("be", "ROUTER", handover=handover))
        first = peer(context, zmq.DEALER, routing_id=b"same", reconnect_ivl=-1)
        first.connect(endpoint)
        await until(lambda: len(role.links) == 1)
        older = role.links[0]
        second = peer(context, zmq.DEALER, routing_id=b"same", reconnect_ivl=-1)
        second.connect(endpoint)
        served = second if handover else first
        if handover:
            await until(lambda: role.gone == [older])
            await until(lambda: len(role.links) == 1)
        served.send(b"still me")
        assert await asyncio.to_thread(served.recv) == b"still me"
        assert (role.links[0] is older) is not handover
        first.close()
        second.close()
        host.stop()

    on_loop(test)
    taken_over = "a newer connection takes over a peer's name" in caplog.text
    assert taken_over is handover, "two brokers of one name would never know"


def test_two_routers_with_names_find_each_other() -> None:
    async def test() -> None:
        server, client = Memory(forward), Memory()
        host, (endpoint,) = zmq_host(server, ZmtpPlug("cloudfe", "ROUTER", identity=b"oslo"))
        other = Host(reconnect=(0.01, 0.1))
        other.role = client
        other.add(ZmtpPlug("cloudbe", "ROUTER", identity=b"bergen"))
        other.connect("cloudbe", endpoint)
        await until(lambda: client.links and server.links)
        assert client.links[0].peer == b"oslo"
        assert server.links[0].peer == b"bergen"
        image = pack([b"client", b"", b"hello"])
        client.links[0].send(image)
        await until(lambda: client.received == [image])
        other.stop()
        host.stop()

    on_loop(test)


def test_who_is_turned_away_is_told_with_name_and_address(caplog: pytest.LogCaptureFixture) -> None:
    def nobody(user: str, password: str) -> str:
        raise Denied(user)

    async def test() -> None:
        host, (endpoint,) = zmq_host(
            Memory(), ZmtpPlug("fe", "ROUTER", mechanism=PlainServer(nobody))
        )
        other = Host(reconnect=(10.0, 10.0))
        other.role = Memory()
        other.add(ZmtpPlug("be", "DEALER", mechanism=PlainClient("eve", "guess")))
        other.connect("be", endpoint)
        await until(lambda: len(caplog.records) == 2)
        assert (host.turned_away, other.turned_away) == (1, 0)
        other.stop()
        host.stop()

    on_loop(test)
    ours, theirs = caplog.records
    assert ours.getMessage() == "a peer was turned away"
    assert ours.__dict__["why"] == "refused the peer 'eve' with 400"
    assert ours.__dict__["address"].startswith("('127.0.0.1', ")
    assert theirs.getMessage() == "a link that we opened was given up"


def test_publications_reach_those_who_asked(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        role = Memory()
        host, (endpoint,) = zmq_host(role, ZmtpPlug("state", "PUB"))
        sub = peer(context, zmq.SUB)
        sub.connect(endpoint)
        sub.subscribe(b"a")
        sub.subscribe(b"a")
        sub.subscribe(b"b")
        sub.unsubscribe(b"a")
        await until(lambda: len(role.links) == 1)
        link: Any = role.links[0]
        await until(lambda: set(link.topics) == {b"a", b"b"}, "the subscriptions")
        for topic in (b"apple", b"cherry", b"banana"):
            link.send(pack([topic, b"body"]))
        assert await asyncio.to_thread(sub.recv_multipart) == [b"apple", b"body"]
        assert await asyncio.to_thread(sub.recv_multipart) == [b"banana", b"body"]
        sub.unsubscribe(b"a")
        await until(lambda: set(link.topics) == {b"b"})
        assert role.received == [], "subscriptions are the plug's business"
        sub.close()
        host.stop()

    on_loop(test)


def test_a_subscriber_of_too_many_topics_is_turned_away() -> None:
    async def test() -> None:
        publisher, subscriber = Memory(), Memory()
        host, (endpoint,) = zmq_host(publisher, ZmtpPlug("state", "PUB"))
        other = Host(reconnect=(30.0, 30.0))
        other.role = subscriber
        topics = tuple(b"%d" % number for number in range(MAX_TOPICS + 1))
        other.add(ZmtpPlug("all", "SUB", topics=topics))
        other.connect("all", endpoint)
        await until(lambda: publisher.gone)
        assert publisher.links == []
        other.stop()
        host.stop()

    on_loop(test)


def test_a_sub_plug_hears_a_libzmq_publisher(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        pub = peer(context, zmq.XPUB)
        port = pub.bind_to_random_port("tcp://127.0.0.1")
        role = Memory()
        host = Host(reconnect=(0.01, 0.1))
        host.role = role
        host.add(ZmtpPlug("statefe", "SUB", topics=(b"",)))
        host.connect("statefe", f"tcp://127.0.0.1:{port}")
        assert await asyncio.to_thread(pub.recv) == b"\x01"
        pub.send_multipart([b"oslo", b"3"])
        await until(lambda: role.received)
        assert unpack(role.received[0]) == [b"oslo", b"3"]
        pub.close()
        host.stop()

    on_loop(test)


def test_curve_and_plain_let_in_who_may(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        public, secret = zmq.curve_keypair()
        mine, my_secret = zmq.curve_keypair()

        def password(user: str, word: str) -> str:
            if word != "sesame":
                raise Denied("no")
            return user

        keys = (from_z85(public.decode()), from_z85(secret.decode()))
        curve = CurveServer(keys, authenticate=lambda key: key.hex()[:8])
        role = Memory(forward)
        host, (sealed, plain) = zmq_host(
            role,
            ZmtpPlug("curve", "ROUTER", mechanism=curve),
            ZmtpPlug("plain", "ROUTER", mechanism=PlainServer(password)),
        )
        coded = peer(
            context,
            zmq.DEALER,
            curve_serverkey=public,
            curve_publickey=mine,
            curve_secretkey=my_secret,
        )
        coded.connect(sealed)
        for number in range(200):
            coded.send_multipart([b"", b"secret %d" % number])
        for number in range(200):
            assert await asyncio.to_thread(coded.recv_multipart) == [b"", b"secret %d" % number]
        assert role.links[0].user == from_z85(mine.decode()).hex()[:8]
        known = peer(context, zmq.DEALER, plain_username=b"ali", plain_password=b"sesame")
        known.connect(plain)
        known.send(b"open")
        assert await asyncio.to_thread(known.recv) == b"open"
        assert role.links[1].user == "ali"
        stranger = peer(context, zmq.DEALER, plain_username=b"thief", plain_password=b"barley")
        stranger.connect(plain)
        stranger.rcvtimeo = 300
        stranger.send(b"open")
        with pytest.raises(zmq.Again):
            await asyncio.to_thread(stranger.recv)
        assert len(role.links) == 2
        for sock in (coded, known, stranger):
            sock.close()
        host.stop()

    on_loop(test)


def test_quiet_peers_are_pinged_and_dead_ones_given_up(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        role = Memory(forward)
        quick = replace(BOUNDS, silence=0.3)
        host, (endpoint,) = zmq_host(role, ZmtpPlug("fe", "ROUTER", bounds=quick))
        quiet = peer(context, zmq.DEALER, routing_id=b"quiet")
        quiet.connect(endpoint)
        await until(lambda: len(role.links) == 1)
        dead_reader, dead = await asyncio.open_connection("127.0.0.1", int(endpoint.split(":")[2]))
        dead.write(GREETING + READY_DEALER)
        await until(lambda: len(role.links) == 2)
        await until(lambda: role.gone, "the dead one to be given up")
        assert role.links[0].peer == b"quiet", "libzmq answers PINGs by itself"
        assert b"PING" in await dead_reader.read()
        quiet.send(b"still here")
        assert await asyncio.to_thread(quiet.recv) == b"still here"
        quiet.close()
        dead.close()
        host.stop()

    on_loop(test)


def test_libzmq_heartbeats_are_answered(context: zmq.Context[Any]) -> None:
    async def test() -> None:
        role = Memory(forward)
        host, (endpoint,) = zmq_host(role, ZmtpPlug("fe", "ROUTER"))
        beating = peer(context, zmq.DEALER, heartbeat_ivl=20, heartbeat_timeout=200)
        beating.connect(endpoint)
        await until(lambda: len(role.links) == 1)
        survivor: list[Link] = []
        while not survivor or role.links != survivor:  # a busy machine may be late for once
            survivor = list(role.links)
            await asyncio.sleep(0.6)  # three of its timeouts: without PONGs it would be gone
        beating.close()
        host.stop()

    on_loop(test)


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + bytes(32)
READY_DEALER = command(b"READY", pack_metadata({b"Socket-Type": b"DEALER", b"Identity": b""}))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not ZMTP at all"),
        (GREETING + b"\x00\x05hello", "a message before the handshake"),
        (GREETING + READY_DEALER.replace(b"DEALER", b"XXXXXX"), "an unknown socket type"),
        (
            GREETING + READY_DEALER + b"\x02\xff\xff\xff\xff\xff\xff\xff\xff",
            "a frame of 2^64 bytes",
        ),
        (GREETING + READY_DEALER + b"\x80\x00", "flags without meaning"),
    ],
)
def test_peers_that_break_the_protocol_are_closed_and_nobody_else(sent: bytes, why: str) -> None:
    async def test() -> None:
        role = Memory(forward)
        host, (endpoint,) = zmq_host(role, ZmtpPlug("fe", "ROUTER", limits=Limits(message=1000)))
        port = int(endpoint.split(":")[2])
        good_reader, good = await asyncio.open_connection("127.0.0.1", port)
        good.write(GREETING + READY_DEALER)
        await until(lambda: len(role.links) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await reader.read()
        assert len(role.links) == 1, why
        good.write(frame(b"hello", False))
        assert (await good_reader.readuntil(b"hello")).endswith(b"\x00\x05hello")
        writer.close()
        good.close()
        host.stop()

    on_loop(test)


def test_who_says_nothing_is_closed_in_time() -> None:
    async def test() -> None:
        role = Memory()
        hasty = replace(BOUNDS, handshake=0.05)
        host, (endpoint,) = zmq_host(role, ZmtpPlug("fe", "ROUTER", bounds=hasty))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(endpoint.split(":")[2]))
        assert (await reader.read())[:1] == b"\xff"
        await until(lambda: not host.plugs["fe"].links)
        assert role.links == role.gone == []
        writer.close()
        host.stop()

    on_loop(test)


def test_a_link_may_answer_as_it_opens(context: zmq.Context[Any]) -> None:
    class Greeter(Memory):
        def opened(self, link: Link, now: float) -> None:
            super().opened(link, now)
            link.send(pack([b"", b"welcome"]))

    async def test() -> None:
        host, (endpoint,) = zmq_host(Greeter(), ZmtpPlug("fe", "ROUTER"))
        dealer = peer(context, zmq.DEALER)
        dealer.connect(endpoint)
        assert await asyncio.to_thread(dealer.recv_multipart) == [b"", b"welcome"]
        dealer.close()
        host.stop()

    on_loop(test)
