"""What nodes of the push plane count, as a scraper reads it."""

from __future__ import annotations

from homing.metrics import Histogram, Registry
from homing.node.instruments import watch_role
from homing.push.sessions import MAX_BACKLOG
from tests.push.desk import Desk, message_id


def figures(role: object) -> dict[str, float]:
    registry = Registry()
    watch_role(registry, role)
    told: dict[str, float] = {}
    for metric, children in registry.read().items():
        for child in children.values():
            told[metric.name] = child.count if isinstance(child, Histogram) else child.value
    return told


def test_a_connector_counts_what_became_of_every_delivery() -> None:
    desk = Desk()
    slow, durable = desk.subscribed(1), desk.subscribed(2, ack=True, resume=True)
    desk.push(1, 1, 2, 3)
    desk.settle()
    desk.say(durable, b"ack", message_id(1).hex().encode())
    slow.backlog = MAX_BACKLOG + 1
    # Until the link is asked again the client counts as quick.
    for number in range(2, 5):
        desk.push(number, 1, 2, payload=b"x" * 100_000)
    desk.settle()
    desk.connector.closed(durable, desk.now)
    desk.auth_resumed(2)
    told = figures(desk.connector)
    assert told["homing_push_taken_over_total"] == 4
    assert told["homing_push_acknowledged_total"] == 1
    assert told["homing_push_redeliveries_total"] == 3
    assert told["homing_push_dropped_total"] == 1  # client 3 is nobody
    waiting = len(desk.connector.sessions[(1).to_bytes(12, "big")])
    assert told["homing_push_deliveries_total"] == 8 - waiting
    assert told["homing_push_slow"] == 1
    assert told["homing_push_undelivered_bytes"] == desk.connector.store.held > 0
