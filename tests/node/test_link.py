"""Links over real sockets: whole messages, one write a turn, and peers that misbehave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from homing.errors import RemoteProtocolError
from homing.node.link import GATHERED, TOGETHER, StreamLink
from homing.node.plug import Bounds
from homing.node.volley import OneByOne, Volley, make_volley
from homing.ports import Link
from tests.node.stage import Memory, dial, echo, lines_host, on_loop, stuck_peer, until


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_a_trickle_of_single_bytes_makes_whole_messages(plain: bool) -> None:
    async def test() -> None:
        host, port = lines_host(Memory(echo))
        reader, writer = await dial(port)
        for byte in b"hello\nworld\n":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        assert await reader.readline() == b"hello\n"
        assert await reader.readline() == b"world\n"
        writer.close()
        host.stop()

    on_loop(test, plain)


def test_what_a_turn_sends_leaves_with_one_write_a_link() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        peers = [await dial(port) for _ in range(3)]
        await until(lambda: len(role.links) == 3, "three links")
        writes: list[int] = []

        def count(write: Callable[[bytes], None], data: bytes) -> None:
            writes.append(len(data))
            write(data)

        def to_all(_: Link, message: bytes) -> None:
            for link in role.links:
                link.send(message)

        for link in role.links:
            assert isinstance(link, StreamLink)
            link._write = partial(count, link._write)
        role.answer = to_all
        peers[0][1].write(b"0123456789\n" * 50)
        for reader, _ in peers:
            assert await reader.readexactly(500) == b"0123456789" * 50
        assert writes == [500, 500, 500]
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("volley", [OneByOne, make_volley], ids=["one by one", "in one call"])
def test_what_goes_to_many_at_once_keeps_each_link_s_order(
    volley: Callable[[], Volley | OneByOne],
) -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        host._volley = volley()
        peers = [await dial(port) for _ in range(4)]
        await until(lambda: len(role.links) == 4, "four links")
        links = role.links.copy()
        first, second = host.together(links), host.together(links[:2])
        writes: list[int] = []

        def count(write: Callable[[bytes], None], data: bytes) -> None:
            writes.append(len(data))
            write(data)

        for link in links:
            assert isinstance(link, StreamLink)
            link._write = partial(count, link._write)
            link._encode = bytes.swapcase if link is links[3] else None  # as a browser's has
        links[3].send(b"0")
        first.send(b"a")
        first.send(b"b")
        assert [link.backlog for link in links] == [2, 2, 2, 3]
        links[0].send(b"c")  # leaves, and is sent to alone from here on
        first.send(b"d")
        second.send(b"e")
        links[2].close()
        first.send(b"f")
        for (reader, _), expected in zip(
            peers, [b"abcdef", b"abdef", b"abd", b"0ABDF"], strict=True
        ):
            assert await reader.readexactly(len(expected)) == expected
        assert sorted(writes) == [3, 5, 5, 6]
        writes.clear()
        first.send(b"g")  # the next turn
        for reader, _ in (peers[0], peers[1], peers[3]):
            assert (await reader.readexactly(1)).lower() == b"g"
        assert writes == [1]  # the browser's; the others' is no write of the loop's
        assert await peers[2][0].read() == b""
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


def test_one_of_many_that_is_stuck_gets_all_in_order_once_it_reads() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role, Bounds(high_water=64 << 10, low_water=16 << 10))
        stuck = stuck_peer(port)
        await until(lambda: len(role.links) == 1)
        peers = [await dial(port) for _ in range(3)]
        await until(lambda: len(role.links) == 4)
        all_of_them = host.together(role.links.copy())
        sent = b""
        while len(sent) < 8 << 20:  # more than the kernel keeps for it: part of a send, then none
            data = len(sent).to_bytes(8, "big") * 8000
            all_of_them.send(data)
            sent += data
            for reader, _ in peers:
                assert await reader.readexactly(len(data)) == data
        assert role.links[0].backlog > 1 << 20
        assert [link.backlog for link in role.links[1:]] == [0, 0, 0]
        stuck.setblocking(False)
        got = bytearray()
        while len(got) < len(sent):
            got += await asyncio.get_running_loop().sock_recv(stuck, 1 << 20)
        assert got == sent
        stuck.close()
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


def test_a_stuck_reader_is_lost_at_its_limit_and_costs_the_others_nothing() -> None:
    async def test() -> None:
        bounds = Bounds(high_water=64 << 10, low_water=16 << 10, backlog=1 << 20)
        role = Memory(echo)
        host, port = lines_host(role, bounds)
        stuck = stuck_peer(port)
        await until(lambda: len(role.links) == 1)
        lazy = role.links[0]
        reader, writer = await dial(port)
        sent = 0
        while lazy not in role.gone:
            assert sent < 64 << 20, "a peer that takes nothing must be given up"
            lazy.send(b"x" * 65536)
            sent += 65536
            writer.write(b"still there?\n")
            assert await reader.readline() == b"still there?\n"
            assert host.held_bytes <= bounds.backlog + 65536
        assert lazy.backlog == 0
        assert host.held_bytes == 0
        lazy.send(b"goes nowhere")
        stuck.close()
        writer.close()
        host.stop()

    on_loop(test)


def test_a_slow_reader_gets_everything_in_order() -> None:
    async def test() -> None:
        bounds = Bounds(high_water=64 << 10, low_water=16 << 10)
        role = Memory()
        host, port = lines_host(role, bounds)
        slow = stuck_peer(port)
        slow.setblocking(False)
        await until(lambda: len(role.links) == 1)
        link = role.links[0]
        count = 4000
        for number in range(count):
            link.send(b"%0999d\n" % number)
            if number % 50 == 0:
                await asyncio.sleep(0)
        assert link.backlog > bounds.high_water
        assert host.held_bytes > 0, "this test is about a peer that was stuck"
        data = b""
        while len(data) < count * 1000:
            data += await asyncio.get_running_loop().sock_recv(slow, 1 << 16)
        assert data == b"".join(b"%0999d\n" % number for number in range(count))
        await until(lambda: link.backlog == 0)
        assert host.held_bytes == 0
        slow.close()
        host.stop()

    on_loop(test)


def test_who_takes_no_answers_is_not_read_from() -> None:
    async def test() -> None:
        bounds = Bounds(high_water=64 << 10, low_water=16 << 10, backlog=8 << 20)
        role = Memory(lambda link, message: link.send(message * 10))
        host, port = lines_host(role, bounds)
        greedy = stuck_peer(port)
        greedy.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            for _ in range(100_000):
                sent += greedy.send(b"a" * 999 + b"\n")
                await asyncio.sleep(0)
        assert sent < 100_000_000, "the kernel's buffers fill because nobody reads"
        assert not role.gone, "its own requests never push it over its limit"
        assert len(role.received) < sent // 1000
        taken = 0
        while taken < sent // 1000 * 9990:
            taken += len(await asyncio.get_running_loop().sock_recv(greedy, 1 << 20))
        assert len(role.received) == sent // 1000, "once it takes its answers it is read again"
        greedy.close()
        host.stop()

    on_loop(test)


def test_a_flood_leaves_the_others_their_turns() -> None:
    async def test() -> None:
        role = Memory(lambda link, message: echo(link, message) if len(message) < 9 else None)
        host, port = lines_host(role)
        _, flood = await dial(port)
        reader, writer = await dial(port)
        await until(lambda: len(role.links) == 2)
        flood.transport.set_write_buffer_limits(high=1 << 30)
        flood.write((b"f" * 99 + b"\n") * 400_000)
        await until(lambda: len(role.received) > 0)
        for number in range(20):
            before = len(role.received)
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"%d\n" % number
            assert len(role.received) - before < 20_000, "a few chunks at most in between"
        await until(lambda: len(role.received) == 400_020, "the whole flood")
        flood.close()
        writer.close()
        host.stop()

    on_loop(test)


def test_closing_sends_what_is_queued_and_takes_no_more() -> None:
    async def test() -> None:
        def farewell(link: Link, message: bytes) -> None:
            link.send(b"bye " + message)
            link.close("done")
            link.send(b"never")

        role = Memory(farewell)
        host, port = lines_host(role)
        reader, writer = await dial(port)
        writer.write(b"one\ntwo\nthree\n")
        assert await reader.read() == b"bye one"
        assert role.received == [b"one"]
        assert role.gone == [], "closed is not called for one's own close"
        writer.close()
        await until(lambda: not host.plugs["lines"].links)
        host.stop()

    on_loop(test)


def test_a_link_closed_on_a_stuck_peer_does_not_linger_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homing.node.link.LINGER", 0.05)

    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        peer = stuck_peer(port)
        await until(lambda: len(role.links) == 1)
        role.links[0].send(b"x" * (8 << 20))
        role.links[0].close()
        await until(lambda: not host.plugs["lines"].links, "the linger to end")
        peer.close()
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("error", [RemoteProtocolError("nonsense", 3), KeyError("a bug")])
def test_a_role_that_raises_loses_the_link_and_not_the_node(error: Exception) -> None:
    async def test() -> None:
        def answer(link: Link, message: bytes) -> None:
            if message == b"poison":
                raise error
            echo(link, message)

        role = Memory(answer)
        host, port = lines_host(role)
        bad, good = await dial(port), await dial(port)
        await until(lambda: len(role.links) == 2)
        bad[1].write(b"poison\nmore\n")
        assert await bad[0].read() == b""
        good[1].write(b"hello\n")
        assert await good[0].readline() == b"hello\n"
        assert len(role.gone) == 1
        assert role.received == [b"poison", b"hello"]
        bad[1].close()
        good[1].close()
        host.stop()

    on_loop(test)


def test_a_silent_link_is_given_up_and_a_talking_one_is_not() -> None:
    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role, Bounds(silence=0.2))
        silent, talking = await dial(port), await dial(port)
        await until(lambda: len(role.links) == 2)
        while len(role.gone) == 0:
            talking[1].write(b"hb\n")
            assert await talking[0].readline() == b"hb\n"
            await asyncio.sleep(0.01)
        assert await silent[0].read() == b""
        assert len(role.links) == 1
        silent[1].close()
        talking[1].close()
        host.stop()

    on_loop(test)


def test_timers_come_in_order_and_can_be_moved_and_cancelled() -> None:
    async def test() -> None:
        role = Memory()
        host, _ = lines_host(role)
        now = host.now()
        host.later(now + 0.06, "third")
        host.later(now + 0.02, "first")
        host.later(now + 9.0, "second")
        host.later(now + 0.04, "second")
        host.later(now + 0.03, "never")
        host.cancel("never")
        await until(lambda: len(role.woken) == 3)
        assert role.woken == ["first", "second", "third"]
        assert host.now() >= now + 0.06
        host.stop()

    on_loop(test)


def test_messages_that_may_wait_leave_in_order_with_what_may_not() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        (near, _), (far, _) = peers = [await dial(port) for _ in range(2)]
        await until(lambda: len(role.links) == 2)
        patient, busy = role.links
        patient.send_with_others(b"one\n")
        busy.send(b"busy\n")
        host.turn.flush()
        assert patient.backlog == 4, "the turn had something else to write"
        patient.send_with_others(b"two\n")
        patient.send(b"three\n")
        host.turn.flush()
        assert patient.backlog == 0
        for _ in range(TOGETHER):
            patient.send_with_others(b"more\n")
        busy.send(b"busy\n")
        host.turn.flush()
        assert patient.backlog == 0, "enough for a write of its own"
        patient.send_with_others(b"last\n")
        patient.close()
        assert await near.read() == b"one\ntwo\nthree\n" + TOGETHER * b"more\n" + b"last\n"
        assert await far.readexactly(10) == b"busy\nbusy\n"
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


def test_messages_that_gather_leave_once_there_are_enough_or_nothing_comes() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        near, writer = await dial(port)
        await until(lambda: len(role.links) == 1)
        (link,) = role.links
        host.turn.news = True
        link.send_soon(b"one\n")
        host.turn.flush()
        assert link.backlog == 4, "the turn had read something"
        link.send_soon(b"two\n")
        host.turn.flush()
        assert link.backlog == 0
        host.turn.news = True
        for _ in range(GATHERED):
            link.send_soon(b"more\n")
        host.turn.flush()
        assert link.backlog == 0, "enough for a write of its own"
        host.turn.news = True
        link.send_soon(b"last\n")
        link.send(b"now\n")
        host.turn.flush()
        assert link.backlog == 0, "what may not wait takes along what may"
        link.close()
        link.send_soon(b"never\n")
        assert await near.read() == b"one\ntwo\n" + GATHERED * b"more\n" + b"last\nnow\n"
        writer.close()
        host.stop()

    on_loop(test)


def test_a_transport_that_closed_itself_stops_no_one_else() -> None:
    async def test() -> None:
        role = Memory()
        host, port = lines_host(role)
        peers = [await dial(port) for _ in range(3)]
        await until(lambda: len(role.links) == 3)
        broken = role.links[1]
        assert isinstance(broken, StreamLink)
        broken._transport.abort()  # as uvloop does when a read fails: the link learns it later
        for link in role.links:
            link.send(b"to all\n")
        host.turn.flush()
        for reader, _ in (peers[0], peers[2]):
            assert await reader.readline() == b"to all\n"
        await until(lambda: role.gone == [broken])
        broken.close()
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


def test_a_reset_by_the_peer_is_the_end_of_one_link() -> None:
    async def test() -> None:
        role = Memory(echo)
        host, port = lines_host(role)
        peer = socket.create_connection(("127.0.0.1", port))
        await until(lambda: len(role.links) == 1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
        await until(lambda: len(role.gone) == 1)
        reader, writer = await dial(port)
        writer.write(b"next\n")
        assert await reader.readline() == b"next\n"
        writer.close()
        host.stop()

    on_loop(test)
