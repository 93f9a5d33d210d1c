"""Settings at their ends: a broker keeps its promises however slow or quick it is told to be."""

from __future__ import annotations

import pytest

from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.wire import mdp
from homing.wire.mdp_messages import Nak
from tests.service.stage import Stage


@pytest.mark.parametrize("heartbeat", [0.01, 2.5, 3600.0])
def test_deadlines_are_as_fine_as_ticks_however_slow_heartbeats_are(heartbeat: float) -> None:
    stage = Stage(BrokerPolicy(heartbeat=heartbeat, default=ServicePolicy(timeout=1.0)))
    stage.worker(b"echo")
    client = stage.client()
    stage.ask(client)
    stage.pass_time(0.9)
    assert client.take() == []
    stage.pass_time(0.4)
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"timeout")


@pytest.mark.parametrize("heartbeat", [0.01, 2.5, 3600.0])
def test_names_that_nobody_serves_make_room_however_slow_heartbeats_are(heartbeat: float) -> None:
    policy = BrokerPolicy(
        heartbeat=heartbeat, max_services=2, default=ServicePolicy(absent_grace=0.1)
    )
    stage = Stage(policy)
    stage.pass_time(0.5)
    client = stage.client()
    for name in (b"made", b"up", b"real"):
        stage.ask(client, name)
    assert mdp.read_to_client(client.take()[0]) == Nak(b"real", b"queue-full too many services")
    stage.pass_time(3.0)
    worker = stage.worker(b"real")
    assert worker.sent == []
    stage.ask(client, b"real")
    assert len(worker.sent) == 1


@pytest.mark.parametrize(("heartbeat", "interval"), [(2.5, 60.0), (0.01, 0.05), (3600.0, 0.001)])
def test_state_is_told_with_every_heartbeat_however_long_its_interval(
    heartbeat: float, interval: float
) -> None:
    stage = Stage(BrokerPolicy(heartbeat=heartbeat), state_every=interval)
    watcher = stage.link("statebe")
    for _ in range(3):
        stage.pass_time(2 * heartbeat, heartbeat / 10)
        assert watcher.take(), "a peer takes us for gone after three heartbeats"
