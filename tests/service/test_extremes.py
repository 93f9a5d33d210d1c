"""Settings at their ends: a broker keeps its promises however slow or quick it is told to be."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import msgspec
import pytest
import zmq

from homing.config import load
from homing.config.catalogue import SETTINGS
from homing.errors import ConfigError
from homing.node.broker import start_broker
from homing.node.host import Host
from homing.service.policy import BrokerPolicy, ServicePolicy
from homing.wire import mdp, mdp_peers
from homing.wire.frames import unpack
from homing.wire.mdp_messages import Heartbeat, Nak, State
from tests.service.foreign import Client
from tests.service.processes import PLUGS, Reaper
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


@pytest.mark.parametrize("heartbeat", [0.01, 2.5, 60.0])
def test_a_worker_that_answers_every_heartbeat_stays_with_the_least_liveness(
    heartbeat: float,
) -> None:
    least = int(SETTINGS["service.liveness"].meta.ge or 0)
    stage = Stage(BrokerPolicy(heartbeat=heartbeat, liveness=least))
    worker = stage.worker(b"echo")
    for _ in range(600):
        stage.pass_time(heartbeat / 60, heartbeat / 60)
        for image in worker.take():
            assert mdp.read_to_worker(image) == Heartbeat(mdp.D0X)
            stage.say(worker, Heartbeat(mdp.D0X))


@pytest.mark.parametrize(
    ("heartbeat", "interval"), [(2.5, 60.0), (2.5, 2.4), (0.01, 0.05), (3600.0, 0.001)]
)
def test_state_is_told_with_every_heartbeat_however_long_its_interval(
    heartbeat: float, interval: float
) -> None:
    stage = Stage(BrokerPolicy(heartbeat=heartbeat), state_every=interval)
    watcher = stage.link("statebe")
    told = []
    for _ in range(400):
        stage.pass_time(heartbeat / 40, heartbeat / 40)
        told += [stage.now for _ in watcher.take()]
    spaces = [later - sooner for sooner, later in pairwise(told)]
    assert max(spaces) < 1.5 * heartbeat, "a peer may take us for gone after two"


def test_more_idle_places_than_a_state_tells_are_told_as_the_most() -> None:
    told = mdp_peers.read_state(mdp_peers.write(State(b"here", 20_000 * 65_535, {})))
    assert told == State(b"here", 999_999_999, {})


def test_a_group_of_no_endpoints_is_refused() -> None:
    """Before a broker listens, and has told its task workers of them."""
    settings = ["service.group=127.0.0.1:1,nonsense", "journal.enabled=false"]
    settings += [f"service.{plug}=tcp://127.0.0.1:0" for plug in PLUGS]
    config = load("/dev/null", assignments=settings, environment={})

    async def start() -> None:
        host = Host()
        with pytest.raises(ConfigError, match=r"service\.group: 'nonsense': expected host:port"):
            start_broker(host, config)
        host.stop()

    asyncio.run(start())


@pytest.mark.slow
def test_a_state_of_many_services_is_heard_however_short_messages_are(
    reaper: Reaper, context: zmq.Context[Any]
) -> None:
    cloudfe, statebe = context.socket(zmq.ROUTER), context.socket(zmq.PUB)
    ends = [
        f"tcp://127.0.0.1:{one.bind_to_random_port('tcp://127.0.0.1')}"
        for one in (cloudfe, statebe)
    ]
    peer = f"peer={'|'.join(ends)}"
    broker = reaper.broker("here", service__max_message="1KiB", service__peers=peer)
    state = State(b"peer", 500, {f"{number:0200d}": 1 for number in range(500)})
    frames = [bytes(frame) for frame in unpack(mdp_peers.write(state))]
    client = Client(context, broker.ends["localfe"], "02")
    end, heard = time.monotonic() + 20, 0
    while heard != 500:
        assert time.monotonic() < end, broker.stderr()
        statebe.send_multipart(frames)
        peers = msgspec.json.decode(client.request(b"mmi.peers", b""))
        heard = len(peers["peer"]["services"])
