"""The publisher and the subscriber without asyncio: the same names, the same arguments, blocking.

    from homing.sync import Publisher, Subscriber

    with Publisher("127.0.0.1:7001") as publisher:
        print(publisher.publish({"price": 12.5}, "hello"))

    with Subscriber(client_id, token=token, timestamp=stamp) as subscriber:
        subscriber.subscribe("price in 10..20")
        for push in subscriber: ...

A thread of its own runs the loop of each, so it may be used from several threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from homing.loops import Blocking, Elsewhere, made_as
from homing.push import publisher, subscriber
from homing.push.given import Wanted
from homing.push.values import Value
from homing.wire.pushed import Gap, Push

AHEAD: Final = 1024
"""Publications that another thread makes ahead: some milliseconds of a fast publisher."""


class Publisher(Blocking[publisher.Publisher]):
    """homing.Publisher, blocking."""

    @made_as(publisher.Publisher)
    def __init__(self, *matchers: str, **settings: Any) -> None:
        super().__init__(publisher.Publisher(*matchers, **settings).__aenter__)

    def publish(
        self, attributes: Mapping[str, Value], payload: bytes | str = b"", *, identity: bytes = b""
    ) -> int:
        """Publish; how many subscriptions matched."""
        return self._call(self._inner.publish(attributes, payload, identity=identity))

    def publish_all(self, publications: Iterable[publisher.Publication]) -> list[int]:
        """Publish many, pipelined; match counts in their order.

        Publications that are made on the way (a generator, a file) are taken in another thread.
        """
        ready = isinstance(publications, Collection)
        items = publications if ready else Elsewhere(publications, AHEAD)

        async def collect() -> list[int]:
            return [count async for count in self._inner.publish_all(items)]

        return self._call(collect())


class Subscriber(Blocking[subscriber.Subscriber]):
    """homing.Subscriber, blocking; iterate over it."""

    @made_as(subscriber.Subscriber)
    def __init__(self, client_id: str, *connectors: str, **settings: Any) -> None:
        super().__init__(subscriber.Subscriber(client_id, *connectors, **settings).__aenter__)

    def subscribe(self, wanted: Wanted, name: str = "default") -> None:
        """Set a subscription; returns once it is in force."""
        self._call(self._inner.subscribe(wanted, name))

    def unsubscribe(self, name: str = "default") -> None:
        """Remove a subscription."""
        self._call(self._inner.unsubscribe(name))

    def ack(self, push: Push) -> None:
        """Say that a publication is dealt with."""
        self._call(self._inner.ack(push))

    def __iter__(self) -> Iterator[Push | Gap]:
        return self

    def __next__(self) -> Push | Gap:
        return self._call(self._inner.__anext__())

    def get(self, timeout: float | None = None) -> Push | Gap:
        """The next one; TimeoutError if none comes in time, at once with 0."""

        async def within() -> Push | Gap:
            async with asyncio.timeout(timeout):
                return await self._inner.__anext__()

        return self._call(within())
