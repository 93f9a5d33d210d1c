"""The load generator counts what really happened, against the brokers it is used on."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from shutil import which

import pytest

from benchmarks.peers import HERE, floor_program, majordomo_program
from benchmarks.service.brokers import Broker, homing, one_path, one_port, plain_path
from benchmarks.service.drive import bytes_per_request, expect, loading, once
from homing.sync import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(which("gcc") is None, reason="needs a C compiler"),
]

PYZMQ = one_port(lambda port: [sys.executable, str(HERE / "majordomo.py"), str(port)])


def test_a_broker_on_pyzmq_answers_every_request_of_the_load() -> None:
    got = once(
        PYZMQ, "mdp01", {"workers": 3, "clients": 2, "inflight": 10, "size": 300, "seconds": 0.3}
    )
    assert got.rate > 0
    assert 0 < got.p50_us <= got.p99_us
    assert got.cpu_us > 0


def test_the_yardstick_on_libzmq_answers_and_holds_what_waits() -> None:
    if not Path("/usr/include/zmq.h").exists():
        pytest.skip("libzmq's headers are not installed (Debian: libzmq3-dev)")
    program = majordomo_program()
    assert program is not None
    broker = Broker("C", "mdp01", one_port(lambda port: [str(program), str(port), "heartbeat"]))
    got = once(broker.start, "mdp01", {"workers": 2, "inflight": 20, "rate": 200, "seconds": 0.3})
    assert got.rate > 0
    assert bytes_per_request(broker, 20_000) > 64


def test_homing_serves_the_load_in_both_dialects(tmp_path: Path) -> None:
    start = homing(plain_path(tmp_path / "src"))
    public = once(start, "mdp01", {"workers": 2, "inflight": 10, "seconds": 0.3})
    own = {"workers": 2, "inflight": 40, "credit": 5, "envelope": 1, "size": 70_000, "seconds": 0.3}
    assert public.rate > 0
    assert once(start, "mdp0x", own).rate > 0


def test_the_load_comes_by_unix_sockets(tmp_path: Path) -> None:
    """To homing, that listens on both, to the sockets alone, and to libzmq where its headers are there."""
    mine = homing(plain_path(tmp_path / "src"), local=True)
    starts = [mine, one_path(lambda path: [str(floor_program()), path])]
    yardstick = majordomo_program() if Path("/usr/include/zmq.h").exists() else None
    if yardstick is not None:
        starts.append(one_path(lambda path: [str(yardstick), path, "heartbeat"]))
    for start in starts:
        with start() as running:
            assert Path(str(running.fe)).is_socket()
        options = {"workers": 2, "inflight": 10, "size": 70_000, "seconds": 0.3}
        assert once(start, "mdp01", options).rate > 0


def test_patient_workers_of_the_load_keep_to_what_the_broker_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMING_SERVICE_IDLE_BEATS", "4")
    start = homing(plain_path(tmp_path / "src"))
    options = {"workers": 20, "clients": 1, "mute": 1, "patient": 30_000}
    with start() as running, loading(running, "mdp0x", options) as output:
        expect(output, "start")
        with Client(f"tcp://127.0.0.1:{running.fe}") as client:
            deadline = time.monotonic() + 30
            told: list[float] = []
            while told != [5.0] * 20:
                assert time.monotonic() < deadline, told
                time.sleep(0.1)
                workers = json.loads(client.request("mmi.workers"))
                told = [worker["idle_heartbeat"] for worker in workers]


def test_a_load_that_is_refused_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    ended = pytest.raises(RuntimeError, match="ended early")
    with PYZMQ() as running, ended, loading(running, "mdp01", {"size": 1}) as output:
        expect(output, "ready")
    assert "size >= 8" in capfd.readouterr().err
