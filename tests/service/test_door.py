"""A users file that changes while its broker runs: SIGHUP puts all of it in force, or nothing."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import zmq

from homing.cli import main
from homing.config.settings import Security
from homing.errors import Denied
from homing.node.keys import Keyring
from homing.wire.curve import CurveServer
from tests.service.processes import BrokerProcess, Reaper
from tests.service.test_processes import until
from tests.service.test_routers import children

OLD = "ann:pw call=echo\nwes:pw serve=echo\nbob:pw\n"


def connect(
    context: zmq.Context[Any], end: str, user: str, password: str = "pw"
) -> zmq.Socket[Any]:
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.PLAIN_USERNAME, user.encode())
    socket.setsockopt(zmq.PLAIN_PASSWORD, password.encode())
    socket.setsockopt(zmq.RCVTIMEO, 20_000)
    socket.connect(end)
    return socket


def asked(client: zmq.Socket[Any], service: str) -> list[bytes]:
    """The answer to a question."""
    client.send_multipart([b"", b"MDPC0X", service.encode(), b"x"])
    return client.recv_multipart()[2:]


def said(worker: zmq.Socket[Any], command: bytes) -> list[bytes]:
    """What a worker hears next that is this command."""
    while (message := worker.recv_multipart())[2] != command:
        pass
    return message


def hang_up(broker: BrokerProcess, text: str) -> None:
    """SIGHUP, and until the log says so."""
    before = broker.stderr().count(text)
    broker.child.send_signal(signal.SIGHUP)
    until(lambda: broker.stderr().count(text) > before)


@pytest.mark.slow
@pytest.mark.parametrize("routers", ["0", "1"])
def test_rights_change_and_users_go(
    routers: str, reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text(OLD)
    broker = reaper.broker(
        security__mechanism="plain",
        security__users_file=str(users),
        service__heartbeat="5s",
        service__routers=routers,
    )
    ann = connect(context, broker.ends["localfe"], "ann")
    bob = connect(context, broker.ends["localfe"], "bob")
    wes = connect(context, broker.ends["localbe"], "wes")
    wes.send_multipart([b"", b"MDPW0X", b"\x01", b"echo"])
    assert asked(ann, "mmi.service") == [b"\x03", b"mmi.service", b"denied"]
    assert asked(bob, "mmi.service")[0] == b"\x02"
    users.write_text("")
    hang_up(broker, "names nobody")
    users.write_text("ann:pw call=echo,mmi.*\nwes:pw serve=other\nbob:pw dance=1\n")
    hang_up(broker, "dance=1")
    for router in children(broker):  # one that starts anew knows what the broker knows
        os.kill(router, signal.SIGKILL)
    assert asked(ann, "mmi.service") == [b"\x03", b"mmi.service", b"denied"], "all is as it was"
    users.write_text("ann:pw call=echo,mmi.*\nwes:pw serve=other\nbob:new\n")
    hang_up(broker, "security.users_file was read again")
    assert said(wes, b"\x05") == [b"", b"MDPW0X", b"\x05"], "it may no longer serve"
    until(lambda: asked(ann, "mmi.service")[0] == b"\x02")  # a router reads it a moment later
    stale = connect(context, broker.ends["localfe"], "bob")
    stale.send_multipart([b"", b"MDPC0X", b"mmi.service", b"x"])
    again = connect(context, broker.ends["localfe"], "bob", "new")
    assert asked(again, "mmi.service")[0] == b"\x02"
    for cut_off in (bob, stale):
        assert not cut_off.poll(200)
    broker.terminate()
    assert broker.wait() == 0
    for line in broker.stderr().splitlines():
        assert json.loads(line)["event"], "routers log as their broker does"


def test_an_empty_users_file_lets_nobody_in(tmp_path: Path) -> None:
    """Be it that somebody commented out the last line: with CURVE everybody would be let in."""
    users, key = tmp_path / "users", tmp_path / "key"
    users.write_text("# ann:secret\n")
    assert main(["keys", "new", str(key)]) == 0
    security = Security(mechanism="curve", users_file=str(users), key_file=str(key))
    keyring = Keyring.load(security)
    assert not keyring.access.may_call("", b"echo")
    assert not keyring.access.may_serve("", b"echo")
    server = keyring.server()
    assert isinstance(server, CurveServer)
    with pytest.raises(Denied):
        server.authenticate(bytes(32))
    open_to_all = Keyring.load(Security(mechanism="curve", key_file=str(key)))
    assert open_to_all.access.may_call("", b"echo")


def test_who_is_cut_off(tmp_path: Path) -> None:
    users = tmp_path / "users"

    def keyring(text: str) -> Keyring:
        users.write_text(text)
        return Keyring.load(Security(mechanism="plain", users_file=str(users)))

    before = keyring(OLD)
    assert before.revoked(keyring(OLD)) == set()
    assert before.revoked(keyring("ann:pw call=*\nbob:new\nzoe:pw\n")) == {"bob", "wes"}
