"""Subscriber: an async iterator of the publications that one's subscriptions ask for.

    async with Subscriber(client_id, token=token, timestamp=stamp) as subscriber:
        await subscriber.subscribe('price in 10..20 and city = "Paris"')
        async for push in subscriber:
            print(push.attrs, push.body)

The token comes from an authority (`Subscriber(client_id, authority="http://host:7006", api_key=…)`),
which is asked anew before every connect and names the connector to use, or from the caller.

A client id is one subscriber's: of two that use the same, one is told `Replaced` and ends.

With `durable` nothing is lost between connections: what was not acknowledged comes again,
flagged `redelivered`. By default a publication is acknowledged when the iterator is asked for
the next one; with `ack="manual"` only by `await subscriber.ack(push)`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, Self

from homing.errors import (
    Closed,
    ConfigError,
    Denied,
    HomingError,
    Malformed,
    Replaced,
    RequestTimeout,
)
from homing.push import given
from homing.push.filters import MAX_SUBSCRIPTIONS
from homing.push.moorings import Moorings, Whole
from homing.push.sessions import DEFAULT
from homing.push.subscribing import Subscribing
from homing.push.tickets import ask_authority
from homing.wire.pushed import Auth, Gap, Push, Wait

DEFAULT_CONNECTOR = "127.0.0.1:7005"
# Publications kept for an application that is busy; then the connection is not read.
MAX_KEPT = 10_000
# What stands behind the name of an alternative; more digits are of a name that has a slash.
_NUMBER = re.compile(r"[0-9]{1,9}")


class Subscriber:
    """A subscriber on the running loop; iterate over it for publications and gaps.

        async with homing.Subscriber(client_id, authority="http://127.0.0.1:7006", api_key=key) as subscriber:
            await subscriber.subscribe('price in 10..20 and city = "Paris"')
            async for push in subscriber:
                print(push.attrs, push.body)

    homing.sync.Subscriber blocks.
    """

    def __init__(
        self,
        client_id: str,
        *connectors: str,
        token: str = "",
        timestamp: int = 0,
        credentials: Callable[[], tuple[int, str]] | None = None,
        authority: str = "",
        api_key: str = "",
        durable: bool = False,
        ack: Literal["auto", "manual"] = "auto",
        wait: float | None = None,
        waiting: Callable[[Wait], None] | None = None,
        timeout: float | None = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`client_id`: 24 hex digits, this client's own for good. `connectors`: tried in turn.

        `credentials`: called before each connect for (timestamp, token), which expire; on the loop, so it must not wait.

        `authority`: a URL to ask for them instead; `connectors` then overrule the one it names.

        `timeout`: seconds for `subscribe` and `unsubscribe`, None for ever; pushes are waited for as long as it takes.

        `wait`: seconds (0 to 600) that a durable session waits, when it comes to another connector, for one that is
        away and may hold something older; the connector's own setting (5) if not named. `waiting` is called when it does.
        """
        given.waits(wait, waiting is not None)
        given.proofs(authority, api_key, token, credentials)
        if ack not in ("auto", "manual"):
            raise ConfigError([f'ack is "auto" or "manual", not {ack!r}'], hint="")
        self.client_id = given.client_id(client_id)
        self._connectors: Sequence[str] = given.endpoints(connectors, DEFAULT_CONNECTOR)
        self._given = bool(connectors)
        self._authority = authority
        self._api_key = api_key
        self._credentials = credentials or (lambda: (timestamp, token))
        self._durable = durable
        self._auto = ack == "auto"
        self._wait = wait
        self._waiting = waiting
        self._timeout = given.seconds(timeout)
        self._tls = tls
        self._arrived: asyncio.Queue[Push | Gap | HomingError] = asyncio.Queue()
        self._told = False  # a refusal waits among them for whoever asks next
        self._closed = False
        self._parts: dict[str, int] = {}  # name -> alternatives of its filter
        self._left_over: set[str] = set()  # alternatives of an earlier life, removed
        self._last: Push | None = None
        self._moorings: Moorings | None = None
        self._role: Subscribing | None = None

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def subscribe(self, wanted: given.Wanted, name: str = DEFAULT[0]) -> None:
        """Set a subscription from a filter or from fields; returns once it is in force.

        A filter with alternatives (`or`) becomes several subscriptions, `name`, `name/2`…

        Raises FilterError or SubscriptionError for what has no meaning, Denied if the connector lets us not
        in, RequestTimeout if none answers (it is set when one does), Closed once this subscriber was closed.
        """
        alternatives = given.alternatives(wanted)
        name = given.subscription_name(name, DEFAULT[0])
        role = self._open()
        waits = []
        for number, fields in enumerate(alternatives, 1):
            waits.append(future := self._future())
            self._left_over.discard(_part(name, number))
            role.subscribe(fields, _part(name, number), _settle(future))
        for number in range(len(alternatives) + 1, self._parts.get(name, 0) + 1):
            waits.append(future := self._future())
            role.unsubscribe(_part(name, number), _settle(future))
        self._parts[name] = len(alternatives)
        await self._all(waits)

    async def unsubscribe(self, name: str = DEFAULT[0]) -> None:
        """Remove a subscription."""
        name = given.subscription_name(name, DEFAULT[0])
        role = self._open()
        waits = []
        for number in range(1, self._parts.pop(name, 1) + 1):
            waits.append(future := self._future())
            role.unsubscribe(_part(name, number), _settle(future))
        await self._all(waits)

    async def ack(self, push: Push) -> None:
        """Say that a publication is dealt with; a durable session then owes it no more."""
        if not isinstance(push, Push):
            raise TypeError(f"a homing.Push is acknowledged, not {push!r:.60}")
        self._open().acknowledge(push.id)

    def __aiter__(self) -> AsyncIterator[Push | Gap]:
        return self

    async def __anext__(self) -> Push | Gap:
        # What is here already needs no look at which loop runs: before Python 3.12 that is a system call.
        role = self._open() if self._role is None or self._arrived.empty() else self._role
        if self._last is not None and self._auto and self._durable:
            role.acknowledge(self._last.id)
        arrived = await self._arrived.get()
        if self._arrived.qsize() == MAX_KEPT // 2:
            self._read(True)
        if isinstance(arrived, HomingError):
            self._told = isinstance(arrived, Replaced | Closed)
            if self._told:
                self._arrived.put_nowait(arrived)  # it stays so, however often and many ask
            raise arrived
        self._last = arrived if isinstance(arrived, Push) else self._last
        return arrived

    async def close(self) -> None:
        """Acknowledge the last one and hang up, for good; whoever still waits is told that it is Closed."""
        role, moorings = self._role, self._moorings
        alive = moorings is not None and not moorings.loop.is_closed()
        if alive:
            self._here()
        self._closed = True
        self._role = self._moorings = None
        if role is None or moorings is None or not alive:
            return
        if self._last is not None and self._auto and self._durable:
            role.acknowledge(self._last.id)
        while not self._arrived.empty():
            self._arrived.get_nowait()
        role.refused(Closed("the subscriber was closed"))
        await moorings.close()

    def _here(self) -> None:
        """Nothing of ours may be touched from any other loop than its own."""
        if self._moorings is not None and self._moorings.loop is not asyncio.get_running_loop():
            raise Closed("this subscriber is another event loop's")

    def _open(self) -> Subscribing:
        if self._closed:
            raise Closed("the subscriber was closed")
        self._here()
        if self._role is None:
            find = self._find_connector if self._authority else None
            self._moorings = Moorings(Whole, self._tls, find)
            self._role = Subscribing(
                self._moorings,
                self._connectors,
                self._auth,
                self._take,
                auto_ack=False,
                failed=self._refused,
                waiting=self._waiting,
            )
            self._moorings.role = self._role
        return self._role

    def _take(self, arrived: Push | Gap) -> None:
        if self._closed:
            return
        if self._durable and isinstance(arrived, Push) and self._is_unasked(arrived):
            self._open().acknowledge(arrived.id)
            return
        self._arrived.put_nowait(arrived)
        if self._arrived.qsize() >= MAX_KEPT:  # also on a link that has come since
            self._read(False)

    def _read(self, on: bool) -> None:
        if self._moorings is not None and self._moorings.link is not None:
            self._moorings.link.read(on)
            self._open().listen(on, self._moorings.loop.time())

    def _is_unasked(self, push: Push) -> bool:
        """Whether only alternatives that an earlier life's filter had and ours has not ask for it.

        The session still has them: they are removed when they show. What they brought before that, a replay, is owed.
        """
        stale = [name for name in push.subs if self._is_left_over(name)]
        for name in stale:
            if name not in self._left_over:
                self._left_over.add(name)
                self._open().unsubscribe(name)
        return bool(stale) and len(stale) == len(push.subs) and not push.redelivered

    def _is_left_over(self, name: str) -> bool:
        whole, mark, number = name.rpartition("/")
        if not mark or name in self._parts or not _NUMBER.fullmatch(number):
            return False
        return int(number) > self._parts.get(whole, MAX_SUBSCRIPTIONS)

    async def _find_connector(self, where: str) -> str:
        """A new ticket; a refusal is told, and asked for again later: keys change."""
        try:
            ticket = await asyncio.to_thread(
                ask_authority, self._authority, self.client_id, self._api_key
            )
        except (Denied, Malformed) as error:
            if self._role is not None:
                self._role.refused(error)
            raise
        self._credentials = lambda: (ticket.timestamp, ticket.token)
        return where if self._given else ticket.connector

    def _auth(self) -> Auth:
        """What the application's own function raises or gives wrong is told as a refusal, and asked for again."""
        try:
            timestamp, token = self._credentials()
        except Exception as error:
            raise Denied(f"no credentials: {type(error).__name__}: {error}") from error
        durable = self._durable
        return Auth(self.client_id, timestamp, token, durable, durable, wait=self._wait)

    def _refused(self, error: HomingError | None) -> None:
        """Told once, however often it is tried meanwhile: who comes late must not read of it all day."""
        if error is not None and not (self._told and isinstance(error, Denied | Malformed)):
            self._told = True
            self._arrived.put_nowait(error)

    def _future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def _all(self, waits: list[asyncio.Future[None]]) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*waits)
        except TimeoutError:
            raise RequestTimeout(self._why_late()) from None

    def _why_late(self) -> str:
        said = f"no connector answered within {self._timeout:g} s"
        role, moorings = self._role, self._moorings
        if role is None or moorings is None:
            return said
        if moorings.failure:
            return f"{said}: {moorings.failure}"
        if moorings.link is None or role.welcome:
            return said
        return f"{said}: is {role.endpoint} stuck, another port than that for subscribers, or does it speak TLS?"


def _part(name: str, number: int) -> str:
    return name if number == 1 else f"{name}/{number}"


def _settle(future: asyncio.Future[None]) -> Callable[[HomingError | None], None]:
    def settle(error: HomingError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return settle
