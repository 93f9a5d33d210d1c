"""Pushes of one turn to many subscribers, over real sockets: each link's order, and who is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from homing.node.host import Host
from homing.node.plug import Bounds
from homing.node.subscribers import FEW, SubscriberLink, SubscriberPlug
from homing.node.volley import ROOM, OneByOne, Volley, make_volley
from homing.wire.session import HEARTBEAT
from tests.node.stage import Memory, dial, on_loop, stuck_peer, until

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]
COUNT = FEW + 2


def subscribers_host(role: Memory) -> tuple[Host, int]:
    host = Host()
    host.role = role
    bounds = Bounds(high_water=64 << 10, low_water=16 << 10)
    host.add(SubscriberPlug("subscribers", bounds=bounds, max_command=1 << 16))
    return host, int(host.listen("subscribers", "127.0.0.1:0").rpartition(":")[2])


async def come(role: Memory, port: int, count: int) -> list[Peer]:
    """Subscribers, in the order of the role's links."""
    peers = []
    for _ in range(count):
        before = len(role.links)
        peers.append(await dial(port))
        peers[-1][1].write(HEARTBEAT)
        await until(partial(lambda before: len(role.links) > before, before))
    return peers


@pytest.mark.parametrize("volley", [OneByOne, make_volley], ids=["one by one", "in one call"])
def test_what_is_too_much_for_one_call_reaches_all_and_holds_up_nobody(
    volley: Callable[[], Volley | OneByOne],
) -> None:
    async def test() -> None:
        role = Memory()
        host, port = subscribers_host(role)
        host._volley = volley()
        peers = await come(role, port, COUNT)
        large = bytes(range(256)) * (ROOM // 256) + b"!"
        host.together(role.links[:2]).send(large)
        for link in role.links[2:]:
            link.send(b"and what is written after it")
        for which, (reader, _) in enumerate(peers):
            expected = large if which < 2 else b"and what is written after it"
            async with asyncio.timeout(10):
                assert await reader.readexactly(len(expected)) == expected
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


@pytest.mark.parametrize("volley", [OneByOne, make_volley], ids=["one by one", "in one call"])
def test_each_link_gets_what_it_was_pushed_in_order(
    volley: Callable[[], Volley | OneByOne],
) -> None:
    async def test() -> None:
        role = Memory()
        host, port = subscribers_host(role)
        host._volley = volley()
        peers = await come(role, port, COUNT)
        writes: list[int] = []

        def count(write: Callable[[bytes], None], data: bytes) -> None:
            writes.append(len(data))
            write(data)

        for link in role.links:
            assert isinstance(link, SubscriberLink)
            link._write = partial(count, link._write)
            link._encode = bytes.swapcase if link is role.links[3] else None  # as a browser's has
        jointly = host.together(role.links[:2])
        for link in role.links:
            link.send_with_others(b"a")
        role.links[0].send(b"b")
        jointly.send(b"c")
        role.links[1].send_with_others(b"d")
        role.links[2].send_with_others(b"e")
        assert role.links[2].backlog == 2
        role.links[2].close()
        role.links[2].send_with_others(b"f")
        expected = [b"abc", b"acd", b"ae", b"A", b"a"]
        for (reader, _), all_of_it in zip(peers, expected, strict=True):
            assert await reader.readexactly(len(all_of_it)) == all_of_it
        assert sorted(writes) == [1, 2]  # the browser's, and of the one that was closed
        assert await peers[2][0].read() == b""
        jointly.send(b"g")
        role.links[1].send_with_others(b"h")
        for (reader, _), all_of_it in zip(peers[:2], (b"g", b"gh"), strict=True):
            assert await reader.readexactly(len(all_of_it)) == all_of_it
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)


def test_who_is_stuck_or_gets_a_lot_has_it_in_order_and_harms_nobody() -> None:
    async def test() -> None:
        role = Memory()
        host, port = subscribers_host(role)
        stuck = stuck_peer(port)
        stuck.sendall(HEARTBEAT)
        await until(lambda: role.links)
        peers = await come(role, port, COUNT)
        sent = b""
        while len(sent) < 8 << 20:  # more than the kernel keeps for it: part of a send, then none
            data = len(sent).to_bytes(8, "big") * 8000
            if len(sent) > 4 << 20:
                data *= ROOM // len(data) + 1  # more than goes this way at all
            for link in role.links:
                link.send_with_others(data)
            sent += data
            for reader, _ in peers:
                assert await reader.readexactly(len(data)) == data
        assert role.links[0].backlog > 1 << 20
        assert {link.backlog for link in role.links[1:]} == {0}
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


def test_a_link_that_is_lost_before_the_turn_ends_takes_no_part() -> None:
    async def test() -> None:
        role = Memory()
        host, port = subscribers_host(role)
        peers = await come(role, port, COUNT)
        gone = role.links[1]
        assert isinstance(gone, SubscriberLink)
        for link in role.links.copy():
            link.send_with_others(b"there")
        gone.lose("for the test")
        assert role.gone == [gone]
        for number, (reader, _) in enumerate(peers):
            if number != 1:
                assert await reader.readexactly(5) == b"there"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await peers[1][0].readexactly(1)
        for _, writer in peers:
            writer.close()
        host.stop()

    on_loop(test)
