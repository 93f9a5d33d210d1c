"""Sweeping a page over a whole batch finds what publications find one by one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.index.kernels import layout as at
from homing.push.index.kernels import sweep as sweep_kernels
from homing.push.index.reader import CHUNK
from homing.push.subscription import parse_fields
from homing.push.values import Field, Value
from tests.push.index.strategies import attributes, subscriptions

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
TEXTS = ("", "a", "ab", "abc", "b", "Paris")


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def described(chance: random.Random) -> dict[str, Field]:
    """Ranges wide and narrow, mostly; strings, exclusions, and what only a residual check decides."""
    fields: dict[str, object] = {}
    for name in chance.sample(["x", "y", "z", "price"], chance.randint(1, 4)):
        low = chance.randint(-20, 900) / 2
        fields[name] = {"use": 2, "low": low, "high": low + chance.choice([0, 0.5, 40, 500])}
    if chance.random() < 0.3:
        fields["city"] = {"use": 1, "strval": chance.choice(TEXTS)}
    if chance.random() < 0.1:
        fields["tag"] = {"use": 3, "extra": {"ne": chance.randint(0, 3)}}
    if chance.random() < 0.05:
        fields["big"] = {"use": 2, "low": 2**53 + chance.randint(0, 3)}
    return parse_fields(fields)


def published(chance: random.Random) -> dict[str, Value]:
    row: dict[str, Value] = {
        name: chance.choice([chance.randint(-10, 460), chance.randint(0, 900) / 2])
        for name in ("x", "y", "z", "price")
        if chance.random() < 0.95
    }
    if chance.random() < 0.8:
        row["city"] = chance.choice([*TEXTS, "nobody's"])
    if chance.random() < 0.5:
        row["tag"] = chance.randint(0, 3)
    if chance.random() < 0.2:
        row["big"] = 2**53 + chance.randint(0, 3)
    return row


def swept(index: Index) -> int:
    return int(index.totals[at.SWEPT])


def one_by_one(index: Index, rows: list[dict[str, Value]]) -> list[list[int]]:
    return [sorted(index.match(row).tolist()) for row in rows]


def at_once(index: Index, rows: list[dict[str, Value]]) -> list[list[int]]:
    offsets, ids = index.match_batch(rows)
    return [sorted(ids[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(rows))]


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(200, 1100))
def test_batches_answer_as_single_publications_do(seed: int, count: int) -> None:
    chance = random.Random(seed)
    index, oracle = Index(background=False), Oracle()
    for number in range(1500):
        fields = described(chance)
        index.add(number, fields)
        oracle.add(number, fields)
    rows = [published(chance) for _ in range(count)]
    index.compact()
    for number in chance.sample(range(1500), 100):
        index.remove(number)
        oracle.remove(number)
    found = at_once(index, rows)
    assert swept(index) > 0
    assert found == one_by_one(index, rows)
    for i in chance.sample(range(count), 20):
        assert found[i] == sorted(oracle.match(rows[i]))


@settings(max_examples=25)
@given(st.lists(subscriptions, min_size=1, max_size=12), st.lists(attributes, max_size=12))
def test_whatever_is_asked_and_published_often_enough(
    many: list[dict[str, Field]], rows: list[dict[str, Value]]
) -> None:
    index = Index(background=False)
    for number in range(600):
        wide: dict[str, object] = {"price": {"use": 2, "low": -(10**6) - number}}
        index.add(number, parse_fields(wide))
    for number, fields in enumerate(many, 600):
        index.add(number, fields)
    index.compact()
    alike: list[dict[str, Value]] = [{"price": n, "city": "a"} for n in range(700)]
    batch = [*rows, *alike]
    found = at_once(index, batch)
    assert swept(index) > 0
    assert found == one_by_one(index, batch)


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_pages_that_look_at_different_attributes_are_swept_by_turns(seed: int) -> None:
    chance = random.Random(seed)
    index, oracle = Index(background=False), Oracle()
    for number in range(2400):
        # A page or more of each kind; all are wide, so that every page concerns most of the batch.
        names = ("a", *(("x", "y"), ("y", "z"), ("x",), ("z", "x", "w"))[number % 4])
        low = chance.randint(0, 300)
        ranges = {name: {"use": 2, "low": low, "high": low + 600} for name in names}
        ranges["a"] = {"use": 2, "low": 100 * (number % 4), "high": 100 * (number % 4) + 500}
        index.add(number, parse_fields(ranges))
        oracle.add(number, parse_fields(ranges))
    rows: list[dict[str, Value]] = [
        {name: chance.randint(0, 900) for name in "axyzw" if chance.random() < 0.9}
        for _ in range(1000)
    ]
    index.match_batch(rows)
    index.compact()
    (block,) = index._paged
    at_page = block[int(block[at.PAGEAT]) :][: int(block[at.PAGES])] + block[at.PAGE]
    heads = {
        tuple((block[begin + at.LINE + 1 :][: at.MAX_DIMENSIONS] & 0xFFFFFFFF).tolist())
        for begin in at_page.astype(int).tolist()
    }
    assert len(heads) > 1, "no two kinds of pages"
    before = swept(index)
    found = at_once(index, rows)
    assert swept(index) > before + 1
    assert found == one_by_one(index, rows)
    for i in chance.sample(range(len(rows)), 20):
        assert found[i] == sorted(oracle.match(rows[i]))


def test_what_goes_through_the_pages_together_can_be_swept() -> None:
    assert sweep_kernels.MOST == CHUNK


def test_more_to_be_asked_than_there_is_room_for() -> None:
    index = Index(background=False)
    for number in range(1200):
        # Two subscribers each, so that no record is certain of its entry.
        index.add(number, parse_fields({"x": {"use": 2, "low": -1 - number // 2}}))
    index.compact()
    rows: list[dict[str, Value]] = [{"x": n} for n in range(1024)]
    offsets, ids = index.match_batch(rows)
    assert swept(index) > 0
    assert [sorted(ids[a:b].tolist()) for a, b in pairwise(offsets.tolist())] == [
        list(range(1200))
    ] * len(rows)


def test_few_publications_and_those_with_many_attributes_are_not_turned_round() -> None:
    index = Index(background=False)
    for number in range(1000):
        index.add(number, parse_fields({f"x{number % 100}": {"use": 2, "low": number}}))
    index.compact()
    few: list[dict[str, Value]] = [{"x1": 500}] * 8
    many: list[dict[str, Value]] = [dict.fromkeys((f"x{n}" for n in range(100)), 500)] * 300
    for rows in (few, many):
        assert at_once(index, rows) == one_by_one(index, rows)
    assert swept(index) == 0
