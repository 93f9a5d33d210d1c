"""The subscriber of the SDK on links made by hand: what is kept for a busy application, what an earlier life left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from homing.push import subscriber as module
from homing.push.subscriber import Subscriber
from homing.testing.recording import RecordingLink, RecordingPort
from homing.wire.pushed import Push, push
from homing.wire.session import elements

CLIENT = "ab" * 12


class SlowLink(RecordingLink):
    """A link that remembers whether it is read."""

    __slots__ = ("reading",)

    def __init__(self) -> None:
        super().__init__("connector")
        self.reading = True

    def read(self, on: bool) -> None:
        self.reading = on


class Quay(RecordingPort):
    """Stands in for the moorings: links come when the test says so."""

    role: Any

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.link = SlowLink()

    def open(self) -> SlowLink:
        self.role.closed(self.link, 0.0)
        self.link = SlowLink()
        self.role.opened(self.link, 0.0)
        self.role.receive(self.link, b"+authsuccess\r\n", 0.0)
        return self.link

    def push(self, number: int, *subs: str, redelivered: bool = False) -> None:
        image = push(number.to_bytes(12, "big"), b"", b"{}", subs or ("default",), redelivered)
        self.role.receive(self.link, image, 0.0)

    async def close(self) -> None:
        """Nothing is open."""


def subscribed(
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[Subscriber, Quay], Coroutine[Any, Any, None]],
    durable: bool = False,
) -> None:
    """Run something with a subscriber that is let in."""
    monkeypatch.setattr(module, "Moorings", Quay)

    async def main() -> None:
        async with Subscriber(CLIENT, durable=durable) as source:
            quay: object = source._moorings
            assert isinstance(quay, Quay)
            quay.open()
            await then(source, quay)

    asyncio.run(main())


def test_a_busy_applications_link_is_not_read_and_neither_is_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a reconnect all that came was kept, however much it was."""
    monkeypatch.setattr(module, "MAX_KEPT", 10)

    async def busy(source: Subscriber, quay: Quay) -> None:
        for number in range(12):  # a chunk holds some more than the bound
            quay.push(number)
        assert not quay.link.reading
        assert quay.open().reading
        quay.push(12)
        assert not quay.link.reading
        for _ in range(8):
            await anext(source)
        assert quay.link.reading

    subscribed(monkeypatch, busy)


async def come(source: Subscriber, quay: Quay) -> list[str]:
    """A new life asks for one alternative where the last one had two; what it gets of four."""
    asked = asyncio.ensure_future(source.subscribe("a = 1"))
    await asyncio.sleep(0)
    quay.role.receive(quay.link, b"+sub\r\n", 0.0)
    await asked
    quay.link.take()
    quay.push(1, "default/2", redelivered=True)
    quay.push(2, "default/2")
    quay.push(3, "default", "default/2")
    quay.push(4, "default")
    got = [await anext(source) for _ in range(3)]
    return [one.id[-1] for one in got if isinstance(one, Push)]


def test_alternatives_of_an_earlier_lifes_filter_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session still has them; what they bring is not asked for, but for what was owed before."""

    async def later(source: Subscriber, quay: Quay) -> None:
        assert await come(source, quay) == ["1", "3", "4"]
        said = [elements(one) for one in quay.link.take()]
        assert [words for words in said if words[0] == b"unsub"] == [[b"unsub", b"default/2"]]
        assert [b"ack", b"000000000000000000000002"] in said

    subscribed(monkeypatch, later, durable=True)


def test_a_subscription_with_a_slash_in_its_name_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def named(source: Subscriber, quay: Quay) -> None:
        for name in ("default", "default/2", "default/x"):
            asked = asyncio.ensure_future(source.subscribe("a = 1", name))
            await asyncio.sleep(0)
            quay.role.receive(quay.link, b"+sub\r\n", 0.0)
            await asked
        quay.link.take()
        far = "default/" + "9" * 5_000
        for number, name in enumerate(("default/2", "default/x", "other/2", far)):
            quay.push(number, name)
            await anext(source)
        assert b"unsub" not in [elements(one)[0] for one in quay.link.take()]

    subscribed(monkeypatch, named, durable=True)
