"""What a node records: one small struct per kind of event, and their bytes.

A role makes an event with its own `now` (monotonic seconds) and hands it to `Port.journal`:

    number = port.journal(RequestAccepted(now, service, client, size))
    ...
    port.journal(RequestAnswered(now, number, worker, size))

The number that comes back is the event's place in this node's journal for ever, so it serves
as the request's id. Each block on disk holds the distance between the monotonic and the wall
clock, and readers give wall time back: a clock that is set while the node runs bends no timing.

Rules that keep every journal ever written readable:
- on disk an event is a msgpack array `[kind, at, field…]`; a kind's number never changes
  meaning and is never used again;
- fields are only ever added at the end, with a default; none is removed or retyped;
- a reader skips fields it does not know and reports kinds it does not know as Unknown.

Events become bytes, and bytes events, in homing.journal.body.

Whatever came from a peer is kept as the bytes it came in: nothing a peer sends can fail to
be recorded. Lists of clients are concatenated 12-byte ids, one event for a whole fan-out.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias, get_args

import msgspec

from homing.ids import ID_BYTES, NODE_ID_BYTES

PLACE_BYTES = ID_BYTES + NODE_ID_BYTES

# In a RequestRun: an index; service, client, origin, worker and, where it went to one, peer; attempts, partials, message.
Place: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Parties: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes]
Odd: TypeAlias = tuple[int, int, bytes]


class Event(msgspec.Struct, array_like=True, gc=False):
    """What every event has: when, on the recording node's monotonic clock, in seconds."""

    at: float


# --- the node itself: 1–9 -----------------------------------------------------------------


class NodeStarted(Event, tag=1):
    """A process began to write here; what came before it in this journal was another run."""

    role: bytes
    name: bytes = b""
    version: bytes = b""
    host: bytes = b""
    pid: int = 0


class NodeStopped(Event, tag=2):
    """It stopped in an orderly way; missing before the next NodeStarted means it was killed."""

    reason: bytes = b""


class Gap(Event, tag=3):
    """`lost` events that promised nothing were left out while the disk took no more."""

    lost: int
    since: float = 0.0


class MemberJoined(Event, tag=4):
    """Another node of the fabric (a peer broker, a matcher, a connector…) is there."""

    node: bytes
    role: bytes = b""
    address: bytes = b""


class MemberLeft(Event, tag=5):
    """It left, or was declared dead."""

    node: bytes
    role: bytes = b""
    reason: bytes = b""


class RingChanged(Event, tag=6):
    """The matchers' ring or placement plan moved to another epoch; `plan` is JSON."""

    epoch: int
    plan: bytes = b""


# --- service plane: 10–29 -----------------------------------------------------------------


class RequestAccepted(Event, tag=10):
    """A broker took a request on; from now on it owes exactly one answer or refusal."""

    service: bytes
    client: bytes
    size: int
    peer: bytes = b""  # the broker that reposted it to us; empty: our own client
    message: bytes = b""  # the task's message_id where there is one


class RequestReposted(Event, tag=11):
    """No worker here: it went to a peer."""

    request: int
    peer: bytes


class RequestAnswered(Event, tag=12):
    """The (final) report went out to the client or back to the peer that asked."""

    request: int
    worker: bytes
    size: int
    waited: float = 0.0  # seconds from acceptance to the hand-out that was answered
    attempts: int = 1
    partials: int = 0
    peer: bytes = b""  # the broker whose worker answered; empty: a worker of ours


class RequestRefused(Event, tag=13):
    """A NAK went out. `request` is 0 where it was refused at the door, never accepted."""

    request: int
    code: bytes
    service: bytes = b""
    client: bytes = b""
    size: int = 0
    attempts: int = 0
    peer: bytes = b""


class RequestRequeued(Event, tag=14):
    """Its worker was lost: back to the head of the queue."""

    request: int
    worker: bytes


class RequestRun(Event, tag=16):
    """Requests from acceptance to answer, in columns: most of what a busy broker records, at a quarter of the cost.

    Only a block's body holds it. It stands for the events of each of its requests, which have the numbers from `first` on,
    and is these for every reader (homing.journal.body).
    """

    first: int
    count: int  # events that it stands for
    parties: list[Parties]  # who had to do with each other, once
    who: list[Place]  # per request, as all that follow: its parties
    accepted: list[float]
    handed: list[float]
    ended: list[float]
    sizes: list[int]
    answers: list[int]  # their sizes
    odd: dict[Place, Odd]  # by the request's place, where a field is not what it nearly always is


class AnswerOrphaned(Event, tag=15):
    """An answer nobody waits for (late, repeated or forged) went nowhere."""

    service: bytes
    worker: bytes
    client: bytes = b""


class WorkerJoined(Event, tag=20):
    """A worker announced itself; an empty service means any."""

    worker: bytes
    service: bytes = b""
    credit: int = 1


class WorkerLeft(Event, tag=21):
    """It disconnected, was told to, or its heartbeats stopped."""

    worker: bytes
    service: bytes = b""
    reason: bytes = b""


# --- push plane: 30–59 --------------------------------------------------------------------


class PublicationAccepted(Event, tag=30):
    """A matcher took a publication on; its acknowledgement waits until this is durable.

    The payload is kept: a restarted matcher and `homing pipeline replay` send it from here.
    """

    id: bytes
    publisher: bytes
    attrs: bytes  # the JSON object as it came
    payload: bytes


class PublicationRefused(Event, tag=31):
    """A NAK went back to the publisher."""

    id: bytes
    publisher: bytes
    code: bytes


class PublicationMatched(Event, tag=32):
    """Who it is for: `clients` holds client id + connector id, 20 bytes each."""

    id: bytes
    clients: bytes
    subscriptions: int = 0
    took: float = 0.0  # seconds inside the index


class SubscriptionSet(Event, tag=33):
    """A subscription of a client is now exactly these fields (JSON, as in the protocol)."""

    client: bytes
    connector: bytes
    name: bytes
    fields: bytes


class SubscriptionRemoved(Event, tag=34):
    """Gone; an empty name means every subscription of the client."""

    client: bytes
    connector: bytes
    name: bytes = b""


class PublicationDone(Event, tag=35):
    """Every connector concerned has taken it over: a restarted matcher need not send it again."""

    id: bytes


class PublicationTaken(Event, tag=36):
    """Matched away from the node that accepted it (`homing pipeline live` and `replay`).

    Whoever writes this owes it to `clients` (places, 20 bytes each) until PublicationDone, and
    sends it from here.
    """

    id: bytes
    clients: bytes
    attrs: bytes
    payload: bytes
    subscriptions: int = 0


class Delivered(Event, tag=40):
    """Pushed, for the first time, to these clients' connections."""

    id: bytes
    clients: bytes


class Redelivered(Event, tag=41):
    """Pushed again, flagged as such."""

    id: bytes
    clients: bytes


class Acknowledged(Event, tag=42):
    """These clients said they have it."""

    id: bytes
    clients: bytes


class Dropped(Event, tag=43):
    """Will not reach these clients: slow, expired, over a limit, gone without a durable session."""

    id: bytes
    clients: bytes
    reason: bytes = b""


class SessionOpened(Event, tag=44):
    """A subscriber passed auth."""

    client: bytes
    durable: bool = False
    resumed: bool = False
    address: bytes = b""


class SessionClosed(Event, tag=45):
    """Its connection ended."""

    client: bytes
    reason: bytes = b""


class DeliveryQueued(Event, tag=46):
    """A connector took it over for durable sessions; it owes it to them until acknowledged."""

    id: bytes
    clients: bytes
    attrs: bytes
    payload: bytes


class Unknown(msgspec.Struct):
    """An event of a kind this version does not know; newer than us, kept whole."""

    kind: int
    at: float
    fields: list[Any]


AnyEvent: TypeAlias = (
    NodeStarted
    | NodeStopped
    | Gap
    | MemberJoined
    | MemberLeft
    | RingChanged
    | RequestAccepted
    | RequestReposted
    | RequestAnswered
    | RequestRefused
    | RequestRequeued
    | AnswerOrphaned
    | WorkerJoined
    | WorkerLeft
    | PublicationAccepted
    | PublicationRefused
    | PublicationMatched
    | SubscriptionSet
    | SubscriptionRemoved
    | PublicationDone
    | PublicationTaken
    | Delivered
    | Redelivered
    | Acknowledged
    | Dropped
    | SessionOpened
    | SessionClosed
    | DeliveryQueued
)
"""What readers are given."""
KINDS: dict[int, type[Event]] = {kind.__struct_config__.tag: kind for kind in get_args(AnyEvent)}

PROMISES: frozenset[type[Event]] = frozenset(
    {
        RequestAccepted,
        PublicationAccepted,
        PublicationTaken,
        SubscriptionSet,
        SubscriptionRemoved,
        DeliveryQueued,
    }
)
"""Events that take work on. Without room for them the work is refused (DiskFull); all others
tell of what has happened anyway, and are counted in a Gap instead."""
