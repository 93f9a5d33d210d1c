"""A matcher's table: subscriptions by client, and whom a publication finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from homing.push.index import Index as RealIndex
from homing.push.index.oracle import Oracle
from homing.push.table import Index, Table
from tests.push.test_matcher import C1, C2, EVERY_N, client_id


def test_a_sync_removes_what_it_does_not_name() -> None:
    table = Table(Oracle())
    for number in range(4):
        table.set(client_id(number), C1, b"default", EVERY_N)
    table.set(client_id(9), C2, b"default", EVERY_N)
    table.begin_sync(C1)
    table.set(client_id(1), C1, b"default", EVERY_N)
    table.set(client_id(2), C1, b"default", b'{"n":{"use":2,"low":5}}')
    table.set(client_id(7), C1, b"default", EVERY_N)
    gone = table.end_sync(C1)
    assert sorted(entry.client for entry in gone) == [client_id(0), client_id(3)]
    assert table.match({"n": 1}) == (3, {C1: client_id(1) + client_id(7), C2: client_id(9)})
    assert len(table) == 4


@pytest.mark.parametrize("make", [Oracle, RealIndex])
def test_what_nothing_satisfies_is_kept_and_finds_nobody(make: Callable[[], Index]) -> None:
    table = Table(make())
    impossible = b'{"n":{"use":2,"low":5,"high":1}}'
    table.set(client_id(1), C1, b"default", EVERY_N)
    assert table.set(client_id(1), C1, b"default", impossible)
    assert not table.set(client_id(1), C1, b"default", impossible)
    assert table.match({"n": 1}) == (0, {})
    assert table.match({}) == (0, {})
    assert table.set(client_id(1), C1, b"default", EVERY_N)
    assert table.match({"n": 1}) == (1, {C1: client_id(1)})
    table.set(client_id(1), C1, b"default", impossible)
    assert table.remove(client_id(1), C1, b"default")
    assert len(table) == 0


def test_removing_all_of_a_client_leaves_nothing() -> None:
    table = Table(Oracle())
    for name in (b"a", b"b"):
        table.set(client_id(1), C1, name, EVERY_N)
    assert not table.set(client_id(1), C1, b"a", EVERY_N)
    assert table.remove(client_id(1), C1, b"")
    assert not table.remove(client_id(1), C1, b"")
    assert (len(table), table.connectors, len(table.index.match({"n": 1}))) == (0, [], 0)
