"""Boxes that go by: what libsodium sealed is found genuine, and nothing else is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.bindings import crypto_box_afternm

from homing.wire.boxes import TAG_BYTES, PassingBox

KEYS = st.binary(min_size=32, max_size=32)
NONCES = st.binary(min_size=24, max_size=24)
SEALED = st.one_of(st.binary(min_size=1, max_size=80), st.integers(100, 5000).map(bytes))


def passing(key: bytes, nonce: bytes, box: bytes, cuts: list[int]) -> PassingBox:
    found = PassingBox(key, nonce, box[:TAG_BYTES], box[TAG_BYTES])
    rest = box[TAG_BYTES:]
    edges = [0, *sorted(cut % (len(rest) + 1) for cut in cuts), len(rest)]
    for start, end in pairwise(edges):
        found.feed(rest[start:end])
    return found


@given(KEYS, NONCES, SEALED, st.lists(st.integers(0, 5000), max_size=8))
def test_what_was_sealed_is_genuine_however_it_comes(
    key: bytes, nonce: bytes, plain: bytes, cuts: list[int]
) -> None:
    found = passing(key, nonce, crypto_box_afternm(plain, nonce, key), cuts)
    assert found.genuine()
    assert found.first == plain[0]


@given(KEYS, NONCES, SEALED, st.data())
def test_one_changed_bit_is_enough(
    key: bytes, nonce: bytes, plain: bytes, data: st.DataObject
) -> None:
    box = bytearray(crypto_box_afternm(plain, nonce, key))
    box[data.draw(st.integers(0, len(box) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert not passing(key, nonce, bytes(box), []).genuine()


@pytest.mark.parametrize("change", [lambda box: box[:-1], lambda box: box + b"\0"])
def test_a_box_that_was_cut_or_made_longer(change: object) -> None:
    assert callable(change)
    box = crypto_box_afternm(bytes(50), bytes(24), bytes(32))
    assert not passing(bytes(32), bytes(24), change(box), []).genuine()
