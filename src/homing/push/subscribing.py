"""A subscriber without sockets: subscriptions in, publications out, over any number of links.

After every connect it authenticates, says its subscriptions again and goes on. With `ack`
the session is durable: what was not acknowledged comes again, flagged, and what this process
has seen already is recognised by its id and only acknowledged once more.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

import msgspec

from homing.errors import Denied, HomingError, Malformed, Refused, Replaced
from homing.ports import Link, Port
from homing.push.calling import Calling
from homing.push.sessions import DEFAULT
from homing.push.subscription import Fields, describe_field
from homing.wire import pushed
from homing.wire.session import HEARTBEAT, AnswerStream, Status, command

BEAT_SECONDS: Final = 25.0
"""Below the 30 s at which mobile carriers drop idle flows."""
SILENCE_SECONDS: Final = 60.0
"""Two heartbeats unanswered."""
MAX_SEEN: Final = 65_536
"""Ids remembered to recognise what comes again: more than a session can be owed."""
RIVAL_SECONDS: Final = 30.0
"""Replaced twice within these, somebody else has our id and reconnects as we do."""
AGAIN_SECONDS: Final = 5.0
"""Until a subscription is said again that could not be taken: somebody frees room on a disk."""
AGAIN: Final = "again"

Credentials = Callable[[], pushed.Auth]
Arrival = Callable[[pushed.Push | pushed.Gap], None]
Waiting = Callable[[pushed.Wait], None]
Settled = Callable[[HomingError | None], None]


class Said(NamedTuple):
    """A command on its way: which subscription it sets, or (None) removes, and who waits for the answer."""

    name: str
    fields: Fields | None
    settled: Settled | None


class Subscribing(Calling):
    """A homing.ports.Role. Plug: `connector` (dials)."""

    plug = "connector"
    beat = BEAT_SECONDS
    silence = SILENCE_SECONDS
    sign = HEARTBEAT

    def __init__(
        self,
        port: Port,
        connectors: Sequence[str],
        credentials: Credentials,
        arrival: Arrival,
        *,
        auto_ack: bool = True,
        failed: Settled | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        """`arrival`: called for each push and gap. `failed`: auth was refused, or we have a rival.

        `waiting`: called when nothing comes for a while, since something older may.
        """
        super().__init__(port, connectors)
        self._credentials = credentials
        self._arrival = arrival
        self._auto_ack = auto_ack
        self._failed = failed
        self._waiting = waiting
        self._answers = AnswerStream()
        self._welcome = False
        self._durable = False
        self._due: deque[Said] = deque()  # commands waiting for their answer
        # What shall be in force; None: nothing by this name, and a durable session may still have it.
        self._wanted: dict[str, Fields | None] = {}
        self._agreed: dict[str, Fields] = {}  # what was confirmed last
        self._seen: OrderedDict[str, bool] = OrderedDict()  # id -> acknowledged
        self._again: set[str] = set()  # refused for now
        self._replaced = float("-inf")  # when that was last so
        self._rival: Replaced | None = None  # we have given way, for good

    @property
    def welcome(self) -> bool:
        """Connected and authenticated."""
        return self._welcome

    # What the application asks

    def subscribe(self, fields: Fields, name: str = "", settled: Settled | None = None) -> None:
        """Set a subscription, the default one without a name; kept over reconnects."""
        self._want(name or DEFAULT[0], dict(fields), settled)

    def unsubscribe(self, name: str = "", settled: Settled | None = None) -> None:
        """Remove one."""
        self._want(name or DEFAULT[0], None, settled)

    def acknowledge(self, message_id: str) -> None:
        """This one is dealt with; what is lost with a link is said again when it comes again."""
        if message_id in self._seen:
            self._seen[message_id] = True
        if self._welcome and self._link is not None:
            self._link.send(command([b"ack", message_id.encode()]))

    def _want(self, name: str, fields: Fields | None, settled: Settled | None) -> None:
        """Now, or with everything else after the next auth."""
        if self._rival is not None and settled is not None:
            settled(self._rival)
            return
        self._wanted[name] = fields
        self._say(Said(name, fields, settled))

    def _say(self, said: Said) -> None:
        if self._welcome and self._link is not None:
            self._link.send(command(_parts(said)))
        self._due.append(said)

    # homing.push.calling

    def greet(self, link: Link) -> None:
        self._answers = AnswerStream()
        try:
            auth = self._credentials()
        except HomingError as error:
            self.refused(error)
            raise
        self._durable = auth.ack
        link.send(command([b"auth", msgspec.json.encode(auth)]))

    def take(self, message: bytes, now: float) -> None:
        for answer in self._answers.receive(message):
            if isinstance(answer, Status):
                self._status(answer, now)
            else:
                self._told(pushed.decode(answer))

    def closed(self, link: Link, now: float) -> None:
        if link is self._link:
            self._welcome = False
        super().closed(link, now)

    def wake(self, key: Hashable, now: float) -> None:
        if self._rival is not None:
            return
        if key != AGAIN:
            super().wake(key, now)
            return
        again, self._again = self._again, set()
        for name in again & self._wanted.keys():
            self._say(Said(name, self._wanted[name], None))

    # Inside

    def _status(self, answer: Status, now: float) -> None:
        if answer.text == "h" or self._link is None:
            return
        if not self._welcome:
            self._authenticated(answer)
        elif answer.text in ("keepalive", "slow consumer"):
            return  # the connector closes; what follows is a reconnect
        elif answer.text == "replaced":
            self._give_way(now)
        elif self._due:
            self._answered(self._due.popleft(), answer, now)

    def _answered(self, said: Said, answer: Status, now: float) -> None:
        """What was refused is not said again, with every new link: what held before it holds.

        Unless that will pass, and nobody waits who could ask again: a connector that is new to us has a full disk.
        """
        name, fields, settled = said
        refusal = None if answer.ok else _refusal(answer.text)
        if refusal is not None and refusal.retryable and settled is None:
            self._again.add(name)
            self._port.later(now + AGAIN_SECONDS, AGAIN)
            return
        latest = name in self._wanted and self._wanted[name] is fields
        if not answer.ok and latest and name in self._agreed:
            self._wanted[name] = self._agreed[name]
        elif latest and (not answer.ok or fields is None):
            del self._wanted[name]
        if answer.ok and fields is not None:
            self._agreed[name] = fields
        elif answer.ok:
            self._agreed.pop(name, None)
        if settled is not None:
            settled(refusal)

    def _authenticated(self, answer: Status) -> None:
        if not answer.ok:
            self.refused(Denied(answer.text))
            return
        waiting, self._due = self._due, deque()
        self._welcome = True
        waits: dict[str, list[Settled]] = {}
        for said in waiting:
            if said.settled is not None:
                waits.setdefault(said.name, []).append(said.settled)
        for name, fields in list(self._wanted.items()):
            self._say(Said(name, fields, _all_of(waits.pop(name, []))))
        for settled in [one for others in waits.values() for one in others]:
            settled(None)  # removed, and that was confirmed

    def _give_way(self, now: float) -> None:
        """Once it may be our own last move, heard of late; twice it is somebody else."""
        if now - self._replaced < RIVAL_SECONDS:
            self._rival = Replaced("another subscriber connects with this client id")
            self._port.disconnect(self.plug, self._endpoints[self._at])
            self.refused(self._rival)
        self._replaced = now

    def refused(self, refusal: HomingError) -> None:
        """We are not let in: tell all who wait for that."""
        waiting, self._due = self._due, deque()
        for said in waiting:
            if said.settled is not None:
                said.settled(refusal)
        if self._failed is not None:
            self._failed(refusal)

    def _told(self, arrived: pushed.Push | pushed.Gap | pushed.Wait) -> None:
        if not isinstance(arrived, pushed.Wait):
            self._pushed(arrived)
        elif self._waiting is not None:
            self._waiting(arrived)

    def _pushed(self, arrived: pushed.Push | pushed.Gap) -> None:
        if isinstance(arrived, pushed.Push):
            known = self._seen.get(arrived.id)
            if known is not None:
                if known:
                    self.acknowledge(arrived.id)
                return
            self._seen[arrived.id] = False
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        self._arrival(arrived)
        if isinstance(arrived, pushed.Push) and self._durable and self._auto_ack:
            self.acknowledge(arrived.id)


def _parts(said: Said) -> list[bytes]:
    """The elements of a command."""
    if said.fields is None:
        return [b"unsub", said.name.encode()]
    parts = [b"subn", said.name.encode()]
    for attribute, field in said.fields.items():
        parts += (attribute.encode(), msgspec.json.encode(describe_field(field)))
    return parts


def _refusal(text: str) -> HomingError:
    """What a command was refused with: some may be asked again later, such as that a disk is full."""
    refusal = Refused.from_reason(text.removeprefix("command error: "))
    return refusal if refusal.retryable else Malformed(text)


def _all_of(waits: list[Settled]) -> Settled | None:
    if not waits:
        return None

    def settle(error: HomingError | None) -> None:
        for one in waits:
            one(error)

    return settle
