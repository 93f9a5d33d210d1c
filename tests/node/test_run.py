"""Real processes that are told to end: drain in time, abort at the second signal."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NODE = textwrap.dedent(
    """
    import sys
    from homing.errors import JournalError
    from homing.node.host import Host
    from homing.node.plug import StreamPlug
    from homing.node.run import run_node
    from tests.node.stage import Lines, Memory, echo

    class Busy(Memory):
        '''Echoes; `work` is work that takes until `done` comes.'''
        drained = True
        def receive(self, link, message, now):
            super().receive(link, message, now)
            if message == b"work":
                self.drained = False
            if message == b"done":
                self.drained = True
            echo(link, message)
        def drain(self, now):
            for link in self.links:
                link.send(b"draining\\n")

    class Full:
        def append(self, event):
            return 0
        def close(self):
            raise JournalError("3 events not written: no space")

    async def start(host: Host) -> None:
        host.role = Busy()
        if sys.argv[2:] == ["full"]:
            host.journal_writer = Full()
        host.add(StreamPlug("lines", Lines))
        print("ready", host.listen("lines", "127.0.0.1:0").rpartition(":")[2], flush=True)

    sys.exit(run_node(start, drain_seconds=float(sys.argv[1])))
    """
)


@contextmanager
def node(
    drain_seconds: float, disk: str = ""
) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A node process and one connection to it."""
    process = subprocess.Popen(
        [sys.executable, "-c", NODE, str(drain_seconds), disk],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if disk else None,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        with socket.create_connection(("127.0.0.1", port), 20) as peer:
            peer.sendall(b"hello\n")
            assert peer.recv(100) == b"hello\n"
            yield process, peer
    finally:
        process.kill()
        process.communicate()


def heard(peer: socket.socket, text: bytes) -> bytes:
    """What comes up to and with some text."""
    data = b""
    while text not in data:
        more = peer.recv(1000)
        assert more, f"closed after {data!r}"
        data += more
    return data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_node_ends_at_once_and_in_peace(number: signal.Signals) -> None:
    with node(30.0) as (process, peer):
        process.send_signal(number)
        assert heard(peer, b"draining\n") == b"draining\n"
        assert peer.recv(10) == b"", "what was queued comes, then the end"
        assert process.wait(20) == 0


def test_work_under_way_is_finished_and_newcomers_hear_the_roles_own_word() -> None:
    with node(30.0) as (process, peer):
        peer.sendall(b"work\n")
        heard(peer, b"work\n")
        process.send_signal(signal.SIGTERM)
        heard(peer, b"draining\n")
        with socket.create_connection(peer.getpeername(), 5) as newcomer:
            newcomer.sendall(b"me too\n")
            heard(newcomer, b"me too\n")
            peer.sendall(b"done\n")
            heard(peer, b"done\n")
            assert newcomer.recv(10) == b""
        assert process.wait(20) == 0


def test_work_that_does_not_end_is_left_at_the_deadline() -> None:
    with node(0.2) as (process, peer):
        peer.sendall(b"work\n")
        heard(peer, b"work\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_node_that_could_not_write_its_journal_does_not_end_in_peace() -> None:
    with node(0.2, "full") as (process, _):
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=20)
        assert process.returncode
        assert told.splitlines()[-1] == "homing.errors.JournalError: 3 events not written: no space"


def test_the_second_signal_aborts() -> None:
    with node(300.0) as (process, peer):
        peer.sendall(b"work\n")
        heard(peer, b"work\n")
        process.send_signal(signal.SIGTERM)
        heard(peer, b"draining\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 1
