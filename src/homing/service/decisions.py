"""What a router makes of one message: the header read, the policy asked, nothing done yet.

The same `decide` runs inside the broker (`routers = 0`) and in router processes. A decision holds
offsets instead of the body: whoever applies it still has the message.
"""

from __future__ import annotations

from typing import Final

import msgspec

from homing.errors import RemoteProtocolError
from homing.service.router import Router
from homing.wire import mdp, tasks
from homing.wire.frames import frame, head, prefix

CLIENT: Final = b"c"
WORKER: Final = b"w"
MAJORDOMO: Final = b"m"
HELLO: Final = b"h"
"""Sides: a task client, a task worker, a Majordomo client, and the broker's own question."""


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    """The header makes no sense; its message id may be known all the same."""

    reason: str
    message_id: str = ""


Content = (
    tasks.Connect
    | tasks.Ping
    | tasks.Pong
    | tasks.Task
    | tasks.Response
    | tasks.Error
    | tasks.Disconnect
    | Unreadable
)


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """A message's header as a value; `data` left out, found at `data_at` in the message."""

    content: Content
    header_at: int = 0
    data_at: int = 0
    refusal: str = ""  # code and reason, where policy says no


def decide(router: Router, side: bytes, user: str, image: bytes) -> Decision:
    """Read one message and ask the policy; never raises."""
    try:
        if side == MAJORDOMO:
            return _decide_majordomo(router, user, image)
        envelope, message = tasks.read(image)
    except RemoteProtocolError as error:
        known = tasks.id_of(image) if side == CLIENT else ""
        return Decision(Unreadable(str(error), known))
    if isinstance(message, tasks.Task):
        verdict = router.decide(user, message.service.encode(), message.data)
        refusal = verdict.reason.decode("utf-8", "replace")
        chosen = verdict.service.decode("utf-8", "replace")
        bare = msgspec.structs.replace(message, service=chosen, data=b"")
        return Decision(bare, len(envelope), _data_at(image, message.data), refusal)
    if isinstance(message, tasks.Response):
        bare_response = msgspec.structs.replace(message, data=b"")
        return Decision(bare_response, len(envelope), _data_at(image, message.data))
    if isinstance(message, tasks.Config):
        return Decision(Unreadable("CONFIG is the broker's to send"))
    return Decision(message, len(envelope))


def _decide_majordomo(router: Router, user: str, image: bytes) -> Decision:
    request = mdp.read_from_client(image)
    verdict = router.decide(user, request.service, request.data)
    chosen = verdict.service.decode("utf-8", "replace")
    refusal = verdict.reason.decode("utf-8", "replace")
    return Decision(tasks.Task(chosen, "", b""), 0, len(image) - len(request.data), refusal)


def _data_at(image: bytes, data: bytes) -> int:
    """Where the body starts; an empty one need not be there at all."""
    return len(image) - (len(data) if data != tasks.NO_BODY else 0)


def data_of(decision: Decision, image: bytes) -> bytes:
    """The body that a decision left out."""
    return image[decision.data_at :] or tasks.NO_BODY


# --- between a broker and its router processes ------------------------------------------------

_encode: Final = msgspec.msgpack.Encoder().encode
_decoder: Final = msgspec.msgpack.Decoder(Decision)
TICKET_BYTES: Final = 8


def write_ticket(ticket: int, side: bytes, user: str, image: bytes) -> bytes:
    """`[ticket] [side] [user] [the whole message…]`, broker to router."""
    return prefix((ticket.to_bytes(TICKET_BYTES, "big"), side, user.encode())) + image


def read_ticket(image: bytes) -> tuple[int, bytes, str, bytes]:
    """Ticket, side, user and the whole message."""
    frames, at = head(image, 3)
    if len(frames) != 3 or len(frames[0]) != TICKET_BYTES:
        raise RemoteProtocolError("not a ticket", 0)
    return (
        int.from_bytes(frames[0], "big"),
        frames[1],
        frames[2].decode("utf-8", "replace"),
        image[at:],
    )


def write_decision(router: bytes, ticket: int, decision: Decision | None) -> bytes:
    """`[router] [ticket] [decision]`, router to broker; None answers a HELLO."""
    body = _encode(decision) if decision is not None else b""
    return prefix((router, ticket.to_bytes(TICKET_BYTES, "big"))) + frame(body, False)


def read_decision(image: bytes) -> tuple[bytes, int, Decision | None]:
    """Router, ticket and decision."""
    frames, _ = head(image, 3)
    if len(frames) != 3 or len(frames[1]) != TICKET_BYTES:
        raise RemoteProtocolError("not a decision", 0)
    router, ticket, body = frames
    try:
        decision = _decoder.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"not a decision: {error}", 0) from error
    return router, int.from_bytes(ticket, "big"), decision
