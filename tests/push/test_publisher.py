"""The publisher of the SDK against a matcher made by hand: windows, timeouts, what comes again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from homing.errors import (
    Closed,
    ConfigError,
    QueueFull,
    RequestTimeout,
    SubscriptionError,
    TooLarge,
)
from homing.loops import Elsewhere
from homing.push import publishing
from homing.push.publisher import Publisher
from homing.wire import publish
from homing.wire.assembly import Assembler
from homing.wire.packet import PacketStream


class Matcher:
    """Accepts connections; acknowledges what it is told to, in the order it came."""

    def __init__(self) -> None:
        self.got: list[publish.Publish] = []
        self.most = 0  # publications open at once
        self.refusal = ""
        self.mute = False
        self._answered = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        stream, assembler = PacketStream(), Assembler(publish.MESSAGE_ID)
        while data := await reader.read(65536):
            for run in stream.receive(data):
                for message in assembler.receive(run, 0.0):
                    typed = publish.from_publisher(message)
                    if isinstance(typed, publish.Publish):
                        self.got.append(typed)
            self.most = max(self.most, len(self.got) - self._answered)
            if not self.mute:
                self.answer()
        writer.close()

    def answer(self) -> None:
        assert self._writer is not None
        for one in self.got[self._answered :]:
            answer: publish.Accepted | publish.Refusal = publish.Accepted(one.message_id, 7)
            if self.refusal:
                answer = publish.Refusal(one.message_id, self.refusal)
            self._writer.write(answer.encode())
        self._answered = len(self.got)


@asynccontextmanager
async def matcher() -> AsyncIterator[tuple[Matcher, str]]:
    role = Matcher()
    server = await asyncio.start_server(role.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield role, f"{host}:{port}"
    finally:
        server.close()


def test_many_are_pipelined_within_the_window_and_answered_in_order() -> None:
    async def main() -> None:
        async with matcher() as (role, where), Publisher(where, window=50) as publisher:
            publications = [({"n": n}, str(n)) for n in range(1000)]
            counts = [count async for count in publisher.publish_all(publications)]
            assert counts == [7] * 1000
            assert [int(one.payload) for one in role.got] == list(range(1000))
            assert 1 < role.most <= 50

    asyncio.run(main())


def test_what_is_published_is_counted_while_the_next_one_is_waited_for() -> None:
    async def one_by_one(counted: asyncio.Event) -> AsyncIterator[tuple[dict[str, int], str]]:
        for n in range(3):
            yield {"n": n}, str(n)
            await counted.wait()
            counted.clear()

    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher, asyncio.timeout(20):
            counted = asyncio.Event()
            async for count in publisher.publish_all(one_by_one(counted)):
                assert count == 7
                counted.set()
            assert [int(one.payload) for one in role.got] == [0, 1, 2]

    asyncio.run(main())


def test_what_comes_slowly_leaves_as_it_comes() -> None:
    """A plain iterable holds the loop up while it waits for something, and lets go of it between two items."""

    def slow(role: Matcher, seen: list[int]) -> Iterator[tuple[dict[str, int], str]]:
        for n in range(30):
            time.sleep(0.002)
            seen.append(len(role.got))
            yield {"n": n}, str(n)

    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher:
            await publisher.publish({"n": -1}, "-1")
            seen: list[int] = []
            counts = [count async for count in publisher.publish_all(slow(role, seen))]
            assert (counts, seen[-1] > 20) == ([7] * 30, True)

    asyncio.run(main())


def test_publications_that_raise_do_so_behind_what_came_before() -> None:
    async def broken() -> AsyncIterator[tuple[dict[str, int], str]]:
        yield {"n": 1}, "1"
        raise ZeroDivisionError

    async def main() -> None:
        async with matcher() as (_, where), Publisher(where) as publisher:
            counts: list[int] = []

            async def count() -> None:
                async for one in publisher.publish_all(broken()):
                    counts.append(one)  # noqa: PERF401 - what came before it raises is looked at

            with pytest.raises(ZeroDivisionError):
                await count()
            assert counts == [7]

    asyncio.run(main())


@pytest.mark.parametrize("later", [False, True])
def test_who_gives_up_a_publication_does_so_alone(later: bool) -> None:
    """Under one id it is one publication: who stayed was cancelled, by nobody, with who left."""
    same = b"0123456789ab"

    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher, asyncio.timeout(20):
            role.mute = True
            stays = publisher.publish({"n": 1}, "1", identity=same)
            leaves = anext(publisher.publish_all([({"n": 1}, "1", same)]))
            both = [asyncio.ensure_future(one) for one in (stays, leaves)[:: -1 if later else 1]]
            while not role.got:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            stayed, left = both[:: -1 if later else 1]
            left.cancel()
            await asyncio.wait([left])
            role.answer()
            assert await stayed == 7

    asyncio.run(main())


def test_a_refusal_is_the_error_it_names() -> None:
    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher:
            role.refusal = "too-large 2 bytes, 1 at most"
            with pytest.raises(TooLarge, match="2 bytes"):
                await publisher.publish({"n": 1}, b"xx")

    asyncio.run(main())


def test_each_waits_its_own_time_for_the_acknowledgement() -> None:
    async def main() -> None:
        async with matcher() as (role, where), Publisher(where, timeout=0.2) as publisher:
            role.mute = True
            with pytest.raises(RequestTimeout, match=r"within 0\.2 s"):
                await publisher.publish({"n": 1})
            role.mute = False
            assert await publisher.publish({"n": 2}) == 7

    asyncio.run(main())


def test_nobody_there_is_told_with_the_reason() -> None:
    async def main() -> None:
        async with matcher() as (_, where):
            pass
        async with Publisher(where, timeout=0.3) as publisher:
            with pytest.raises(RequestTimeout, match=f"no matcher answers at {where}"):
                await publisher.publish({"n": 1})

    asyncio.run(main())


def test_the_same_id_twice_under_way_is_one_publication_with_one_answer() -> None:
    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher:
            same = b"abcdefghijkl"
            first = publisher.publish({"n": 1}, identity=same)
            second = publisher.publish({"n": 1}, identity=same)
            assert [*await asyncio.gather(first, second)] == [7, 7]
            assert [one.message_id for one in role.got] == [same]

    asyncio.run(main())


def test_whoever_waits_when_it_is_closed_is_told() -> None:
    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher:
            role.mute = True
            waiting = asyncio.ensure_future(publisher.publish({"n": 1}))
            while not role.got:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await publisher.close()
            with pytest.raises(Closed):
                await waiting

    asyncio.run(main())


def test_more_bytes_than_may_be_open_wait_in_a_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_OPEN_BYTES", 10_000)

    async def main() -> None:
        async with matcher() as (role, where), Publisher(where) as publisher:
            publications = [({"n": n}, b"x" * 1000) for n in range(100)]
            for items in (publications, Elsewhere(publications, 10)):
                counts = [count async for count in publisher.publish_all(items)]
                assert len(counts) == 100
                assert role.most <= 11
            role.mute = True
            one_by_one = [publisher.publish({"n": n}, b"x" * 1000) for n in range(100)]
            started = [asyncio.ensure_future(one) for one in one_by_one]
            done, _ = await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
            assert all(isinstance(one.exception(), QueueFull) for one in done)

    asyncio.run(main())


def test_what_cannot_be_published_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Publisher(window=0)  # it used to wait for ever

    async def main() -> None:
        async with matcher() as (_, where), Publisher(where) as publisher:
            for attributes, payload in (({"a": "\ud800"}, b""), ({"a": 1}, "\ud800")):
                with pytest.raises(SubscriptionError, match="UTF-8"):
                    await publisher.publish(attributes, payload)

    asyncio.run(main())
