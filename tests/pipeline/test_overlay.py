"""A base and what changed since, in a worker, answer as the oracle does for what holds now."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.pipeline import overlay as module
from homing.pipeline.match import Shard, build, shard_of
from homing.pipeline.overlay import Overlay, Overlays, as_table, place_batch
from homing.pipeline.register import Register
from homing.push.index.oracle import matches
from homing.push.places import PLACE_BYTES
from homing.push.subscription import parse_attributes, parse_fields
from tests.pipeline.test_match import some_fields, workload

CONNECTORS = [b"conn0001", b"conn0002"]


def shard(table: pa.Table) -> Shard:
    return shard_of(build(table), table)


def shards(overlay: Overlay, bases: dict[str, pa.Table]) -> list[tuple[Shard, module.Ints]]:
    """As a worker has them."""
    found = [(shard(bases[overlay.base]), overlay.gone)]
    if overlay.added:
        found.append((shard(as_table(overlay.added)), np.empty(0, np.int64)))
    return found


def change(register: Register, chance: random.Random) -> None:
    """One of the things that connectors tell."""
    connector = chance.choice(CONNECTORS)
    place = chance.randrange(8).to_bytes(12, "big") + connector
    name = chance.choice([b"a", b"b"])
    what = chance.random()
    if what < 0.6:
        register.put(place, connector, name, json.dumps(some_fields(chance)).encode())
    elif what < 0.9:
        register.remove(place, name if what < 0.8 else b"")
    else:
        register.begin_sync(connector)
        for _ in range(4):
            change(register, random.Random(chance.random() * 0.5))
        register.end_sync(connector)


def told(register: Register, publications: pa.RecordBatch) -> list[tuple[set[bytes], int]]:
    """By brute force: the places of each publication, and how many subscriptions matched."""
    found: list[tuple[set[bytes], int]] = []
    for text in publications.column("attrs_json").to_pylist():
        try:
            attributes = parse_attributes(text)
        except Exception:
            found.append((set(), 0))
            continue
        hits = [e for e in register if matches(parse_fields(e.fields), attributes)]
        found.append(({entry.place for entry in hits}, len(hits)))
    return found


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([1, 1000]))
def test_overlays_answer_as_the_oracle(seed: int, most: int) -> None:
    chance = random.Random(seed)
    texts = [text or "" for _, text in workload(seed, 30)[0]]
    size = len(texts)
    publications = pa.record_batch(
        {
            "id": pa.array([f"{i:024x}" for i in range(size)]),
            "attrs_json": pa.array(texts),
            "payload": pa.array([b"x"] * size, pa.binary()),
        }
    )
    register, bases = Register(), dict[str, pa.Table]()
    overlays = Overlays(bases.__setitem__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_CHANGES", most)
        for _ in range(3):
            for _ in range(chance.randrange(12)):
                change(register, chance)
            overlay = overlays.current((dict(register.entries), register.take_changes()))
            answer = pa.Table.from_batches(place_batch(shards(overlay, bases), publications))
            assert answer.column("id").to_pylist() == publications.column("id").to_pylist()
            lists = answer.column("places").to_pylist()
            assert overlays.current(None) is overlay
            for listed, matched, (places, hits) in zip(
                lists,
                answer.column("matched").to_pylist(),
                told(register, publications),
                strict=True,
            ):
                each = [listed[i : i + PLACE_BYTES] for i in range(0, len(listed), PLACE_BYTES)]
                assert len(each) == len(set(each))
                assert (set(each), matched) == (places, hits)


def test_large_lists_are_cut_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    everyone = as_table([(n.to_bytes(20, "big"), b'{"n":{"use":2}}') for n in range(4)])
    publications = pa.record_batch(
        {
            "id": pa.array([f"{i:024x}" for i in range(5)]),
            "attrs_json": pa.array(['{"n":1}'] * 5),
            "payload": pa.array([None] * 5, pa.binary()),
        }
    )
    parts = list(place_batch([(shard(everyone), np.empty(0, np.int64))], publications))
    assert [part.num_rows for part in parts] == [1] * 5
    assert all(len(part.column("places")[0].as_py()) == 80 for part in parts)
