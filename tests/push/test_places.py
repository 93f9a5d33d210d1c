"""Lists of places, what was sent lately, tokens: the small pure parts of the push plane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Denied
from homing.push.outbox import Outbox, Parcel, Turnstile
from homing.push.places import by_connector, places
from homing.push.recent import Recent
from homing.push.tokens import Keyring
from homing.testing import EPOCH

clients = st.lists(st.binary(min_size=12, max_size=12), min_size=1, max_size=30).flatmap(
    lambda some: st.integers(1, 6).map(lambda times: some * times)
)
connectors = st.sampled_from([b"conn0001", b"conn0002", b"\x00" * 8, b"conn0003"])


@given(
    st.lists(st.tuples(st.binary(min_size=12, max_size=12), connectors), max_size=20).flatmap(
        lambda some: st.integers(1, 12).map(lambda times: some * times)
    )
)
def test_places_are_grouped_by_connector_in_their_order(
    entries: list[tuple[bytes, bytes]],
) -> None:
    expected: dict[bytes, bytes] = {}
    for client, connector in entries:
        expected[connector] = expected.get(connector, b"") + client
    assert by_connector(b"".join(c + k for c, k in entries)) == expected


@given(clients, connectors)
def test_clients_become_places_and_back(ids: list[bytes], connector: bytes) -> None:
    blob = b"".join(ids)
    listed = places(blob, connector)
    assert listed == b"".join(client + connector for client in ids)
    assert by_connector(listed) == {connector: blob}


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 9), min_size=1)), max_size=30))
def test_recent_lets_each_client_through_once(steps: list[tuple[int, set[int]]]) -> None:
    recent = Recent()
    gone: set[tuple[int, int]] = set()
    for message, wanted in steps:
        blob = b"".join(n.to_bytes(12, "big") for n in sorted(wanted))
        fresh = recent.fresh(bytes([message]) * 12, blob)
        recent.add(bytes([message]) * 12, fresh)
        expected = [n for n in sorted(wanted) if (message, n) not in gone]
        assert fresh == b"".join(n.to_bytes(12, "big") for n in expected)
        gone.update((message, n) for n in expected)


def test_recent_forgets_one_client_of_one_publication() -> None:
    recent = Recent(max_bytes=60)
    one, two, three = (bytes([n]) * 12 for n in range(3))
    recent.add(b"message", one + two + three)
    recent.forget(b"message", two)
    recent.forget(b"message", b"stranger" * 2)
    recent.forget(b"another", one)
    assert recent.fresh(b"message", one + two + three) == two
    for client in (one, three):
        recent.forget(b"message", client)
    assert len(recent) == 0
    for name in (b"a", b"b", b"c", b"d", b"e"):  # what is forgotten takes no room
        recent.add(name, one)
    assert len(recent) == 5


def test_recent_is_bounded_by_number_and_bytes() -> None:
    recent = Recent(max_ids=10, max_bytes=1000)
    for number in range(100):
        recent.add(number.to_bytes(12, "big"), bytes(12))
    assert len(recent) == 10
    recent.add(b"big", bytes(1200))
    recent.add(b"small", bytes(12))
    assert len(recent) == 1
    assert recent.fresh(b"small", bytes(12)) == b""


def test_an_outbox_counts_its_bytes_and_ignores_foreign_acks() -> None:
    box = Outbox(b"conn0001")
    for number in range(3):
        box.add(Parcel(bytes([number]) * 12, b"payload", b"{}", bytes(24)))
    assert (len(box), box.held) == (3, 3 * 33)
    assert box.acked(bytes([1]) * 12, bytes(12)) is None  # a part of the parcel
    assert box.acked(bytes([9]) * 12, bytes(24)) is None
    assert box.acked(bytes([1]) * 12, bytes(24)) is not None
    assert [parcel.message_id[0] for parcel in box] == [0, 2]
    assert box.held == 2 * 33


def test_a_turnstile_opens_for_the_one_it_refused_first() -> None:
    gate = Turnstile()
    assert not gate.blocks(b"way", b"1")
    gate.refuse(b"way", b"1")
    gate.refuse(b"way", b"2")
    assert gate.blocks(b"way", b"2")
    assert not gate.blocks(b"other", b"2")
    assert not gate.blocks(b"way", b"1")
    assert not gate.blocks(b"way", b"2")


def test_tokens_are_checked_against_every_key() -> None:
    old, both, new = Keyring([b"old"]), Keyring([b"new", b"old"]), Keyring([b"new"])
    stamp = int(EPOCH)
    for issuer, checker in ((old, both), (both, both), (both, new)):
        checker.check("c", stamp, issuer.issue("c", stamp), EPOCH)
    with pytest.raises(Denied, match="not this client's"):
        new.check("c", stamp, old.issue("c", stamp), EPOCH)


@pytest.mark.parametrize(
    ("client", "stamp", "wall", "why"),
    [
        ("other", 0, 0.0, "not this client's"),
        ("c", 0, 301.0, "too old"),
        ("c", 61, 0.0, "from the future"),
    ],
)
def test_a_token_is_for_one_client_and_a_short_time(
    client: str, stamp: int, wall: float, why: str
) -> None:
    keys = Keyring([b"key"])
    token = keys.issue("c", int(EPOCH) + stamp)
    with pytest.raises(Denied, match=why):
        keys.check(client, int(EPOCH) + stamp, token, EPOCH + wall)


def test_a_token_is_the_hmac_of_the_protocol() -> None:
    # printf '0123456789abcdef01234567.1700000000' | openssl dgst -sha256 -hmac key
    expected = Keyring([b"key"]).issue("0123456789abcdef01234567", 1700000000)
    assert len(expected) == 64
    assert expected == EXPECTED_TOKEN


def test_a_keyring_has_keys() -> None:
    for keys in ([], [b""], [b"a", b""]):
        with pytest.raises(ValueError, match="at least one key"):
            Keyring(keys)


EXPECTED_TOKEN = "b53159bd109fa0756296b20bf3feb328bcfa7d06bcb67d3403a4c77964f1e604"
