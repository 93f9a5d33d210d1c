"""The sink counts what really arrived, against the servers it is used on."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from benchmarks.push.drive import bytes_per_connection, once
from benchmarks.push.servers import (
    MOSQUITTO,
    NATS,
    NODES,
    REDIS,
    UP,
    Server,
    _mosquitto,
    _nats,
    _redis,
    nodes,
    peer,
    up,
)
from benchmarks.service.brokers import plain_path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(which("gcc") is None, reason="needs a C compiler"),
]
PEERS = {
    "redis-server": Server(REDIS, "redis", peer(_redis)),
    "nats-server": Server(NATS, "nats", peer(_nats)),
    "mosquitto": Server(MOSQUITTO, "mqtt", peer(_mosquitto)),
}
HERE = [name for name in PEERS if which(name) or Path(f"/usr/sbin/{name}").exists()]


def test_homing_reaches_whom_it_concerns_and_nobody_else(tmp_path: Path) -> None:
    server = Server(NODES, "homing", nodes(plain_path(tmp_path / "src")), filters=True)
    with server.start() as running:
        all_of_them = once(server, running, {"subs": 50, "window": 4, "seconds": 0.3})
        assert all_of_them.useful == all_of_them.rate > 0
        assert 0 < all_of_them.p50_us <= all_of_them.p99_us
        some = once(server, running, {"subs": 50, "window": 4, "groups": 10, "seconds": 0.3})
        assert some.useful == some.rate > 0


@pytest.mark.parametrize("program", HERE)
def test_a_peer_sends_everything_to_everybody(program: str) -> None:
    server = PEERS[program]
    with server.start() as running:
        got = once(server, running, {"subs": 50, "window": 4, "groups": 10, "seconds": 0.3})
    assert got.rate > got.useful > 0
    assert got.useful == pytest.approx(got.rate / 10, rel=0.2)


@pytest.mark.nightly
def test_ten_thousand_subscribers_at_one_connector(tmp_path: Path) -> None:
    server = Server(UP, "homing", up(plain_path(tmp_path / "src")), filters=True)
    with server.start() as running:
        got = once(server, running, {"subs": 10_000, "window": 2, "warm": 2, "seconds": 5})
        assert got.rate > 0
    assert bytes_per_connection(server, 10_000)[0] < 16 << 10
