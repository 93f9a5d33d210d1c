"""Publisher and subscriber in wrong hands: closed, on other loops, given what has no meaning. Each is told at once."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from homing.backoff import Backoff
from homing.errors import (
    Closed,
    ConfigError,
    Denied,
    Malformed,
    RequestTimeout,
    SubscriptionError,
)
from homing.push import moorings
from homing.push.publisher import Publisher
from homing.push.subscriber import Subscriber
from homing.testing import fabric
from homing.testing.fabric import Fabric
from homing.wire.pushed import Gap, Push

CLIENT = "ab" * 12
PATIENCE = 20.0


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric(push=True) as nodes:
        yield nodes


def run(main: Callable[[], Awaitable[Any]]) -> list[dict[str, Any]]:
    """What the loop complained of, beside its result; nothing takes as long as PATIENCE."""
    complaints: list[dict[str, Any]] = []

    async def within() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        async with asyncio.timeout(PATIENCE):
            await main()

    asyncio.run(within())
    return complaints


async def told(kind: type[Exception], work: Awaitable[Any], match: str | None = None) -> None:
    with pytest.raises(kind, match=match):
        await work


def test_a_publisher_that_was_closed_stays_closed(here: Fabric) -> None:
    async def main() -> None:
        async with Publisher(here.publishers, window=1) as publisher:
            await publisher.publish({"a": 1})
        await publisher.close()
        await told(Closed, publisher.publish({"a": 1}), "closed")
        await told(Closed, anext(aiter(publisher.publish_all([({"a": 1}, b"")]))))
        await told(Closed, publisher.__aenter__())
        assert not publisher.connected
        assert not Closed().retryable

    assert not run(main)


def test_who_waits_for_the_window_of_a_publisher_that_is_closed_is_told() -> None:
    """It published after the close: on a new connection, which nobody closed."""

    async def main() -> None:
        publisher = Publisher("127.0.0.1:1", window=1)
        waiting = [asyncio.create_task(publisher.publish({"a": n})) for n in range(3)]
        await asyncio.sleep(0)
        await publisher.close()
        for one in waiting:
            await told(Closed, one)
        assert len(asyncio.all_tasks()) == 1

    assert not run(main)


def test_a_subscriber_that_was_closed_stays_closed(here: Fabric) -> None:
    async def main() -> None:
        async with here.subscriber() as subscriber:
            await subscriber.subscribe("a = 1")
        await subscriber.close()
        await told(Closed, subscriber.subscribe("a = 1"), "closed")
        await told(Closed, subscriber.unsubscribe())
        await told(Closed, anext(subscriber))
        await told(Closed, anext(subscriber))
        await told(Closed, subscriber.ack(Push("0" * 24, "", {}, [])))
        await told(Closed, subscriber.__aenter__())

    assert not run(main)


def test_everybody_who_waits_for_a_subscriber_is_told_when_it_is_closed(here: Fabric) -> None:
    """One of two iterators waited for ever, a subscribe under way until its timeout."""

    async def main() -> None:
        subscriber = here.subscriber()
        await subscriber.subscribe("a = 1")
        waiting: list[asyncio.Task[Any]] = [
            asyncio.ensure_future(anext(subscriber)) for _ in range(2)
        ]
        waiting.append(asyncio.create_task(subscriber.subscribe("b = 1")))
        await asyncio.sleep(0)
        await subscriber.close()
        for one in waiting:
            await told(Closed, one)

    assert not run(main)


def test_another_loops_publisher_and_subscriber_are_not_touched(here: Fabric) -> None:
    async def main() -> None:
        async with Publisher(here.publishers) as publisher, here.subscriber() as subscriber:
            await subscriber.subscribe("a = 1")

            def elsewhere(work: Callable[[], Awaitable[Any]]) -> None:
                run(lambda: told(Closed, work(), "another event loop"))

            for work in (
                lambda: publisher.publish({"a": 1}),
                lambda: subscriber.subscribe("a = 1"),
                lambda: anext(subscriber),
                publisher.close,
                subscriber.close,
            ):
                await asyncio.to_thread(elsewhere, work)
            assert await publisher.publish({"a": 1}) == 1

    assert not run(main)


def test_what_an_ended_loop_left_can_be_closed(here: Fabric) -> None:
    publisher, subscriber = Publisher(here.publishers), here.subscriber()

    async def use() -> None:
        await publisher.publish({"a": 1})
        await subscriber.subscribe("a = 1")

    async def again() -> None:
        await told(Closed, publisher.publish({"a": 1}))
        await told(Closed, anext(subscriber))
        await publisher.close()
        await subscriber.close()

    assert not run(use)
    assert not run(again)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5"])
def test_a_timeout_is_a_time(timeout: Any) -> None:
    with pytest.raises(ConfigError, match="above 0"):
        Publisher(timeout=timeout)
    with pytest.raises(ConfigError, match="above 0"):
        Subscriber(CLIENT, timeout=timeout)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"ack": "maybe"}, ConfigError),
        ({"api_key": "key"}, ConfigError),
        ({"api_key": "a\r\nb", "authority": "http://127.0.0.1:1"}, ConfigError),
        ({"api_key": "\u20ac", "authority": "http://127.0.0.1:1"}, ConfigError),
        ({"credentials": 5}, TypeError),
        ({"client_id": "x"}, Malformed),
        ({"client_id": None}, TypeError),
    ],
)
def test_a_subscriber_is_told_what_is_wrong_when_it_is_made(
    wrong: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        Subscriber(**{"client_id": CLIENT, **wrong})


def test_a_publishers_token_fits_into_its_hello() -> None:
    Publisher(token="x" * 1997)
    for wrong in ("x" * 1998, "\udcff"):
        with pytest.raises(Malformed, match="token"):
            Publisher(token=wrong)


def test_endpoints_are_texts() -> None:
    for wrong in (None, 5, ["127.0.0.1:7001"]):
        with pytest.raises(TypeError, match="an endpoint is text"):
            Publisher(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="an endpoint is text"):
            Subscriber(CLIENT, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a token is text"):
        Publisher(token=None)  # type: ignore[arg-type]


def test_what_cannot_be_published_says_what_can(here: Fabric) -> None:
    async def main() -> None:
        async with Publisher(here.publishers) as publisher:
            publish: Any = publisher.publish
            wrong: Any
            for wrong in (None, [], "x"):
                await told(TypeError, publish(wrong), "attributes are a mapping")
            for wrong in (None, 5, ["x"]):
                await told(TypeError, publish({"a": 1}, wrong), "a payload is bytes or text")
            for wrong in ("x" * 12, 5, bytearray(12)):
                await told(TypeError, publish({"a": 1}, b"", identity=wrong), "12 bytes")
            for wrong in (1, ({"a": 1},), "ab"):
                await told(TypeError, anext(aiter(publisher.publish_all([wrong]))), "a publication")
            assert await publisher.publish({"a": 1}) == 0

    assert not run(main)


def test_numbers_and_mappings_of_other_libraries_are_published(here: Fabric) -> None:
    """numpy's floats are floats, and were refused by the JSON; so was any mapping but a dict."""

    class Name(str):
        __slots__ = ()

    async def main() -> None:
        async with Publisher(here.publishers) as publisher, here.subscriber() as subscriber:
            await subscriber.subscribe('a = 1.5 and b = "x"')
            attributes: Any = {"a": np.float64(1.5), "b": Name("x")}
            body: Any = bytearray(b"1")
            assert await publisher.publish(types.MappingProxyType(attributes), body) == 1
            push = await anext(subscriber)
            assert isinstance(push, Push)
            assert (push.attrs, push.body) == ({"a": 1.5, "b": "x"}, b"1")

    assert not run(main)


def test_a_subscription_that_has_no_meaning_leaves_nothing_behind(here: Fabric) -> None:
    """It was kept, and said again on every new link, which ended in an error of Python's each time."""

    async def main() -> None:
        async with here.subscriber() as subscriber:
            subscribe: Any = subscriber.subscribe
            wrong: Any
            for wrong in (None, 5, [], b"a = 1"):
                await told(TypeError, subscribe(wrong), "a subscription is a filter")
            for wrong in ({"a": 1}, {"a": {"use": 9}}, {1: {"use": 1, "strval": "x"}}):
                await told(SubscriptionError, subscribe(wrong))
            await told(TypeError, subscribe("a = 1", name=5), "name is text")
            await told(SubscriptionError, subscribe("a = 1", name="\ud800"), "UTF-8")
            await told(SubscriptionError, subscribe("a = 1", name="x" * 1000))
            for wrong in (None, "0" * 24, Gap(1, "", "")):
                await told(TypeError, subscriber.ack(wrong), "homing.Push")
            assert subscriber._role is not None
            assert not subscriber._role._wanted

    assert not run(main)


def test_fields_may_be_described_as_the_protocol_has_them(here: Fabric) -> None:
    async def main() -> None:
        async with Publisher(here.publishers) as publisher, here.subscriber() as subscriber:
            await subscriber.subscribe({"a": {"use": 2, "low": 1, "high": 2}})
            assert await publisher.publish({"a": 1.5}) == 1
            assert await publisher.publish({"a": 3}) == 0

    assert not run(main)


@pytest.mark.parametrize("wrong", [lambda: 1 / 0, lambda: None])
def test_credentials_that_fail_are_told(here: Fabric, wrong: Any) -> None:
    """The loop was told, once for each dial; the subscriber waited."""

    async def main() -> None:
        async with Subscriber(CLIENT, here.subscribers, credentials=wrong) as subscriber:
            await told(Denied, subscriber.subscribe("a = 1"), "no credentials")
            await told(Denied, anext(subscriber), "no credentials")

    assert not run(main)


def test_who_is_not_let_in_knocks_ever_more_slowly_and_is_told_once(
    here: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dialled twenty times a second, and each time left a refusal for whoever would ask."""
    pauses: list[float] = []

    enough = asyncio.Event()

    class Counted(Backoff):
        def pause(self) -> float:
            pauses.append(self._next)
            super().pause()
            if len(pauses) == 6:
                enough.set()
            return 0.0

    monkeypatch.setattr(moorings, "Backoff", Counted)

    async def main() -> None:
        async with Subscriber(CLIENT, here.subscribers, token="wrong", timestamp=1) as subscriber:
            await enough.wait()
            assert subscriber._arrived.qsize() == 1
            await told(Denied, anext(subscriber))

    run(main)
    assert pauses[5] == moorings.PAUSES[1]


def test_a_wrong_port_is_told_as_such(here: Fabric) -> None:
    async def failed(work: Callable[[], Awaitable[Any]]) -> str:
        try:
            await work()
        except RequestTimeout as error:
            return str(error)
        raise AssertionError("it was served")

    async def main() -> None:
        async with Publisher(here.clients, timeout=0.3) as publisher:
            assert "at byte" in await failed(lambda: publisher.publish({"a": 1}))
        async with Subscriber(CLIENT, here.clients, timeout=0.3) as subscriber:
            assert "at byte" in await failed(lambda: subscriber.subscribe("a = 1"))
        async with Subscriber(CLIENT, here.publishers, timeout=0.3) as subscriber:
            assert "port" in await failed(lambda: subscriber.subscribe("a = 1"))

    assert not run(main)


def test_who_only_waits_for_pushes_is_told_by_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = asyncio.Event()

    class Counted(Backoff):
        tries = 0

        def pause(self) -> float:
            self.tries += 1
            if self.tries == 3:
                dialled.set()
            return 0.0

    monkeypatch.setattr(moorings, "Backoff", Counted)

    async def main() -> None:
        async with Subscriber(CLIENT, "127.0.0.1:1") as subscriber:
            waiting = asyncio.ensure_future(anext(subscriber))
            await dialled.wait()
            waiting.cancel()

    assert not run(main)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "no connection, trying on: tcp://127.0.0.1:1: nobody listens there"
    ]
