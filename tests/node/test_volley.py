"""Volleys, through a real io_uring where there is one: everybody gets everything, or is named."""

from __future__ import annotations

import os
import socket
from array import array
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from homing.node.volley import ENTRIES, ROOM, OneByOne, Volley, make_volley

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=[OneByOne, make_volley], ids=["one by one", "the best there is"])
def volley(request: pytest.FixtureRequest) -> Iterator[Volley | OneByOne]:
    volley: Volley | OneByOne = request.param()
    yield volley
    volley.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """More than fit into one call, and no whole multiple of it."""
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(ENTRIES + ENTRIES // 3)]
        for sock in (sock for pair in made for sock in pair):
            stack.callback(sock.close)
            sock.setblocking(False)
        yield made


def fds(pairs: list[Pair]) -> array[int]:
    return array("i", [sender.fileno() for sender, _ in pairs])


def test_everybody_gets_every_volley_in_order(volley: Volley | OneByOne, pairs: list[Pair]) -> None:
    volleys = [b"%d;" % number * number for number in range(20)]
    for data in volleys:
        assert list(volley.send(fds(pairs), data)) == []
    for _, receiver in pairs:
        assert receiver.recv(1 << 16) == b"".join(volleys)


def test_each_gets_its_own_however_much_that_is_together(
    volley: Volley | OneByOne, pairs: list[Pair]
) -> None:
    shared = os.urandom(ROOM // 3)
    own = [os.urandom(which) for which in range(1, len(pairs) + 1)]
    images = [shared if which % 7 < 2 else own[which] for which in range(len(pairs))]
    fill(pairs[5][0])
    assert list(volley.send_each(fds(pairs), images)) == [(5, 0)]
    assert list(volley.send(fds(pairs[6:]), b"and all the same")) == []
    for which, (_, receiver) in enumerate(pairs):
        expected = images[which] + b"and all the same" * (which > 5)
        assert which == 5 or drain(receiver) == expected


def test_who_takes_less_or_nothing_is_named_and_harms_nobody(
    volley: Volley | OneByOne, pairs: list[Pair]
) -> None:
    full, broken, closed, part = 3, ENTRIES - 1, ENTRIES, len(pairs)
    pairs = [*pairs, almost_full()]
    everybody = fds(pairs)
    fill(pairs[full][0])
    pairs[broken][1].close()
    pairs[closed][0].close()
    data = os.urandom(ROOM // 2)  # what every local socket has room for
    short = dict(volley.send(everybody, data))
    some = short.pop(part)
    assert short == {full: 0, broken: 0, closed: 0}
    assert 0 < some < len(data)
    assert drain(pairs[part][1]) == data[:some]
    for which in set(range(len(pairs))) - {full, broken, closed, part}:
        assert drain(pairs[which][1]) == data
    for sock in pairs[part]:
        sock.close()


def test_a_ring_that_is_gone_sends_nothing_and_says_so(
    volley: Volley | OneByOne, pairs: list[Pair]
) -> None:
    if isinstance(volley, Volley):  # the other has none to lose
        kept = os.dup(volley._fd)
        os.dup2(pairs[0][0].fileno(), volley._fd)  # no ring at all
        nobody = list(volley.send(fds(pairs[1:]), b"lost"))
        assert nobody == [(which, 0) for which in range(len(pairs) - 1)]
        os.dup2(kept, volley._fd)
        os.close(kept)
    assert list(volley.send(fds(pairs[1:]), b"there")) == []
    assert {receiver.recv(16) for _, receiver in pairs[1:]} == {b"there"}


def test_a_kernel_that_refuses_leaves_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Volley:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("homing.node.volley.Volley", refuse)
    assert isinstance(make_volley(), OneByOne)


def fill(sock: socket.socket) -> None:
    try:
        while sock.send(b"x" * 4096):
            pass
    except BlockingIOError:
        return


def almost_full() -> Pair:
    """A TCP connection with little room: it takes a part of what it is given."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        sender = socket.socket()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        sender.connect(server.getsockname())
        receiver, _ = server.accept()
    receiver.setblocking(False)
    sender.setblocking(False)
    return sender, receiver


def drain(sock: socket.socket) -> bytes:
    got = bytearray()
    try:
        while more := sock.recv(1 << 20):
            got += more
    except BlockingIOError:
        pass
    return bytes(got)
