"""A subscriber's session at a connector: what it asked for, what it is still owed.

A session belongs to a client id, not to a connection. A *durable* one (auth with `ack`) owes
every publication until the client acknowledges it, over as many connections as that takes;
any other ends with its connection. Whatever cannot be sent at once waits in the session
within limits; what does not fit is counted, and the client is told of the gap.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from homing.ids import id_time
from homing.ports import Link
from homing.push.gaps import END, Lost, joined
from homing.push.popular import Popular
from homing.push.shared import Shared, in_order
from homing.push.subscription import Fields, parse_fields
from homing.wire import pushed

if TYPE_CHECKING:
    from homing.push.cohorts import Cohort
    from homing.push.move import Move

Policy = Literal["spill", "drop-oldest", "disconnect"]

DEFAULT: Final = ("default",)
"""The names of a session that has only its default subscription: nearly all of them."""

MAX_BACKLOG: Final = 256 << 10
"""Bytes given to a client's link and not taken: beyond it the client is slow."""
WINDOW: Final = 1024
"""Publications sent and not acknowledged: what is sent again when the connection breaks."""
UNASKED: Final = MAX_BACKLOG // 2
"""Bytes sent to a client before its link is asked again whether it takes them."""

OLD_SECONDS: Final = 24 * 3600
"""Publications that are older are not judged by the time in their ids: sessions live as long."""

PARSED: Final = 4096
"""Subscriptions kept parsed, of clients with several: what one busy publication may ask for."""


class Limits(NamedTuple):
    """What a connector grants its subscribers; homing.config.settings.Push has the reasons."""

    auth_timeout: float = 10.0
    keepalive: float = 90.0
    away: float = 24 * 3600.0
    wait: float = 5.0
    slow: Literal["drop-oldest", "disconnect"] = "drop-oldest"
    buffer: int = 1 << 20
    owed_count: int = 10_000
    owed_bytes: int = 16 << 20
    kept_bytes: int = 512 << 20


class Store:
    """What all sessions of a connector keep together: the limits, and how much it is."""

    __slots__ = ("anew", "came", "cohorts", "fetched", "held", "limits")

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.held = 0
        self.cohorts: Popular[Cohort] = Popular()  # gone when a session of one must be asked again
        # Durable clients that were at another connector before they came, or may have been.
        self.fetched: set[bytes] = set()
        # Those that were here all the time when they came again: the stamp of when they came first.
        self.came: dict[bytes, int] = {}
        # Those that began anew (auth without resume): what they had elsewhere is over.
        self.anew: set[bytes] = set()

    @property
    def full(self) -> bool:
        return self.held > self.limits.kept_bytes

    def fetch(self, client: bytes) -> None:
        """Another connector had it, or may have: what was published until now may have been pushed there."""
        self.fetched.add(client)
        self.came.pop(client, None)

    def forget(self, client: bytes) -> None:
        """Its session is over."""
        self.fetched.discard(client)
        self.came.pop(client, None)
        self.anew.discard(client)


_NONE_SENT: Final[OrderedDict[bytes, Shared]] = OrderedDict()
_NONE_AGAIN: Final[dict[bytes, None]] = {}
_NO_GAPS: Final[dict[bytes, Lost]] = {}


@lru_cache(maxsize=PARSED)
def _parsed(json: bytes) -> Fields:
    return parse_fields(json)


class Session:
    """One client: its link while it is here, its subscriptions, what it is owed."""

    __slots__ = (
        "again",
        "before",
        "client",
        "durable",
        "early",
        "gaps",
        "held",
        "in_cohort",
        "left_at",
        "link",
        "mixed",
        "move",
        "names",
        "policy",
        "room",
        "stamp",
        "store",
        "subscriptions",
        "unacked",
        "under_way",
        "wait",
        "waiting",
    )

    def __init__(self, client: bytes, durable: bool, policy: Policy, store: Store) -> None:
        self.client = client
        self.durable = durable
        self.policy = policy
        self.store = store
        # Bytes that may go to the link without looking at anything else: nothing waits, it is not
        # durable and has only its default subscription. Whatever changes one of these calls `_unfit`.
        self.room = 0
        self.in_cohort = False  # and perhaps sent to without asking the session at all
        self.link: Link | None = None
        self.left_at: float | None = None  # unknown after a restart
        # As JSON: it is told as such, and takes a tenth of the parsed fields' memory.
        self.subscriptions: dict[str, bytes] = {}
        self.names: tuple[str, ...] = ()  # of all subscriptions
        # Not sent on this connection. Those to whom nothing waits, nearly all, share an empty one.
        self.waiting: OrderedDict[bytes, Shared] = _NONE_SENT
        # Sent on it, durable sessions only: the others share that too, as most are idle.
        self.unacked: dict[bytes, Shared] = {} if durable else _NONE_SENT
        self.again: dict[bytes, None] = _NONE_AGAIN  # of the waiting: part of a replay
        # What its former connector sends, kept apart to be sent first; None: no move is awaited.
        self.early: OrderedDict[bytes, Shared] | None = None
        self.mixed = False  # something waits behind what is newer: connectors sent it that had the session before
        self.move: Move | None = None  # where it is going
        self.stamp = 0  # when its client was last let in: unix time in µs, 0 after a restart
        self.wait: float | None = None  # seconds for a connector that is away; None: not said
        self.held = 0  # bytes of all
        self.under_way = 0  # of these, bytes sent and not acknowledged
        self.before: dict[bytes, None] = _NONE_AGAIN  # of the waiting: sent on another connection
        self.gaps: dict[bytes, Lost] = _NO_GAPS  # before which publication

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unacked) + len(self.early or ())

    # Subscriptions

    def subscribe(self, name: str, fields: bytes) -> None:
        self.subscriptions[name] = fields
        self._rename()

    def unsubscribe(self, name: str) -> bool:
        """False if there was no such subscription."""
        found = self.subscriptions.pop(name, None) is not None
        self._rename()
        return found

    def _rename(self) -> None:
        names = tuple(self.subscriptions)
        self.names = DEFAULT if names == DEFAULT else names
        self._unfit()

    def _unfit(self) -> None:
        """From now on the session must be asked before anything is sent."""
        self.room = 0
        if self.in_cohort:
            self.in_cohort = False
            self.store.cohorts.clear()

    def names_for(self, shared: Shared) -> tuple[str, ...]:
        """Which of its subscriptions a publication satisfies; with one there is no question."""
        if len(self.names) <= 1:
            return self.names
        return tuple(
            [name for name, json in self.subscriptions.items() if shared.satisfies(_parsed(json))]
        )

    # What is owed

    @property
    def takes(self) -> bool:
        """Whether a publication may be for it: it asks for some, or what it asks for is elsewhere.

        After a restart nobody knows whether it had moved: its client may be somewhere, and is owed.
        """
        if self.names or self.move is not None or self.early is not None:
            return True
        return self.durable and not self.stamp

    def owe(self, shared: Shared, moved: int = 0) -> list[bytes]:
        """Take one more; the ids that had to go for it, oldest first."""
        return self._trim() if self.take(shared, moved) else []

    def take(self, shared: Shared, moved: int = 0) -> bool:
        """Take one more, whatever the limits; False if it is owed already."""
        identity, early = shared.message_id, self.early
        if identity in self.waiting or identity in self.unacked or (early and identity in early):
            return False  # a journal read after a checkpoint tells some things twice
        if moved and early is not None:
            early[identity] = shared
        else:
            if self.waiting is _NONE_SENT:
                self.waiting = OrderedDict()
            self.waiting[identity] = shared
            if END in self.gaps:
                self.gaps[identity] = self.gaps.pop(END)
            if moved:
                self.mixed = True
                self._replay((identity,))
        self._unfit()
        self._hold(shared.size)
        return True

    def _trim(self) -> list[bytes]:
        """Let the oldest unsent go until the rest is within the limits."""
        limits = self.store.limits
        most = limits.owed_bytes if self.durable else limits.buffer
        gone: list[bytes] = []
        while len(self) > limits.owed_count or (self.held > most and len(self) > 1):
            oldest = self._oldest_unsent()
            if oldest is None:
                break  # recovered under wider limits, and all of it sent: it must be acknowledged
            self.drop(oldest)
            gone.append(oldest)
        return gone

    def lighten(self, wanted: int) -> list[bytes]:
        """Let the oldest unsent go until this many bytes are free; their ids."""
        gone: list[bytes] = []
        most = self.held - wanted
        while self.held > most and (oldest := self._oldest_unsent()) is not None:
            self.drop(oldest)
            gone.append(oldest)
        return gone

    def _hold(self, size: int) -> None:
        self.held += size
        self.store.held += size

    def _oldest_unsent(self) -> bytes | None:
        """What was sent, here or before, the client may have: it would be received and in a gap."""
        for source in (self.early or _NONE_SENT, self.waiting):
            for identity in source:
                if identity not in self.before:
                    return identity
        return None

    def drop(self, message_id: bytes) -> None:
        """It will not be sent: there is a gap before what follows it."""
        source = self.early if self.early and message_id in self.early else self.waiting
        if message_id not in source:
            return
        ids = iter(source)
        for identity in ids:  # the first, or behind a window of what was sent before
            if identity == message_id:
                break
        after = next(ids, END)
        if after == END and source is not self.waiting:
            after = next(iter(self.waiting), END)
        self._forget(source, message_id)
        if self.gaps is _NO_GAPS:
            self.gaps = {}
        one = Lost(1, message_id, message_id)
        whole = joined(self.gaps.pop(message_id, None), one, self.gaps.pop(after, None))
        if whole is not None:
            self.gaps[after] = whole

    def acknowledge(self, message_id: bytes) -> bool:
        """The client has it; False if it was not owed."""
        for source in (self.unacked, self.waiting, self.early or _NONE_SENT):
            if message_id in source:
                if source is self.unacked:
                    self.under_way -= source[message_id].size
                self._forget(source, message_id)
                self.gaps.pop(message_id, None)
                return True
        return False

    def hand_over(self, message_id: bytes) -> bool:
        """Another connector owes it; the gap before it is still ours to tell, should the client be back."""
        lost = self.gaps.pop(message_id, None)
        found = self.acknowledge(message_id)
        if lost is not None:
            after = next(iter(self.waiting), END)
            self.gaps[after] = joined(lost, self.gaps.pop(after, None)) or lost
        return found

    def _forget(self, source: dict[bytes, Shared], message_id: bytes) -> None:
        self._hold(-source.pop(message_id).size)
        self.again.pop(message_id, None)
        self.before.pop(message_id, None)

    def part(self, now: float) -> None:
        """The connection is gone: what was sent and not acknowledged waits for the next one."""
        self.link = None
        self._unfit()
        self.left_at = now
        if self.unacked:
            self.waiting = OrderedDict(self.unacked | self.waiting)
            self.note_sent(self.unacked)
            self.unacked, self.under_way = {}, 0
        self._take_over()

    def note_sent(self, ids: Iterable[bytes]) -> None:
        """These wait, and went out on a former connection."""
        if self.before is _NONE_AGAIN:
            self.before = {}
        self.before.update(dict.fromkeys(ids))

    def resume(self, link: Link) -> None:
        """The client is back: all that waits is a replay, and flagged as one.

        Some of it was sent before; after a restart nobody knows which. It stays mixed until all that is older is here.
        """
        self.link = link
        self._sort()
        self.again = dict.fromkeys(self.waiting) if self.waiting else _NONE_AGAIN

    @property
    def patience(self) -> float:
        """How long it waits for a connector that is away and may hold something older, in seconds."""
        return self.store.limits.wait if self.wait is None else self.wait

    def hold(self) -> None:
        """Send nothing until the former connector has sent what is older."""
        if self.early is None:
            self.early = OrderedDict()

    def release(self) -> None:
        """All that is older is here: send it first, as a replay."""
        self._take_over()
        self._sort()
        self.mixed = False

    def _take_over(self) -> None:
        """What was kept apart waits with the rest."""
        early, self.early = self.early, None
        if early:
            self.waiting = early | self.waiting
            self.mixed = True
            self._replay(early)

    def _sort(self) -> None:
        """Put what waits in order, if several sent it."""
        if self.mixed:
            self.waiting = in_order(self.waiting) if self.waiting else _NONE_SENT

    def _replay(self, ids: Iterable[bytes]) -> None:
        """Flag these as sent before: nobody knows whether they were."""
        if self.again is _NONE_AGAIN:
            self.again = {}
        self.again.update(dict.fromkeys(ids))

    def clear(self) -> list[bytes]:
        """Owe nothing any more; the ids that were."""
        self.release()
        owed = [*self.unacked, *self.waiting]
        self.waiting, self.again, self.before = _NONE_SENT, _NONE_AGAIN, _NONE_AGAIN
        self.gaps, self.under_way = _NO_GAPS, 0
        self.unacked = {} if self.durable else _NONE_SENT
        self._hold(-self.held)
        return owed

    def pump(self) -> tuple[list[bytes], list[bytes]]:
        """Send what waits, as far as the link takes it; the ids that left, and that left again."""
        link = self.link
        sent: list[bytes] = []
        again: list[bytes] = []
        while link is not None and self.waiting and self.willing:
            message_id, shared = self.waiting.popitem(last=False)
            (again if self._push(link, shared) else sent).append(message_id)
        return sent, again

    def refill(self) -> bool:
        """Whether the client takes a publication as it is; room for some more if so."""
        link = self.link
        if link is None or self.waiting or link.backlog > MAX_BACKLOG:
            return False
        if self.names is DEFAULT and not self.durable:
            self.room = UNASKED
        return True

    def is_ready(self) -> bool:
        """Whether the client takes publications unasked from now on."""
        return self.refill() and self.room > 0

    @property
    def willing(self) -> bool:
        """Whether the client takes more now."""
        link = self.link
        if link is None or self.early is not None:
            return False
        return link.backlog <= MAX_BACKLOG and len(self.unacked) < WINDOW

    def _may_have(self, message_id: bytes) -> bool:
        """Whether the client may have had it: as part of a replay, or at another connector.

        What was published before it came here and only comes now may be there already: another connector
        had its session too, and nobody knows what that one sent. Ids tell the second: what was published in
        the one in which it came counts as before if it came from elsewhere.
        """
        if message_id in self.again:
            del self.again[message_id]
            return True
        if not self.durable:
            return False
        fetched = self.client in self.store.fetched
        came = self.store.came.get(self.client, self.stamp)
        return -fetched < came // 1_000_000 - id_time(message_id) < OLD_SECONDS

    def _push(self, link: Link, shared: Shared) -> bool:
        """Send one publication, after the gap before it; whether it was part of a replay."""
        lost = self.gaps.get(shared.message_id)
        if lost is not None:
            link.send(pushed.gap(*lost))
        names = self.names_for(shared)
        again = self._may_have(shared.message_id)
        link.send_with_others(shared.again(names) if again else shared.image(names))
        if self.durable:
            self.unacked[shared.message_id] = shared
            self.under_way += shared.size
            self.before.pop(shared.message_id, None)
        else:
            self.gaps.pop(shared.message_id, None)
            self._hold(-shared.size)
        return again
