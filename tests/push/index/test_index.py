"""Index beside oracle: random histories, every field kind, both paths, merges in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from homing.errors import SubscriptionError
from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.subscription import parse_fields
from homing.push.values import Field, Value
from tests.push.index.strategies import attributes, subscriptions

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


@pytest.fixture(params=["kernels", "numpy"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the kernels and with the numpy path that stands in for them."""
    if request.param == "numpy":
        monkeypatch.setattr(compiled, "_loaded", None)
        monkeypatch.setattr(compiled, "load_in_background", lambda: None)
    return str(request.param)


def answers(index: Index, publication: dict[str, Value]) -> list[int]:
    return sorted(index.match(publication).tolist())


class Histories(RuleBasedStateMachine):
    """Adds, removes, replaces, merges and matches, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Index(background=False)
        self.oracle = Oracle()

    @rule(subscription=st.integers(0, 30), fields=subscriptions)
    def replace(self, subscription: int, fields: dict[str, Field]) -> None:
        self.index.replace(subscription, fields)
        self.oracle.replace(subscription, fields)

    @rule(subscription=st.integers(0, 30), fields=subscriptions)
    def add(self, subscription: int, fields: dict[str, Field]) -> None:
        if subscription in self.oracle:
            with pytest.raises(SubscriptionError):
                self.index.add(subscription, fields)
        else:
            self.index.add(subscription, fields)
            self.oracle.add(subscription, fields)

    @rule(subscription=st.integers(0, 30))
    def remove(self, subscription: int) -> None:
        if subscription in self.oracle:
            self.index.remove(subscription)
            self.oracle.remove(subscription)
        else:
            with pytest.raises(SubscriptionError):
                self.index.remove(subscription)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @rule(publication=attributes)
    def match(self, publication: dict[str, Value]) -> None:
        assert answers(self.index, publication) == self.oracle.match(publication)

    @rule(publications=st.lists(attributes, max_size=5))
    def match_batch(self, publications: list[dict[str, Value]]) -> None:
        offsets, ids = self.index.match_batch(publications)
        found = [
            sorted(ids[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(publications))
        ]
        assert found == self.oracle.match_batch(publications)

    @invariant()
    def same_size(self) -> None:
        assert len(self.index) == len(self.oracle)


class NumpyHistories(Histories):
    """The same while the kernels are not there."""

    @initialize()
    def without_kernels(self) -> None:
        self.before = compiled._loaded
        compiled._loaded = None

    def teardown(self) -> None:
        compiled._loaded = self.before

    def compact(self) -> None:
        """Merging needs the kernels; without them everything stays in tails."""


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30)
TestNumpyHistories = NumpyHistories.TestCase
TestNumpyHistories.settings = settings(max_examples=30, stateful_step_count=30)


@given(st.lists(subscriptions, max_size=30), st.lists(attributes, max_size=8))
def test_a_merged_index_answers_as_the_oracle(
    many: list[dict[str, Field]], publications: list[dict[str, Value]]
) -> None:
    index, oracle = Index(background=False), Oracle()
    for number, fields in enumerate(many):
        index.add(number, fields)
        oracle.add(number, fields)
    index.compact()
    offsets, ids = index.match_batch(publications)
    for i, publication in enumerate(publications):
        expected = oracle.match(publication)
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == expected
        assert answers(index, publication) == expected


def random_fields(chance: random.Random) -> dict[str, Field]:
    described: dict[str, object] = {}
    for name in chance.sample("abcdefgh", chance.randint(1, 5)):
        kind = chance.random()
        low = round(chance.random() * 100, chance.randint(0, 2))
        if kind < 0.6:
            described[name] = {"use": 2, "low": low, "high": low + chance.random() * 30}
        elif kind < 0.75:
            described[name] = {"use": 1, "strval": f"s{chance.randint(0, 20)}"}
        elif kind < 0.85:
            described[name] = {"use": 3, "extra": {"in": [chance.randint(0, 9), "s1", True]}}
        elif kind < 0.9:
            described[name] = {"use": 3, "extra": {"ne": f"s{chance.randint(0, 3)}"}}
        elif kind < 0.95:
            described[name] = {"use": 3, "extra": {"prefix": f"s{chance.randint(1, 2)}"}}
        else:
            described[name] = {"use": 3, "extra": {"exists": chance.random() < 0.5}}
    return parse_fields(described)


def random_publication(chance: random.Random) -> dict[str, Value]:
    publication: dict[str, Value] = {}
    for name in chance.sample("abcdefghxyz", chance.randint(3, 11)):
        kind = chance.random()
        if kind < 0.7:
            publication[name] = round(chance.random() * 120, chance.randint(0, 2))
        elif kind < 0.95:
            publication[name] = f"s{chance.randint(0, 25)}"
        else:
            publication[name] = chance.random() < 0.5
    return publication


def churn(index: Index, oracle: Oracle, chance: random.Random, steps: int, ids: int) -> None:
    for _ in range(steps):
        number = chance.randrange(ids)
        if chance.random() < 0.7:
            fields = random_fields(chance)
            index.replace(number, fields)
            oracle.replace(number, fields)
        elif number in oracle:
            index.remove(number)
            oracle.remove(number)


def compare(index: Index, oracle: Oracle, chance: random.Random, count: int) -> None:
    publications = [random_publication(chance) for _ in range(count)]
    offsets, ids = index.match_batch(publications)
    for i, publication in enumerate(publications):
        expected = oracle.match(publication)
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == expected
        if i % 8 == 0:
            assert answers(index, publication) == expected


@pytest.mark.parametrize("background", [False, True])
def test_thousands_of_changes_through_many_merges(background: bool) -> None:
    chance = random.Random(7)
    index, oracle = Index(background=background), Oracle()
    for _ in range(6):
        churn(index, oracle, chance, 2000, 4000)
        compare(index, oracle, chance, 16)
        if not background:
            while index.maintain():
                pass
            compare(index, oracle, chance, 16)
    index.compact()
    compare(index, oracle, chance, 64)
    index.close()


def test_batches_of_like_and_of_unlike_rows(path: str) -> None:
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(21), 800, 700)
    batches: list[list[dict[str, Value]]] = [
        [{"a": 1, "b": 2.5, "c": "s1", "d": True}, {"a": 2, "b": 3, "c": "s2", "d": False}],
        [{"a": 1, "b": "x"}, {"a": "s1", "b": 7}, {"a": True, "b": 7}],
        [{"a": 1}, {"b": 1}, {}],
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": 2.5}],
        [{"a": 1, "b": 2.5}, {"b": 1.5, "a": 3}],
        [{"a": 2**63, "b": 1}, {"a": -(2**63), "b": 1}],
        [{}, {}],
        [],
    ]
    for rows in batches:
        offsets, ids = index.match_batch(rows)
        found = [sorted(ids[offsets[i] : offsets[i + 1]].tolist()) for i in range(len(rows))]
        assert found == oracle.match_batch(rows)


def test_empty_subscriptions_match_nothing(path: str) -> None:
    index = Index(background=False)
    index.add(1, {})
    assert 1 in index
    assert len(index) == 1
    assert answers(index, {"a": 1}) == []
    index.remove(1)
    assert 1 not in index


@pytest.mark.parametrize("identity", [-1, 2**64])
def test_ids_have_64_bits(identity: int) -> None:
    index = Index(background=False)
    with pytest.raises(SubscriptionError, match="64 bits"):
        index.add(identity, parse_fields({"a": {"use": 1, "strval": "x"}}))
    assert len(index) == 0


def test_the_largest_ids_come_back(path: str) -> None:
    index = Index(background=False)
    for identity in (0, 2**53 + 1, 2**63, 2**64 - 1):
        index.add(identity, parse_fields({"a": {"use": 1, "strval": "x"}}))
    assert answers(index, {"a": "x"}) == [0, 2**53 + 1, 2**63, 2**64 - 1]


def test_one_subscription_of_200_attributes(path: str) -> None:
    index = Index(background=False)
    fields = parse_fields({f"a{i}": {"use": 2, "low": i, "high": i + 1} for i in range(200)})
    index.add(5, fields)
    publication: dict[str, Value] = {f"a{i}": i + 0.5 for i in range(200)}
    assert answers(index, publication) == [5]
    if path == "kernels":
        index.compact()
        assert answers(index, publication) == [5]
    assert answers(index, {**publication, "a199": 0}) == []
    assert answers(index, {name: publication[name] for name in list(publication)[1:]}) == []


def test_many_subscriptions_on_the_same_value_are_one_entry() -> None:
    index = Index(background=False)
    fields = parse_fields({"city": {"use": 1, "strval": "Paris"}})
    for identity in range(20_000):
        index.add(identity, fields)
    index.compact()
    index.remove(77)
    assert answers(index, {"city": "Paris"}) == [i for i in range(20_000) if i != 77]
    assert index.stats().entries == 1
    offsets, ids = index.match_batch([{"city": "Paris"}] * 1000 + [{"city": "Pau"}])
    assert offsets.tolist() == [19_999 * i for i in range(1001)] + [19_999_000]
    assert len(ids) == 19_999_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 2**70])
def test_values_that_cannot_be_compared_are_refused(value: float) -> None:
    index = Index(background=False)
    index.add(1, parse_fields({"a": {"use": 2, "low": 0}}))
    with pytest.raises(SubscriptionError, match="`a`"):
        index.match({"a": value})
    with pytest.raises(SubscriptionError, match="`a`"):
        index.match_batch([{"a": value}])


def test_names_nobody_asked_for_leave_no_trace() -> None:
    index = Index(background=False)
    index.add(1, parse_fields({"a": {"use": 2, "low": 0}}))
    before = index.stats().vocabulary
    for i in range(100):
        assert answers(index, {"a": 1, f"new{i}": "x"}) == [1]
    assert index.stats().vocabulary == before


def test_what_is_no_longer_subscribed_to_is_forgotten() -> None:
    index = Index(background=False)
    keep = parse_fields({"a": {"use": 1, "strval": "kept"}})
    index.add(0, keep)
    for i in range(1, 4000):
        index.add(i, parse_fields({f"n{i % 50}": {"use": 1, "strval": f"text {i}"}}))
    before = index.stats().vocabulary
    for i in range(1, 4000):
        index.remove(i)
    index.compact()
    assert index.stats().vocabulary < 20 < before
    assert answers(index, {"a": "kept"}) == [0]
    index.add(1, parse_fields({"n1": {"use": 1, "strval": "text 1"}}))
    assert answers(index, {"a": "kept", "n1": "text 1"}) == [0, 1]


@pytest.mark.parametrize("kernels_come", [False, True])
def test_what_was_removed_stays_away_when_the_kernels_come(
    kernels_come: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(31), 1500, 1200)
    index.compact()
    with monkeypatch.context() as patched:
        if kernels_come:
            patched.setattr(compiled, "_loaded", None)
        for number in range(0, 1200, 3):
            if number in oracle:
                index.remove(number)
                oracle.remove(number)
    compare(index, oracle, random.Random(32), 64)


def test_buffers_filled_to_the_last_place() -> None:
    """Every size around the first buffer's: the last match must not be written over."""
    index = Index(background=False)
    wide = parse_fields({"a": {"use": 2, "low": 0, "high": 9}, "b": {"use": 2, "low": 0}})
    for number in range((1 << 14) + 2):
        fields = parse_fields(
            {"a": {"use": 2, "low": -1 - number, "high": 9}, "b": {"use": 2, "low": 2}}
        )
        index.add(number, fields if number % 3 else wide)
    index.compact()
    for size in range((1 << 14) + 2, (1 << 14) - 3, -1):
        index._local.__dict__.clear()  # a thread that starts with small buffers
        assert answers(index, {"a": 5, "b": 3}) == list(range(size))
        index.remove(size - 1)


@pytest.mark.parametrize(
    "fields",
    [
        b'{"a":{"use":2,"low":5,"high":1}}',
        b'{"a":{"use":3,"extra":{"in":[]}},"b":{"use":2,"low":0}}',
    ],
)
def test_what_nothing_satisfies_is_held_and_never_found(fields: bytes) -> None:
    index = Index()
    index.add(1, parse_fields(fields))
    index.add(2, parse_fields(b'{"b":{"use":2,"low":0}}'))
    assert 1 in index
    assert list(index.match({"a": 3, "b": 1})) == [2]
    index.remove(1)
    assert 1 not in index
    index.close()


@pytest.mark.parametrize("count", [2, 10, 700])
def test_boxes_around_everything_are_found_however_many_there_are(count: int) -> None:
    index, oracle = Index(background=False), Oracle()
    for number in range(count):
        # Too many values for boxes, and absence besides: the box around them bounds no lane.
        listed = [100 * number + 2 * k for k in range(40)]
        fields: dict[str, object] = {
            "x": {"use": 3, "extra": {"any": [{"exists": False}, {"in": listed}]}}
        }
        if number % 2:
            fields["y"] = {"use": 2, "low": 0, "high": 1e9}
        index.add(number, parse_fields(fields))
        oracle.add(number, parse_fields(fields))
    index.compact()
    rows: list[dict[str, Value]] = [{"y": 5}, {"x": 4}, {"x": 4, "y": 7}, {}]
    for row in rows:
        assert answers(index, row) == oracle.match(row)
    offsets, ids = index.match_batch(rows * 300)
    for i in range(4 * 300):
        assert sorted(ids[offsets[i] : offsets[i + 1]].tolist()) == oracle.match(rows[i % 4])


@pytest.mark.parametrize(
    ("extra", "value"),
    [
        ({"in": [2**53, 2**53 + 1]}, 2**53),
        ({"in": [2**62, 2**62 + 1, 2**62 + 2]}, 2**62 + 1),
        ({"any": [{"lt": 2**53 + 1}, {"gt": 2**53 + 1}]}, 2**53),
        ({"any": [{"prefix": "p" * 20}, {"in": ["named", True]}]}, "named"),
        ({"any": [{"prefix": "p" * 20}, {"in": ["named", True]}]}, True),
        ({"any": [{"prefix": "p" * 20}, {"prefix": "q" * 21}]}, "q" * 22),
    ],
)
def test_a_subscription_is_found_once_though_its_alternatives_look_alike(
    path: str, extra: object, value: Value
) -> None:
    """As floats, or where there are too many lengths of prefixes, its boxes would overlap."""
    index = Index(background=False)
    for length in range(1, 17):
        index.add(length, parse_fields({"a": {"use": 3, "extra": {"prefix": "x" * length}}}))
    index.add(99, parse_fields({"a": {"use": 3, "extra": extra}}))
    assert list(index.match({"a": value})) == [99]
    assert list(index.match_batch([{"a": value}])[1]) == [99]


@pytest.mark.parametrize("value", [None, [1], b"x"])
def test_what_is_no_value_is_refused_in_words(value: Any) -> None:
    index = Index(background=False)
    index.add(1, parse_fields(b'{"a":{"use":2,"low":0}}'))
    with pytest.raises(SubscriptionError, match="must be a number"):
        index.match({"a": value})
