"""The Port of clients: a dial that ends in the very moment of the close does not outlive it."""

from __future__ import annotations

import asyncio

import pytest

from homing.endpoint import Endpoint
from homing.errors import RequestTimeout
from homing.push.moorings import MooredLink, Moorings, Whole
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber


@pytest.mark.parametrize("refused", [False, True])
def test_a_close_while_a_dial_ends_is_not_lost(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        outcome = asyncio.get_running_loop().create_future()

        async def dial(self: Moorings, link: MooredLink, where: Endpoint) -> None:
            await outcome

        monkeypatch.setattr(Moorings, "_dial", dial)
        moorings = Moorings(Whole)
        moorings.connect("connector", "127.0.0.1:1")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if refused:
            outcome.set_exception(ConnectionRefusedError())
        else:
            outcome.set_result(None)
        # In the same turn of the loop: the dial has ended, and whoever waits for it knows not yet.
        async with asyncio.timeout(20):
            await moorings.close()

    asyncio.run(test())


def test_who_hangs_up_without_a_word_is_told_once_by_each(caplog: pytest.LogCaptureFixture) -> None:
    """As a balancer does with nobody behind it: whoever only waited for pushes read nothing of it, ever."""
    told = "it hung up without a word"

    async def test() -> int:
        met = 0

        def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal met
            met += 1
            writer.close()

        async with await asyncio.start_server(hang_up, "127.0.0.1") as server:
            where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with (
                Publisher(where, timeout=0.5) as publisher,
                Subscriber("ab" * 12, where, timeout=0.5) as subscriber,
            ):
                with pytest.raises(RequestTimeout, match=told):
                    await publisher.publish({"n": 1})
                with pytest.raises(RequestTimeout, match=told):
                    await subscriber.subscribe("n >= 0")
        return met

    assert asyncio.run(test()) > 2
    assert caplog.text.count(told) == 2


@pytest.mark.parametrize(
    ("said", "told"),
    [(b"", "it hangs up as soon as"), (b"nonsense\r\n", "expected +, - or #")],
)
def test_who_lets_in_and_then_hangs_up_is_told_once(
    said: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once with a word of ours, then over and over: whoever waited for pushes read nothing of it, ever."""

    async def test() -> None:
        met = 0
        often = asyncio.Event()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal met
            met += 1
            await reader.read(1000)
            writer.write(b"+authsuccess\r\n")
            await reader.read(1000)
            writer.write(b"+sub\r\n" if met == 1 else said)
            writer.close()
            if met == 5:
                often.set()

        async with await asyncio.start_server(hang_up, "127.0.0.1") as server:
            where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Subscriber("ab" * 12, where) as subscriber, asyncio.timeout(20):
                await subscriber.subscribe("n >= 0")
                await often.wait()

    asyncio.run(test())
    assert caplog.text.count("no connection, trying on: ") == 1
    assert told in caplog.text


def test_the_next_node_is_tried_when_one_hangs_up_without_a_word() -> None:
    """Each connection was taken for a good one: with several nodes named it stayed with the first for ever."""

    async def test() -> None:
        reached = asyncio.Event()

        def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.set()
            writer.close()

        async with (
            await asyncio.start_server(hang_up, "127.0.0.1") as first,
            await asyncio.start_server(greet, "127.0.0.1") as second,
        ):
            ends = [f"127.0.0.1:{one.sockets[0].getsockname()[1]}" for one in (first, second)]
            async with Subscriber("ab" * 12, *ends) as subscriber, asyncio.timeout(12):
                waits = asyncio.ensure_future(subscriber.subscribe("n >= 0"))
                try:
                    await reached.wait()
                finally:
                    waits.cancel()

    asyncio.run(test())
