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
