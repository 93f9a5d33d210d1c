"""What clients and workers take from chunks as it stands there is what came message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

from hypothesis import example, given
from hypothesis import strategies as st

from homing.service.asking import Asked, Asking
from homing.service.bodies import body_of, codec_named
from homing.service.serve import Serve
from homing.service.station import Station
from homing.service.stream import Stream
from homing.wire import mdp
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import command, pack
from homing.wire.mdp_messages import Answer, Dialect, Kind, Nak, Report, Work
from homing.wire.mechanisms import Mechanism
from homing.wire.zmtp import NULL, Connection

PING = command(b"PING", b"\x00\x00there")
BODIES = st.sampled_from(([b"x"], [b""], [b"y" * 255], [b"z" * 256], [b"a", b"b"], [b"c"] * 9))
CUTS = st.lists(st.integers(1, 2000), max_size=6)


class Far:
    """The broker's side of a Stream, and its transport."""

    def __init__(
        self,
        received: Callable[[list[bytes]], None],
        skim: Callable[[bytes], int],
        mechanisms: tuple[Mechanism, Mechanism] = (NULL, NULL),
    ) -> None:
        self.codec = Connection("ROUTER", mechanism=mechanisms[0])
        loop = asyncio.get_running_loop()
        mine = Connection("DEALER", mechanism=mechanisms[1])
        self.stream = Stream(loop, mine, received, lambda: None, skim)
        self._inbox = b""
        self.writes: list[bytes] = []  # since the handshake
        self.stream.connection_made(cast(asyncio.BaseTransport, self))
        while said := self.codec.take():
            self.stream.data_received(said)
            self.codec.receive(self._inbox)
            self._inbox = b""
        assert self.codec.ready
        self.writes.clear()

    def write(self, data: bytes) -> None:
        self._inbox += data
        self.writes.append(data)

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever kept."""

    def say(self, data: bytes, cuts: list[int]) -> None:
        """Send these bytes, cut at these places."""
        places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
        for start, end in pairwise(places):
            self.stream.data_received(data[start:end])


def ask(asking: Asking, bare: bool = False) -> Asked:
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    plan = asking.plan("echo", 10.0, 4, False)
    asked = asking.ask(plan, b"\x00", b"\x00", 10.0, done, None)
    asked.bare = bare
    return asked


def said_to(asked: Asked, how: str, body: list[bytes]) -> list[bytes]:
    """What a broker may say of a request."""
    envelope, data = asked.plan.before[2:] + asked.key, pack(body)
    final = mdp.write(Report(Dialect.D0X, Kind.FINAL, b"echo", data, envelope))
    if how == "twice":
        return [final, final]
    if how == "nak":
        return [mdp.write(Nak(b"echo", b"queue-full", envelope))]
    if how == "part":
        part = mdp.write(Report(Dialect.D0X, Kind.PARTIAL, b"echo", data, envelope))
        return [part, PING, final]
    return [final]


HOW = st.sampled_from(("final", "final", "final", "twice", "nak", "part"))


@given(st.lists(st.tuples(HOW, BODIES), min_size=1, max_size=10), CUTS, st.booleans())
@example([("final", [b"x" * 64])] * 6, [], True)
@example([("final", [b"x" * 64])] * 6, [50, 51], False)
@example([("final", [b"x", b"y"]), ("final", [b"z" * 256])], [], True)
def test_answers_in_chunks(
    asks: list[tuple[str, list[bytes]]], cuts: list[int], bare: bool
) -> None:
    async def run() -> None:
        one, other = Asking(Dialect.D0X, 1024), Asking(Dialect.D0X, 1024)
        far = Far(lambda images: other.receive(images, 0.0), other.skim)
        before, stream = [ask(one) for _ in asks], b""
        after = [ask(other, bare) for _ in asks]
        for asked, (how, body) in zip(before, asks, strict=True):
            images = said_to(asked, how, body)
            one.receive([image for image in images if image != PING], 0.0)
            stream += b"".join(images)
        far.say(stream, cuts)
        assert not one.under_way
        assert not other.under_way
        for whole, told in zip(map(_outcome, before), map(_outcome, after), strict=True):
            assert told == (body_of(whole) if bare and isinstance(whole, bytes) else whole)
        assert far.stream.codec.reader.offset >= len(stream)

    asyncio.run(run())


def _outcome(asked: Asked) -> object:
    error = asked.done.exception()
    return str(error) if error is not None else asked.done.result()


def test_what_is_answered_to_a_waiter_that_was_cancelled_is_dropped() -> None:
    async def run() -> None:
        asking = Asking(Dialect.D0X, 1024)
        far = Far(lambda images: asking.receive(images, 0.0), asking.skim)
        given_up, waiting = ask(asking), ask(asking)
        given_up.done.cancel()  # and its waiter has not had its turn to say so
        far.say(
            b"".join(said_to(given_up, "final", [b"x"]) + said_to(waiting, "final", [b"y"])), []
        )
        assert not asking.under_way
        assert waiting.done.result() == pack([b"y"])

    asyncio.run(run())


def test_what_an_answer_makes_its_waiter_send_leaves_in_the_same_step() -> None:
    async def run() -> None:
        asking = Asking(Dialect.D0X, 1024)
        far = Far(lambda images: asking.receive(images, 0.0), asking.skim)
        asked = [ask(asking) for _ in range(3)]

        async def again(one: Asked) -> None:
            await one.done
            far.stream.send(pack([b"again"]))

        tasks = [asyncio.create_task(again(one)) for one in asked]
        await asyncio.sleep(0)
        far.say(b"".join(said_to(one, "final", [b"x"])[0] for one in asked), [])
        assert far.writes == []
        await asyncio.sleep(0)
        assert far.writes == [pack([b"again"]) * 3], "one write, and no turn of the loop between"
        await asyncio.gather(*tasks)

    asyncio.run(run())


class Nobody:
    """A worker that is told nothing."""

    def announced(self, service: str) -> None: ...

    def refused(self, error: Exception) -> None: ...


def inline(function: Callable[[Any], Any], kind: Any) -> Station:
    """A station that serves this on the spot."""
    codec = codec_named("json")
    return Station(
        "tcp://127.0.0.1:1",
        "echo",
        100,
        Serve(function, "inline", codec.reader(kind), codec.write),
        Nobody(),
        mechanism=NULL,
        dialect=Dialect.D0X,
        interval=2.5,
        liveness=3,
    )


@given(
    st.lists(BODIES.filter(lambda body: len(body) < 9), min_size=1, max_size=8),
    st.sampled_from((b"", b"short", b"l" * 256, "text", None, [b"a", b"b"], {"k": 1})),
    st.sampled_from((bytes, list[bytes])),
)
def test_answers_on_the_spot_leave_with_the_chunk(
    bodies: list[list[bytes]], answer: Any, kind: Any
) -> None:
    async def run() -> None:
        taken: list[Any] = []

        def function(body: Any) -> Any:
            taken.append(body)
            return answer

        station = inline(function, kind)
        far = Far(station.received, station._skim)
        station._lifeline.stream = far.stream
        works = [
            Work(Dialect.D0X, b"echo", b"alice%d" % n, pack(body)) for n, body in enumerate(bodies)
        ]
        far.say(b"".join(map(mdp.write, works)), [])
        codec = codec_named("json")
        assert taken == [codec.reader(kind)(work.data) for work in works]
        data = codec.write(answer)
        expected = [Answer(Dialect.D0X, Kind.FINAL, work.address, b"echo", data) for work in works]
        assert far.writes == [b"".join(map(mdp.write, expected))]

    asyncio.run(run())


@given(st.lists(st.tuples(BODIES, st.sampled_from("rrrhpl")), max_size=10), CUTS)
@example([([b"x" * 64], "r")] * 6, [])
def test_requests_in_chunks(asks: list[tuple[list[bytes], str]], cuts: list[int]) -> None:
    async def run() -> None:
        taken: list[bytes] = []
        station = inline(lambda body: taken.append(pack(body)), list[bytes])
        far = Far(station.received, station._skim)
        stream, expected = b"", []
        for place, (body, how) in enumerate(asks):
            address = b"alice%08d" % place if how != "l" else b"a" * 300
            if how in "rl":
                expected.append(pack(body))
                stream += mdp.write(Work(Dialect.D0X, b"echo", address, pack(body)))
            else:
                stream += PING if how == "p" else mdp.HEARTBEATS[Dialect.D0X]
        far.say(stream, cuts)
        for _ in range(100):
            await asyncio.sleep(0)
        assert taken == expected

    asyncio.run(run())


def test_nothing_in_clear_is_taken_from_a_sealed_connection() -> None:
    async def run() -> None:
        asking, keys = Asking(Dialect.D0X, 1024), new_keys()
        server, client = CurveServer(keys), CurveClient(keys[0])
        far = Far(lambda images: asking.receive(images, 0.0), asking.skim, (server, client))
        asked = ask(asking)
        (final,) = said_to(asked, "final", [b"forged"])
        far.stream.transport = cast(asyncio.Transport, _Closed())
        far.stream.data_received(final)
        assert not asked.done.done()
        assert far.stream.over.done()

    asyncio.run(run())


class _Closed:
    """A transport that is not there any more."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...
