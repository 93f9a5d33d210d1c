"""Which answer belongs to which request, and what bodies become: in any order, for any value."""

from __future__ import annotations

import asyncio
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import HomingError, LinkError, Malformed, QueueFull, RequestTimeout
from homing.service.asking import Asked, Asking, Streamed
from homing.service.bodies import JSON, MSGPACK, Codec, codec_named
from homing.service.stream import Stream
from homing.service.turns import Turns
from homing.wire import mdp
from homing.wire.frames import frame, pack
from homing.wire.mdp_messages import Dialect, Kind, Nak, Report
from homing.wire.zmtp import Connection
from tests.service.rig import on_loop


def ask(asking: Asking, service: str, *, streamed: bool = False, deadline: float = 10.0) -> Asked:
    plan = asking.plan(service, 10.0, 4, streamed)
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    asked = asking.ask(plan, frame(b"question", False), b"", deadline, done, None)
    read = mdp.read_from_client(asked.unsent)
    assert read.service == service.encode()
    assert read.envelope.endswith(asked.key)
    options = mdp.read_options(read.envelope)
    assert options is not None
    assert (options.partials, options.priority, options.timeout_ms) == (streamed, 4, 10_000)
    return asked


def answer(asked: Asked, service: str, body: bytes, kind: Kind = Kind.FINAL) -> bytes:
    envelope = asked.plan.before[2:] + asked.key
    return mdp.write(Report(Dialect.D0X, kind, service.encode(), frame(body, False), envelope))


@given(st.integers(1, 20), st.data())
def test_every_request_gets_its_own_answer_in_any_order(count: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(count)))
    endings = data.draw(
        st.lists(st.sampled_from(["report", "nak", "lost", "late"]), min_size=count)
    )
    parts = data.draw(st.lists(st.integers(0, 3), min_size=count))

    async def run() -> None:
        asking = Asking(Dialect.D0X, 1024)
        asked = [ask(asking, f"s{n % 3}", streamed=n % 2 == 0) for n in range(count)]
        for n in order:
            service = f"s{n % 3}"
            for part in range(parts[n]):
                asking.receive([answer(asked[n], service, b"%d.%d" % (n, part), Kind.PARTIAL)], 0.0)
            if endings[n] == "nak":
                envelope = asked[n].plan.before[2:] + asked[n].key
                nak = Nak(service.encode(), b"queue-full %d" % n, envelope)
                asking.receive([mdp.write(nak)], 0.0)
            elif endings[n] == "late":
                assert asking.forget(asked[n])
                asking.receive([answer(asked[n], service, b"late")], 0.0)
            elif endings[n] == "report":
                final = answer(asked[n], service, b"%d" % n)
                asking.receive([final, final], 0.0)  # the second goes nowhere
        asking.fail(lambda: LinkError("gone"))
        assert len(asking) == 0
        for n in range(count):
            _check(asked[n], n, endings[n], parts[n])

    asyncio.run(run())


def _check(asked: Asked, number: int, ending: str, parts: int) -> None:
    done = asked.done
    if ending == "report":
        assert done.result() == frame(b"%d" % number, False)
    elif ending == "nak":
        assert isinstance(done.exception(), QueueFull)
        assert str(done.exception()) == str(number)
    elif ending == "lost":
        assert isinstance(done.exception(), LinkError)
    else:
        assert not done.done()
    if isinstance(asked, Streamed):
        expected = [frame(b"%d.%d" % (number, part), False) for part in range(parts)]
        assert list(asked.parts) == expected


@on_loop
async def test_what_is_overdue_fails_and_the_next_deadline_is_told() -> None:
    asking = Asking(Dialect.D0X, 1024)
    first, second = ask(asking, "a", deadline=1.0), ask(asking, "a", deadline=2.0)

    def why() -> HomingError:
        return RequestTimeout("late")

    assert asking.expire(0.5, why) == 1.0
    assert asking.expire(1.0, why) == 2.0
    assert isinstance(first.done.exception(), RequestTimeout)
    assert not second.done.done()
    assert asking.expire(3.0, why) == math.inf
    assert second.done.exception() is not first.done.exception()


@on_loop
async def test_plans_are_made_once_and_forgotten_in_time() -> None:
    asking = Asking(Dialect.D0X, 1024)
    assert asking.plan("a", 1.0, 4, False) is asking.plan("a", 1.0, 4, False)
    for number in range(10_000):
        asking.plan("a", 1.0 + number, 4, False)
    assert len(asking._plans) <= 4096


@on_loop
async def test_ids_are_never_given_twice() -> None:
    asking = Asking(Dialect.D0X, 1024)
    keys = [ask(asking, "a").key for _ in range(1000)]
    assert keys == sorted(set(keys))


@on_loop
async def test_only_a_request_that_nothing_else_needs_seeing_to_goes_at_once() -> None:
    loop = asyncio.get_running_loop()
    stream = Stream(loop, Connection("DEALER"), lambda _: None, lambda: None)
    asking = Asking(Dialect.D0X, 2)
    plan, data = asking.plan("a", 10.0, 4, False), frame(b"question", False)
    asking.alarm_at = loop.time() + 10.0
    assert asking.at_once(plan, data, b"", stream) is None, "nobody waits for signs of life yet"
    ask(asking, "a")
    assert asking.at_once(plan, data, b"", None) is None, "no connection"
    stream.full = True
    assert asking.at_once(plan, data, b"", stream) is None, "a peer that is behind"
    stream.full = False
    asking.alarm_at = loop.time() + 60.0
    assert asking.at_once(plan, data, b"", stream) is None, "the alarm would ring too late"
    asking.alarm_at = 0.0
    asked = asking.at_once(plan, data, b"", stream)
    assert asked is not None
    assert asking.under_way[asked.key] is asked
    assert asking.at_once(plan, data, b"", stream) is None, "no room"


@on_loop
async def test_bytes_for_a_service_that_is_known_are_asked_for_in_one_step() -> None:
    loop = asyncio.get_running_loop()
    stream = Stream(loop, Connection("DEALER"), lambda _: None, lambda: None)
    asking = Asking(Dialect.D0X, 1024)
    asking.alarm_at = 0.0
    ask(asking, "a")
    assert asking.quick("a", b"x", stream) is None, "how long its answer may take is not known"
    asking.remember("a", asking.plan("a", 10.0, 4, False))
    for other in ("x", None, [b"x"], b"x" * 256, bytearray(b"x")):
        assert asking.quick("a", other, stream) is None, "not bytes of one short frame"
    assert asking.quick("a", b"x", None) is None, "no connection"
    asked = asking.quick("a", b"x", stream)
    assert asked is not None
    asking.receive([answer(asked, "a", b"y")], 0.0)
    assert asked.done.result() == b"y"
    for number in range(10_000):
        asking.remember(str(number), asked.plan)
    assert len(asking._usual) <= 4096


@on_loop
async def test_a_turn_that_is_cancelled_goes_to_the_next_in_line() -> None:
    turns = Turns()
    one, two = (asyncio.create_task(turns.wait(10.0)) for _ in range(2))
    await asyncio.sleep(0)
    turns.wake(1)
    one.cancel()  # its turn has come, but it will not take it
    await asyncio.wait([one, two], timeout=5)
    assert one.cancelled()
    assert two.done()
    assert not two.cancelled()


# -- bodies -------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(
    st.binary(max_size=400), st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.text()
)
def test_raw_bodies_come_back_as_they_are(body: bytes, frames: list[bytes], text: str) -> None:
    assert JSON.reader(bytes)(JSON.write(body)) == body
    assert JSON.reader(bytes)(JSON.write(bytearray(body))) == body
    assert JSON.reader(list[bytes])(JSON.write(frames)) == frames
    assert JSON.reader(bytes)(pack(frames)) == b"".join(frames)
    assert JSON.reader(str)(JSON.write(text)) == text


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])
@given(value=st.dictionaries(st.text(), VALUES, max_size=4))
def test_values_come_back_equal(codec: Codec, value: dict[str, object]) -> None:
    assert codec.reader(dict)(codec.write(value)) == value


class Order(msgspec.Struct):
    item: str
    count: int = 1


def test_types_are_checked() -> None:
    read = JSON.reader(Order)
    assert read(JSON.write({"item": "x"})) == Order("x")
    assert JSON.reader(Order) is read
    assert JSON.reader(int | None)(frame(b"null", False)) is None
    for wrong in (b"", b"{", b"[]", b'{"item": 1}', b'{"item": "x", "count": "y"}', b"\xff"):
        with pytest.raises(Malformed, match="json"):
            read(frame(wrong, False))
    with pytest.raises(Malformed, match="UTF-8"):
        JSON.reader(str)(frame(b"\xff", False))
    with pytest.raises(Malformed, match="cannot write"):
        MSGPACK.write(object())
    with pytest.raises(ValueError, match="no codec"):
        codec_named("yaml")
