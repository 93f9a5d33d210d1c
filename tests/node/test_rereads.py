"""SIGHUP: files are read again, a broken one changes nothing, and no node ends of it but with its terminal."""

from __future__ import annotations

import logging
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from homing.errors import ConfigError
from homing.node.rereads import read_again
from tests.node.test_run import NODE, heard, node


def test_each_file_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    read: list[str] = []

    def broken() -> None:
        raise ConfigError(["users:1: no such right"])

    def missing() -> None:
        raise FileNotFoundError(2, "No such file", "cert.pem")

    read_again({"a.b": broken, "c.d": missing, "e.f": lambda: read.append("e.f")}.items())
    first, second, third = [record.getMessage() for record in caplog.records]
    assert read == ["e.f"]
    assert first.startswith("a.b cannot be read, what it said stays in force: users:1")
    assert second.startswith("c.d cannot be read")
    assert third == "e.f was read again"
    caplog.clear()
    read_again(())
    assert "nothing to read again" in caplog.text


def test_a_node_goes_on() -> None:
    with node(30.0) as (process, peer):
        process.send_signal(signal.SIGHUP)
        peer.sendall(b"still there\n")
        assert heard(peer, b"\n") == b"still there\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@contextmanager
def at_a_terminal() -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A node whose standard input is a terminal, the other side of that, and where it listens."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", NODE, "30"], stdin=theirs, stdout=subprocess.PIPE, text=True
    )
    os.close(theirs)
    try:
        assert process.stdout is not None
        yield process, ours, int(process.stdout.readline().split()[1])
    finally:
        process.kill()
        process.communicate()


def test_a_node_ends_with_its_terminal() -> None:
    with at_a_terminal() as (process, terminal, port):
        process.send_signal(signal.SIGHUP)
        with socket.create_connection(("127.0.0.1", port), 20) as peer:
            peer.sendall(b"still there\n")
            assert heard(peer, b"\n") == b"still there\n"
        os.close(terminal)
        process.send_signal(signal.SIGHUP)  # as the kernel does to who stands in its foreground
        assert process.wait(20) == 0
