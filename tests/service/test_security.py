"""Keys, users and rights: the files, and PLAIN and CURVE against libzmq."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import zmq

from homing.cli import main
from homing.config.settings import Security
from homing.errors import ConfigError
from homing.node.keys import Keyring, User, read_keys, read_users
from homing.wire.z85 import z85
from tests.service.foreign import Client
from tests.service.processes import Reaper
from tests.service.test_processes import _peer_has, dealer, until


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_users_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# who\nann:pw\nbob:p#w call=echo,math.* # two\n\nlyon:x peer=lyon\n")
    assert read_users(path) == (
        User("ann", "pw", ("*",), ("*",)),
        User("bob", "p#w", ("echo", "math.*"), ()),
        User("lyon", "x", (), (), "lyon"),
    )


def test_everything_wrong_with_a_users_file_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("ann\nbob:x sing=loud\ncat:x\ncat:y\n")
    with pytest.raises(ConfigError) as caught:
        read_users(path)
    told = "\n".join(caught.value.problems)
    assert f"{path}:1" in told
    assert "sing=loud" in told
    assert "cat twice" in told
    with pytest.raises(ConfigError):
        read_users(tmp_path / "missing")


def test_rights_become_allow_lists(tmp_path: Path) -> None:
    users = write(tmp_path / "users", "ann:pw call=echo\nwes:pw serve=*\nlyon:x peer=lyon\n")
    access = Keyring.load(Security(mechanism="plain", users_file=users)).access
    assert access.may_call("ann", b"echo")
    assert not access.may_call("ann", b"other")
    assert not access.may_serve("ann", b"echo")
    assert access.may_serve("wes", b"")
    assert access.may_peer("lyon", b"lyon")
    assert not access.may_peer("ann", b"lyon")
    assert Keyring.load(Security()).access.may_call("", b"anything")


def test_keys_new_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "paris.key"
    assert main(["keys", "new", str(path)]) == 0
    public = capsys.readouterr().out.strip()
    assert z85(read_keys(path)[0]) == public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert main(["keys", "show", str(path)]) == 0
    assert capsys.readouterr().out.strip() == public
    assert main(["keys", "new", str(path)]) == 78
    write(path, "nonsense")
    assert main(["keys", "show", str(path)]) == 78


def test_curve_without_keys_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="key_file"):
        Keyring.load(Security(mechanism="curve"))


@pytest.mark.slow
def test_plain_over_libzmq(reaper: Reaper, context: zmq.Context[Any], tmp_path: Path) -> None:
    users = write(tmp_path / "users", "ann:secret call=echo\nwes:secret serve=echo\n")
    broker = reaper.broker(
        security__mechanism="plain", security__users_file=users, service__heartbeat="5s"
    )

    def connect(user: bytes, password: bytes, plug: str) -> zmq.Socket[Any]:
        socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.PLAIN_USERNAME, user)
        socket.setsockopt(zmq.PLAIN_PASSWORD, password)
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        socket.connect(broker.ends[plug])
        return socket

    worker = connect(b"wes", b"secret", "localbe")
    worker.send_multipart([b"", b"MDPW0X", b"\x01", b"echo"])
    client = connect(b"ann", b"secret", "localfe")
    client.send_multipart([b"", b"MDPC0X", b"echo", b"abc"])
    assert worker.recv_multipart()[-1] == b"abc"
    client.send_multipart([b"", b"MDPC0X", b"other", b"abc"])
    assert client.recv_multipart()[2:] == [b"\x03", b"other", b"denied"]
    caller = connect(b"ann", b"secret", "localbe")
    caller.send_multipart([b"", b"MDPW0X", b"\x01", b"echo"])
    assert caller.recv_multipart() == [b"", b"MDPW0X", b"\x05"]
    stranger = connect(b"ann", b"guess", "localfe")
    stranger.send_multipart([b"", b"MDPC0X", b"echo", b"abc"])
    assert not stranger.poll(700)


@pytest.mark.slow
def test_curve_federation_over_libzmq(
    reaper: Reaper, context: zmq.Context[Any], tmp_path: Path
) -> None:
    publics = {name: make_key(tmp_path, name) for name in ("north", "south")}
    client_public, client_secret = zmq.curve_keypair()
    lines = [f"{name}:{key} peer={name}\n" for name, key in publics.items()]
    users = write(tmp_path / "users", "".join(lines) + f"ann:{client_public.decode()}\n")

    def settings(name: str) -> dict[str, str]:
        return {
            "service__heartbeat": "5s",
            "security__mechanism": "curve",
            "security__users_file": users,
            "security__key_file": str(tmp_path / f"{name}.key"),
        }

    def secure(socket: zmq.Socket[Any], server: str) -> None:
        socket.setsockopt(zmq.CURVE_SERVERKEY, publics[server].encode())
        socket.setsockopt(zmq.CURVE_PUBLICKEY, client_public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, client_secret)

    north = reaper.broker("north", **settings("north"))
    ends = f"{north.ends['cloudfe']},{north.ends['statebe']}"
    south = reaper.broker("south", "--peer", f"north={ends}", **settings("south"))
    worker: zmq.Socket[Any] = context.socket(zmq.DEALER)
    secure(worker, "north")
    worker.setsockopt(zmq.RCVTIMEO, 10_000)
    worker.connect(north.ends["localbe"])
    worker.send_multipart([b"", b"MDPW0X", b"\x01", b"rare"])
    client = SecureClient(context, south.ends["localfe"], lambda socket: secure(socket, "south"))
    until(lambda: _peer_has(client, "rare"))
    client.socket.send_multipart([b"MDPC01", b"rare", b"abc"])
    while (request := worker.recv_multipart())[2] != b"\x06":
        pass
    service, origin, address = request[3:6]
    worker.send_multipart([b"", b"MDPW0X", b"\x08", address, b"", origin, service, b"cba"])
    assert client.socket.recv_multipart()[-1] == b"cba"
    nobody = dealer(context, south.ends["localfe"])
    nobody.send_multipart([b"", b"MDPC0X", b"mmi.service", b""])
    assert not nobody.poll(700)


def make_key(folder: Path, name: str) -> str:
    path = folder / f"{name}.key"
    assert main(["keys", "new", str(path)]) == 0
    return z85(read_keys(path)[0])


class SecureClient(Client):
    """A foreign client whose socket is made ready by the test."""

    def __init__(self, context: zmq.Context[Any], endpoint: str, secure: Any) -> None:
        self._secure = secure
        super().__init__(context, endpoint)

    def _fresh(self) -> zmq.Socket[Any]:
        socket: zmq.Socket[Any] = self.context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self._secure(socket)
        socket.connect(self.endpoint)
        return socket
