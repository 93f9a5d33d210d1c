"""The ring: stable under change, balanced, the same for everybody who heard the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Malformed
from homing.push.ring import MAX_MATCHERS, Ring, vnode_hashes
from homing.wire.assembly import Assembler
from homing.wire.status import Status, decode

KEYS = [b"client-%d" % number for number in range(500)]


def status(number: int, vnodes: int = 64) -> Status:
    name = b"matcher-%d" % number
    return Status(name, b"127.0.0.1:7002", vnodes=vnode_hashes(name, vnodes))


def ring_of(*numbers: int) -> Ring:
    ring = Ring()
    for number in numbers:
        ring.learn(status(number))
    return ring


def owners(ring: Ring) -> dict[bytes, bytes]:
    return {key: ring.owners(key)[0] for key in KEYS}


def test_who_heard_the_same_agrees_in_whatever_order() -> None:
    numbers = list(range(8))
    first = ring_of(*numbers)
    random.Random(1).shuffle(numbers)
    assert owners(first) == owners(ring_of(*numbers))


@given(st.sets(st.integers(0, 12), min_size=1, max_size=8), st.integers(20, 30))
def test_a_matcher_that_comes_or_goes_moves_its_own_share_only(
    numbers: set[int], newcomer: int
) -> None:
    ring = ring_of(*numbers)
    before = owners(ring)
    assert ring.learn(status(newcomer))
    during = owners(ring)
    name = b"matcher-%d" % newcomer
    assert {key for key in KEYS if before[key] != during[key]} == {
        key for key in KEYS if during[key] == name
    }
    assert ring.forget(name)
    assert owners(ring) == before


def test_shares_are_even_and_make_one() -> None:
    shares = ring_of(*range(16)).shares()
    assert sum(shares.values()) == pytest.approx(1.0)
    assert max(shares.values()) < 1.5 / 16
    assert min(shares.values()) > 0.5 / 16


def test_the_next_owner_is_who_takes_over() -> None:
    ring = ring_of(*range(4))
    for key in KEYS:
        first, second = ring.owners(key, 2)
        assert first != second
    pairs = {key: ring.owners(key, 2) for key in KEYS}
    ring.forget(b"matcher-2")
    for key, (first, second) in pairs.items():
        assert ring.owners(key)[0] == (second if first == b"matcher-2" else first)
    assert len(ring.owners(b"key", 99)) == 3


def test_epochs_count_what_moves() -> None:
    ring = ring_of(1, 2)
    assert ring.epoch == 2
    assert not ring.learn(Status(b"matcher-1", b"elsewhere:1", vnodes=status(1).vnodes))
    assert not ring.forget(b"nobody")
    assert ring.epoch == 2
    assert [member.bind_address for member in ring.members] == [b"elsewhere:1", b"127.0.0.1:7002"]


def test_a_ring_travels_in_status_messages() -> None:
    ring = ring_of(*range(5))
    other = Ring()
    runs = b"".join(member.encode() for member in ring.members)
    for message in Assembler(3).receive(runs, 0.0):
        other.learn(decode(message))
    assert owners(other) == owners(ring)


def test_an_empty_ring_owns_nothing() -> None:
    assert Ring().owners(b"key") == []
    assert Ring().shares() == {}


def test_limits() -> None:
    ring = Ring()
    with pytest.raises(Malformed, match="virtual nodes"):
        ring.learn(Status(b"m"))
    with pytest.raises(Malformed, match="virtual nodes"):
        ring.learn(status(1, 4097))
    for number in range(MAX_MATCHERS):
        ring._members[b"m%d" % number] = status(0, 1)
    with pytest.raises(Malformed, match="at most"):
        ring.learn(status(1, 1))
