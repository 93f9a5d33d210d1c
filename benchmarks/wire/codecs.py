"""One row a codec: what it decodes and encodes, and how fast, on one core without sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from homing.ids import IdMaker
from homing.wire import mdp, relay, session, tasks
from homing.wire.assembly import Assembler
from homing.wire.curve import CurveClient, CurveServer, new_keys
from homing.wire.frames import frame, pack
from homing.wire.mdp_messages import Answer, Dialect, Kind, Request
from homing.wire.mechanisms import Mechanism
from homing.wire.packet import PacketStream
from homing.wire.zmtp import NULL, Connection

# What one read of a busy socket brings.
CHUNK = 64 << 10
BODY = bytes(range(64))
SECONDS = 0.3


class Workload(NamedTuple):
    """A message, what decodes a stream of it, and what encodes one."""

    codec: str
    message: str
    encoded: bytes
    decode: Callable[[bytes], int]  # how many messages were in this chunk
    encode: Callable[[], bytes]


class Figures(NamedTuple):
    """µs a message and MB a second, each way."""

    decode_us: float
    decode_mb: float
    encode_us: float
    encode_mb: float


def measure(work: Workload, seconds: float) -> Figures:
    """CPU time of decoding whole chunks and of encoding messages one by one."""
    count = max(1, CHUNK // len(work.encoded))
    chunk = work.encoded * count
    assert work.decode(chunk) == count, work.message
    assert work.encode() == work.encoded, work.message
    decode = _per_call(lambda: work.decode(chunk), seconds) / count
    encode = _per_call(work.encode, seconds)
    size = len(work.encoded)
    return Figures(decode * 1e6, size / decode / 1e6, encode * 1e6, size / encode / 1e6)


def _per_call(call: Callable[[], object], seconds: float) -> float:
    """CPU seconds a call, the best of many short runs: the others met a neighbour."""
    best = float("inf")
    end = time.monotonic() + seconds
    calls = 1
    while time.monotonic() < end or best == float("inf"):
        start = time.process_time()
        for _ in range(calls):
            call()
        spent = time.process_time() - start
        if spent < 0.005:
            calls *= 2
            continue
        best = min(best, spent / calls)
    return best


def workloads() -> list[Workload]:
    """Every codec with the messages it sees most."""
    return [*_zmtp(), *_mdp(), _tasks(), *_packets(), *_sessions()]


def _pair(client: Mechanism = NULL, server: Mechanism = NULL) -> tuple[Connection, Connection]:
    ours, theirs = Connection("DEALER", mechanism=client), Connection("ROUTER", mechanism=server)
    while not (ours.ready and theirs.ready):
        theirs.receive(ours.take())
        ours.receive(theirs.take())
    return ours, theirs


def _zmtp() -> list[Workload]:
    shapes = {
        "1 frame, 64 B": [BODY],
        "1 frame, 1 KiB": [BODY * 16],
        "MDP request, 4 frames, 64 B": [b"", b"MDPC0X", b"echo", BODY],
        "MDP request to a worker, 7 frames, 64 B": [
            *(b"", b"MDPW0X", b"\2", b"echo", b"client", b""),
            BODY,
        ],
        "1 frame, 64 KiB": [BODY * 1024],
    }
    found = []
    for title, frames in shapes.items():
        reader = _pair()[1]
        found.append(
            Workload(
                "zmtp",
                title,
                pack(frames),
                lambda chunk, reader=reader: len(reader.receive(chunk)),  # type: ignore[misc]
                lambda frames=frames: pack(frames),  # type: ignore[misc]
            )
        )
    return found


def curve_figures(seconds: float) -> Figures:
    """CURVE: every frame a box; a box cannot be read twice, so each is made and opened once."""
    keys = new_keys()
    ours, theirs = _pair(CurveClient(keys[0]), CurveServer(keys))
    image = pack([BODY])
    encode = _per_call(lambda: ours.encode(image), seconds)
    both = _per_call(lambda: theirs.receive(ours.encode(image)), seconds)
    decode = both - encode
    size = len(image)
    return Figures(decode * 1e6, size / decode / 1e6, encode * 1e6, size / encode / 1e6)


def _each(encoded: bytes, read: Callable[[bytes], object]) -> Callable[[bytes], int]:
    """Decode a chunk of messages that come cut already."""
    size = len(encoded)

    def decode(chunk: bytes) -> int:
        count = len(chunk) // size
        for _ in range(count):
            read(encoded)
        return count

    return decode


def _mdp() -> list[Workload]:
    data = frame(BODY, False)
    request = Request(Dialect.D0X, b"echo", data)
    answer = Answer(Dialect.D0X, Kind.FINAL, b"client", b"echo", data)
    asked, answered = mdp.write(request), mdp.write(answer)
    return [
        Workload(
            "mdp",
            "client's request, 64 B",
            asked,
            _each(asked, mdp.read_from_client),
            lambda: mdp.write(request),
        ),
        Workload(
            "mdp",
            "worker's report, 64 B",
            answered,
            _each(answered, mdp.read_from_worker),
            lambda: mdp.write(answer),
        ),
    ]


def _tasks() -> Workload:
    task = tasks.Task("echo", "5b7e4a52-7f0e-4a39-a9f1-1f1d0c5f7a11", frame(BODY, False))
    encoded = tasks.write(task)
    return Workload(
        "tasks",
        "TASK REQUEST, 64 B",
        encoded,
        _each(encoded, tasks.read),
        lambda: tasks.write(task),
    )


def _packets() -> list[Workload]:
    made = IdMaker(lambda: 1.7e9, bytes(8))
    found = []
    for title, payload, clients in (
        ("push to 4 clients, 128 B", BODY * 2, 4),
        ("push to 100 clients, 16 KiB (split)", BODY * 256, 100),
    ):
        push = relay.Push(made(), payload, b"".join(made() for _ in range(clients)))
        stream, assembler = PacketStream(), Assembler(relay.MESSAGE_ID)

        def decode(chunk: bytes, stream: PacketStream = stream, to: Assembler = assembler) -> int:
            return sum(len(to.receive(run, 0.0)) for run in stream.receive(chunk))

        found.append(Workload("packet", title, push.encode(), decode, push.encode))
    return found


def _sessions() -> list[Workload]:
    parts = [b"sub", b"price", b'{"use": 2, "low": 1, "high": 9}']
    stream, answers = session.CommandStream(), session.AnswerStream()
    json = b'{"type":"push","id":"0123456789abcdef01234567","payload":"%b"}' % (b"x" * 128)
    return [
        Workload(
            "session",
            "subscribe command",
            session.command(parts),
            lambda chunk: len([session.elements(each) for each in stream.receive(chunk)]),
            lambda: session.command(parts),
        ),
        Workload(
            "session",
            "push, 128 B",
            session.framed(json),
            lambda chunk: len(answers.receive(chunk)),
            lambda: session.framed(json),
        ),
    ]
