"""A block's body: events as bytes, and back.

A body is a msgpack array of events. A RequestRun among them is given out as the events it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from homing.journal.events import (
    KINDS,
    AnyEvent,
    Event,
    RequestAccepted,
    RequestAnswered,
    RequestReposted,
    RequestRun,
    Unknown,
)

_USUAL = (1, 0, b"")  # attempts, partials, message
_RUN = RequestRun.__struct_config__.tag

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[AnyEvent | RequestRun])


def encode(events: Sequence[Event]) -> bytes:
    """A body: one msgpack array, a third of the cost of encoding them one by one."""
    return _encoder.encode(events)


def decode(body: bytes) -> Sequence[Event | Unknown]:
    """A body back; ValueError if these are not events at all."""
    try:
        found: Sequence[Event | Unknown] = _decoder.decode(body)
    except msgspec.ValidationError:
        found = [_decode_one(item) for item in _items(body)]
    except msgspec.DecodeError as error:
        raise ValueError(f"not a batch of events: {error}") from error
    return _with_runs_expanded(found) if RequestRun in set(map(type, found)) else found


def _with_runs_expanded(found: Sequence[Event | Unknown]) -> list[Event | Unknown]:
    given: list[Event | Unknown] = []
    for event in found:
        given += expand(event) if isinstance(event, RequestRun) else (event,)
    return given


def width(events: Sequence[Event]) -> int:
    """How many numbers they take."""
    runs = [event.count for event in events if event.__class__ is RequestRun]
    return len(events) - len(runs) + sum(runs)


def expand(run: RequestRun) -> list[Event]:
    """The events that a run stands for, in the order of their numbers; ValueError if its columns disagree."""
    events: list[Event] = []
    parties, odd = run.parties, run.odd
    rows = zip(run.who, run.accepted, run.handed, run.ended, run.sizes, run.answers, strict=True)
    try:
        for place, (who, accepted, handed, ended, size, answer) in enumerate(rows):
            number = run.first + len(events)
            service, client, origin, worker, peer = parties[who]
            attempts, partials, message = odd.get(place, _USUAL)
            events.append(RequestAccepted(accepted, service, client, size, origin, message))
            if peer:
                events.append(RequestReposted(handed, number, peer))
            waited = handed - accepted
            events.append(
                RequestAnswered(ended, number, worker, answer, waited, attempts, partials, peer)
            )
    except IndexError:
        raise ValueError("a run of requests names parties that it does not tell") from None
    if len(events) != run.count:
        raise ValueError(f"a run of {run.count} events stands for {len(events)}")
    return events


def _items(body: bytes) -> list[list[Any]]:
    try:
        return msgspec.msgpack.decode(body, type=list[list[Any]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"not a batch of events: {error}") from error


def _decode_one(item: list[Any]) -> Event | Unknown:
    """One event of a batch that holds something this version does not know."""
    if len(item) < 2 or type(item[0]) is not int or not isinstance(item[1], int | float):
        raise ValueError("not a batch of events: no kind and time")
    kind = RequestRun if item[0] == _RUN else KINDS.get(item[0])
    if kind is None:
        return Unknown(item[0], float(item[1]), item[2:])
    try:
        return msgspec.convert(item, kind, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error
