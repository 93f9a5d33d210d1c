"""What clients and workers take from chunks as it stands there is what came message by message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from homing.service.asking import Asked, Asking
from homing.service.bodies import codec_named
from homing.service.serve import Serve
from homing.service.station import Station
from homing.service.stream import Stream
from homing.wire import mdp
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import command, pack
from homing.wire.mdp_messages import Dialect, Kind, Nak, Report, Work
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
        self.stream.connection_made(cast(asyncio.BaseTransport, self))
        while said := self.codec.take():
            self.stream.data_received(said)
            self.codec.receive(self._inbox)
            self._inbox = b""
        assert self.codec.ready

    def write(self, data: bytes) -> None:
        self._inbox += data

    def set_write_buffer_limits(self, high: int) -> None:
        """Nothing is ever kept."""

    def say(self, data: bytes, cuts: list[int]) -> None:
        """Send these bytes, cut at these places."""
        places = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
        for start, end in pairwise(places):
            self.stream.data_received(data[start:end])


def ask(asking: Asking) -> Asked:
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    return asking.ask(asking.plan("echo", 10.0, 4, False), b"\x00\x00", 10.0, done, None)


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


@given(st.lists(st.tuples(HOW, BODIES), min_size=1, max_size=10), CUTS)
@example([("final", [b"x" * 64])] * 6, [])
@example([("final", [b"x" * 64])] * 6, [50, 51])
def test_answers_in_chunks(asks: list[tuple[str, list[bytes]]], cuts: list[int]) -> None:
    async def run() -> None:
        one, other = Asking(Dialect.D0X, 1024), Asking(Dialect.D0X, 1024)
        far = Far(lambda images: other.receive(images, 0.0), other.skim)
        before, stream = [ask(one) for _ in asks], b""
        after = [ask(other) for _ in asks]
        for asked, (how, body) in zip(before, asks, strict=True):
            images = said_to(asked, how, body)
            one.receive([image for image in images if image != PING], 0.0)
            stream += b"".join(images)
        far.say(stream, cuts)
        assert not one.under_way
        assert not other.under_way
        assert [_outcome(asked) for asked in before] == [_outcome(asked) for asked in after]
        assert far.stream.codec.reader.offset >= len(stream)

    asyncio.run(run())


def _outcome(asked: Asked) -> object:
    error = asked.done.exception()
    return str(error) if error is not None else asked.done.result()


class Nobody:
    """A worker that is told nothing."""

    def announced(self, service: str) -> None: ...

    def refused(self, error: Exception) -> None: ...


@given(st.lists(st.tuples(BODIES, st.sampled_from("rrrhpl")), max_size=10), CUTS)
@example([([b"x" * 64], "r")] * 6, [])
def test_requests_in_chunks(asks: list[tuple[list[bytes], str]], cuts: list[int]) -> None:
    async def run() -> None:
        taken: list[bytes] = []
        read, write = codec_named("json").reader(list[bytes]), codec_named("json").write
        serve = Serve(lambda body: taken.append(pack(body)), "inline", read, write)
        station = Station(
            "tcp://127.0.0.1:1",
            "echo",
            100,
            serve,
            Nobody(),
            mechanism=NULL,
            dialect=Dialect.D0X,
            interval=2.5,
            liveness=3,
        )
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
