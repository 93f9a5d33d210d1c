"""What the jobs `match`, `ledger` and `slo` should say, in plain Python, from what the docs say of them.

It looks at events one by one, and knows nothing of tables, batches or how the jobs do it.
"""

from __future__ import annotations

import json
import math
import operator
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from homing.journal import events as E
from homing.journal.events import Event
from tests.pipeline.conftest import SKEW
from tests.pipeline.histories import Story

MICROS = 10**6
STEPS = (E.Delivered, E.Redelivered, E.Acknowledged, E.Dropped, E.DeliveryQueued)
ID, PLACE = 12, 20  # bytes of a client, and of a client with its connector


def wall(event: Event) -> int:
    """µs since 1970, as the node's clock had it."""
    return SKEW + round(event.at * MICROS)


def each(story: Story) -> Iterator[tuple[bytes, int, Event]]:
    """Every event with its node and number."""
    for node, events in story.items():
        yield from ((node, number, event) for number, event in enumerate(events, 1))


def split(clients: bytes, size: int) -> list[bytes]:
    return [clients[at : at + size] for at in range(0, len(clients), size)]


def horizons(story: Story) -> dict[bytes, int]:
    """The latest that each node's clock has said."""
    return {node: max(map(wall, events)) for node, events in story.items() if events}


# Requests


class Request:
    """A request at a broker, as its events tell it one after the other."""

    def __init__(self) -> None:
        self.accepted: E.RequestAccepted | None = None
        self.ends: list[Event] = []
        self.forgotten: Event | None = None


def requests(story: Story) -> dict[tuple[bytes, int], Request]:
    found: dict[tuple[bytes, int], Request] = defaultdict(Request)
    for node, number, event in each(story):
        if isinstance(event, E.RequestAccepted):
            found[node, number].accepted = event
        elif isinstance(event, E.RequestAnswered | E.RequestRefused) and event.request:
            found[node, event.request].ends.append(event)
        elif isinstance(event, E.NodeStarted):
            for (where, _), request in found.items():
                if where == node and not request.ends and not request.forgotten:
                    request.forgotten = event
    return found


# The ledger

Problem = tuple[str, str, str, str | None]  # what, plane, key, client


def ledger(
    story: Story, grace: float = 60.0, late: float = 60.0, skew: float = 600.0
) -> Counter[Problem]:
    """Every request owes one end; a publication a match; each client it was matched to one outcome."""
    found: Counter[Problem] = Counter()
    until = horizons(story)
    for (node, number), request in requests(story).items():
        client = request.accepted.client.decode() if request.accepted else None
        if request.accepted is None:
            problem = "orphaned"
        elif len(request.ends) > 1:
            problem = "duplicate"
        elif request.ends:
            continue
        elif request.forgotten or until[node] - wall(request.accepted) > grace * MICROS:
            problem = "lost"
        else:
            continue
        found[problem, "service", str(number), client] += 1
    for _, number, event in each(story):
        if isinstance(event, E.Gap):
            found["unrecorded", "node", str(number), None] += 1
    for events in story.values():
        left_out = [
            n for n, e in enumerate(events, 1) if isinstance(e, E.RequestAnswered) and not e.request
        ]
        if left_out:
            found["unrecorded", "node", str(left_out[0]), None] += 1
    return found + publications(story, until, grace, late, skew)


def publications(
    story: Story, until: dict[bytes, int], grace: float, late: float, skew: float
) -> Counter[Problem]:
    found: Counter[Problem] = Counter()
    accepted: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    matched: dict[bytes, dict[bytes, list[tuple[int, bytes]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    steps: dict[tuple[bytes, bytes], list[Event]] = defaultdict(list)
    seen = set()
    for node, _, event in each(story):
        if isinstance(event, E.PublicationAccepted):
            accepted[event.id].append((node, wall(event)))
        elif isinstance(event, E.PublicationMatched | E.PublicationTaken):
            seen.add(event.id)
            for place in split(event.clients, PLACE):
                matched[event.id][place[:ID]].append((wall(event), place[ID:]))
        elif isinstance(event, STEPS):
            for client in split(event.clients, ID):
                steps[event.id, client].append(event)
    for identity, places in accepted.items():
        for node, at in places:
            if identity not in seen and until[node] - at > grace * MICROS:
                found["lost", "push", identity.hex(), "p"] += 1
    pairs = {(i, client) for i, clients in matched.items() for client in clients}
    for identity, client in pairs | steps.keys():
        happened = steps[identity, client]
        firsts = [wall(e) for e in happened if isinstance(e, E.Delivered)]
        queued = any(isinstance(e, E.DeliveryQueued) for e in happened)
        begun = min((at for _, at in accepted[identity]), default=None)
        if (identity, client) not in pairs:
            problem = "orphaned"
        elif len(firsts) > 1:
            problem = "duplicate"
        elif not happened:
            at, connector = max(matched[identity][client])
            mine = until[connector] - at > grace * MICROS
            if not mine and max(until.values()) - at <= (grace + skew) * MICROS:
                continue
            problem = "lost"
        elif firsts and not queued and begun is not None and firsts[0] - begun > late * MICROS:
            problem = "late"
        else:
            continue
        found[problem, "push", identity.hex(), client.hex()] += 1
    return found


# Service levels


def minutes(story: Story) -> dict[tuple[str | None, int], dict[str, Any]]:
    """By service and minute (s since 1970) in which requests ended."""
    groups: dict[tuple[str | None, int], list[tuple[str, int | None, int]]] = defaultdict(list)
    for request in requests(story).values():
        if not request.ends and not request.forgotten:
            continue
        end = request.ends[0] if request.ends else request.forgotten
        assert end is not None
        taken = request.accepted
        latency = wall(end) - wall(taken) if taken and request.ends else None
        waited = round(end.waited * MICROS) if isinstance(end, E.RequestAnswered) else 0
        code = "answered" if isinstance(end, E.RequestAnswered) else "forgotten"
        if isinstance(end, E.RequestRefused):
            code = end.code.decode() or "unknown"
        service = taken.service.decode() if taken else None
        groups[service, _minute(end)].append((code, latency, waited))
    for _, _, event in each(story):
        if isinstance(event, E.RequestRefused) and not event.request:  # at the door
            code = event.code.decode() or "unknown"
            groups[event.service.decode(), _minute(event)].append((code, None, 0))
    found = {key: _figures(rows) for key, rows in groups.items()}
    for (service, minute), figures in found.items():
        before = [
            found[service, minute - 60 * back]
            for back in range(1, 31)
            if (service, minute - 60 * back) in found
        ]
        for name, column in (
            ("odd_rate", "requests"),
            ("odd_latency", "p99_us"),
            ("odd_errors", "errors"),
        ):
            figures[name] = _odd(figures[column], [row[column] for row in before])
    return found


def _minute(event: Event) -> int:
    return wall(event) // (60 * MICROS) * 60


def _figures(rows: list[tuple[str, int | None, int]]) -> dict[str, Any]:
    codes = Counter(code for code, _, _ in rows)
    timed = sorted(
        latency for code, latency, _ in rows if code == "answered" and latency is not None
    )
    busy = sum(max(0, latency) for _, latency, _ in rows if latency is not None)
    figures: dict[str, Any] = {
        "requests": len(rows),
        "errors": len(rows) - codes.pop("answered", 0),
        "in_flight": busy / (60 * MICROS),
        "waiting_share": sum(waited for *_, waited in rows) / busy if busy else None,
        "codes": dict(codes),
    }
    for name, share in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)):
        figures[name] = timed[math.ceil(share * len(timed)) - 1] if timed else None
    return figures


def _odd(value: float | None, before: list[float | None]) -> bool | None:
    """Far from usual: four deviations of the logarithm. None: too close to call for a percentile of buckets."""
    known = [math.log1p(each) for each in before if each is not None]
    if value is None or len(known) < 5:
        return False
    spread = max(statistics.stdev(known), 0.1)
    away = abs(math.log1p(value) - statistics.mean(known)) / spread
    return None if abs(away - 4.0) < 0.8 else away > 4.0


def subscribers(story: Story) -> dict[tuple[str, int], dict[str, Any]]:
    """By client and minute: what came to it, and how long after it was accepted."""
    accepted: dict[bytes, int] = {}
    for _, _, event in each(story):
        if isinstance(event, E.PublicationAccepted):
            accepted[event.id] = min(accepted.get(event.id, wall(event)), wall(event))
    found: dict[tuple[str, int], dict[str, Any]] = {}
    lags: dict[tuple[str, int], list[int]] = defaultdict(list)
    names = {E.Delivered: "delivered", E.Redelivered: "redelivered", E.Acknowledged: "acknowledged"}
    for _, _, event in each(story):
        if not isinstance(event, STEPS):
            continue
        for client in split(event.clients, ID):
            key = (client.hex(), _minute(event))
            row = found.setdefault(key, dict.fromkeys((*names.values(), "dropped"), 0))
            name = names.get(type(event), "dropped")
            row[name] += not isinstance(event, E.DeliveryQueued)
            if isinstance(event, E.Delivered | E.Redelivered) and event.id in accepted:
                lags[key].append(wall(event) - accepted[event.id])
    for key, row in found.items():
        known = sorted(lags[key])
        row["worst_lag_us"] = known[-1] if known else None
        row["p50_lag_us"] = known[math.ceil(len(known) / 2) - 1] if known else None
    return found


# Matching


def held(story: Story, moment: int | None) -> dict[tuple[bytes, bytes], E.SubscriptionSet]:
    """The subscriptions (by client and name) that hold at a moment, in µs, or now."""
    told = [
        (wall(event), node, number, event)
        for node, number, event in each(story)
        if isinstance(event, E.SubscriptionSet | E.SubscriptionRemoved) and event.connector == node
    ]
    found: dict[tuple[bytes, bytes], E.SubscriptionSet] = {}
    for at, _, _, event in sorted(told, key=lambda row: row[:3]):
        if moment is not None and at > moment:
            break
        if isinstance(event, E.SubscriptionSet):
            found.pop((event.client, event.name), None)  # the last one set comes last
            found[event.client, event.name] = event
        else:  # of one, or without a name of all, that the client has there
            gone = [
                key
                for key, kept in found.items()
                if key[0] == event.client
                and kept.connector == event.connector
                and event.name in (b"", key[1])
            ]
            for key in gone:
                del found[key]
    return found


def match(story: Story, moment: int | None) -> set[tuple[str, str, str]]:
    """Publication, client and where it is, by the connector of what it set last."""
    subscriptions = held(story, moment).values()
    home = {each.client: each.connector for each in subscriptions}
    found = set()
    for _, _, event in each(story):
        if not isinstance(event, E.PublicationAccepted):
            continue
        attributes = _attributes(event.attrs)
        for subscription in subscriptions:
            if attributes is not None and satisfied(json.loads(subscription.fields), attributes):
                client = subscription.client
                found.add((event.id.hex(), client.hex(), home[client].hex()))
    return found


def _attributes(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or any(
        isinstance(value, dict | list | None) for value in found.values()
    ):
        return None
    return found


def satisfied(fields: dict[str, Any], attributes: dict[str, Any]) -> bool:
    return all(
        _field(field, name in attributes, attributes.get(name)) for name, field in fields.items()
    )


def _field(field: dict[str, Any], there: bool, value: Any) -> bool:
    if field["use"] == 1:
        return there and isinstance(value, str) and value == field["strval"]
    if field["use"] == 2:
        low, high = field.get("low"), field.get("high")
        if not _number(value):
            return False
        above, below = low is None or low <= value, high is None or value <= high
        return above and below
    extra = field["extra"]
    return _extra(json.loads(extra) if isinstance(extra, str) else extra, there, value)


def _extra(extra: dict[str, Any], there: bool, value: Any) -> bool:
    [(word, asked)] = extra.items()
    if word == "any":
        return any(_extra(one, there, value) for one in asked)
    if word == "exists":
        return there is asked
    if not there:
        return False
    if word in ("in", "not_in"):
        return any(_equal(value, one) for one in asked) == (word == "in")
    if word == "ne":
        return not _equal(value, asked)
    if word == "prefix":
        return isinstance(value, str) and value.startswith(asked)
    compared = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}[word]
    return _number(value) and bool(compared(value, asked))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    """A number never equals a text; booleans are neither."""
    kinds = [
        bool if isinstance(v, bool) else str if isinstance(v, str) else float for v in (one, other)
    ]
    return kinds[0] is kinds[1] and one == other
