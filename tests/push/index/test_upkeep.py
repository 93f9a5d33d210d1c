"""Changes in the midst of forgetting and of snapshots: every pause that upkeep makes is used."""

from __future__ import annotations

import copy
import random
import threading
from pathlib import Path

import pytest

from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.index.forgetting import SLICE
from homing.push.index.index import LONGEST_WAIT, MAX_MERGES
from homing.push.index.lanes import FIRST_TOKEN, Vocabulary
from homing.push.index.recent import Recent
from homing.push.index.register import Register
from homing.push.index.tail import BOUNDS, ENTRIES, SPARES, Spares, Tail
from homing.push.subscription import parse_fields
from homing.push.values import Field, Value
from tests.push.index.test_index import answers, churn, compare

IDS = 3000


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    compiled.load()


def texts(chance: random.Random) -> dict[str, Field]:
    """Strings, rare names, prefixes and long lists, few enough that many are used again."""
    name = f"n{chance.randrange(40)}"
    text = f"text {chance.randrange(4000)}"
    kind = chance.random()
    if kind < 0.6:
        return parse_fields({name: {"use": 1, "strval": text}})
    if kind < 0.8:
        return parse_fields({f"rare {chance.randrange(3000)}": {"use": 2, "low": 1, "high": 3}})
    if kind < 0.85:
        return parse_fields({name: {"use": 3, "extra": {"prefix": text}}})
    first = 40 * chance.randrange(800)
    listed = [f"list {first + 2 * i}" for i in range(40)]
    return parse_fields({"n0": {"use": 3, "extra": {"in": listed}}})


def churn_texts(index: Index, oracle: Oracle, chance: random.Random, steps: int) -> None:
    for _ in range(steps):
        number = chance.randrange(IDS)
        if number in oracle and chance.random() < 0.6:
            index.remove(number)
            oracle.remove(number)
        else:
            fields = texts(chance)
            index.replace(number, fields)
            oracle.replace(number, fields)


def compare_texts(index: Index, oracle: Oracle, chance: random.Random, count: int) -> None:
    for _ in range(count):
        row: dict[str, Value] = {f"n{i}": f"text {chance.randrange(4000)}" for i in range(40)}
        row |= {f"rare {i}": 2 for i in range(3000)}
        row["n0"] = f"list {40 * chance.randrange(800)}"
        assert answers(index, row) == oracle.match(row)


def test_what_is_used_while_others_are_forgotten_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    index, oracle, chance = Index(background=False), Oracle(), random.Random(1)
    churn_texts(index, oracle, chance, 8000)
    pauses = 0

    def use_the_pause() -> None:
        nonlocal pauses
        forgetting = index._vocabulary._names_used is not None
        pauses += forgetting
        # A merge pauses after every few of three thousand lanes.
        if forgetting or chance.random() < 0.02:
            churn_texts(index, oracle, chance, 40)
            compare_texts(index, oracle, chance, 2)

    monkeypatch.setattr(index, "_breathe", use_the_pause)
    for _ in range(3):
        index.compact()
        compare_texts(index, oracle, chance, 20)
    assert pauses > 3 * 3000 // SLICE


def test_forgetting_keeps_what_is_mentioned_and_little_else() -> None:
    index, oracle, chance = Index(background=False), Oracle(), random.Random(2)
    churn_texts(index, oracle, chance, 6000)
    for number in range(IDS - 10):
        if number in oracle:
            index.remove(number)
            oracle.remove(number)
    index.compact()
    assert index.stats().vocabulary < 10 * 50 + 40
    before = len(index._vocabulary.register.texts)
    churn_texts(index, oracle, chance, 500)
    compare_texts(index, oracle, chance, 20)
    # Numbers that were freed are given out again: churn does not make the register grow.
    assert len(index._vocabulary.register.texts) == before


def test_a_register_holds_back_what_it_freed_until_the_end() -> None:
    register = Register(FIRST_TOKEN)
    numbers = [register.number(f"text {i}") for i in range(4)]
    assert numbers == [3, 4, 5, 6]
    register.begin()
    assert register.number("text 1") == 4
    register.forget([3, 4, 5])
    assert register.number("new") == 7
    register.end()
    assert sorted(register.numbers) == ["new", "text 1", "text 3"]
    assert sorted([register.number("x"), register.number("y")]) == [3, 5]
    again = Register.restore(list(register.texts), FIRST_TOKEN)
    assert again.numbers == register.numbers
    assert again.number("z") == 8


def test_a_snapshot_holds_one_moment_though_everything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, oracle, chance = Index(background=False), Oracle(), random.Random(3)
    churn(index, oracle, chance, 4000, IDS)
    moments: list[Oracle] = []
    moment = index._moment

    def use_the_pause() -> None:
        churn(index, oracle, chance, 25, IDS)

    def copied() -> object:
        moments.append(copy.deepcopy(oracle))
        return moment()

    monkeypatch.setattr(index, "_breathe", use_the_pause)
    monkeypatch.setattr(index, "_moment", copied)
    index.snapshot(tmp_path / "index")
    compare(index, oracle, chance, 40)
    (then,) = moments
    again = Index.load(tmp_path / "index", background=False)
    assert len(again) == len(then)
    compare(again, then, chance, 60)
    churn(again, then, chance, 2000, IDS)
    compare(again, then, chance, 40)
    again.compact()
    compare(again, then, chance, 40)


@pytest.mark.parametrize("seed", range(3))
def test_tails_that_come_in_the_midst_of_a_merge_are_merged_before_it_ends(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("homing.push.index.index.TAILS_WAITING", 1)
    index, oracle, chance = Index(background=False), Oracle(), random.Random(seed)
    churn(index, oracle, chance, 4000, IDS)
    deepest = room = 0

    def use_the_pause() -> None:
        nonlocal deepest, room
        deepest = max(deepest, len(index._removals))
        assert len(index._removals) <= MAX_MERGES
        if room > 0:
            room -= 1
            churn(index, oracle, chance, 300, IDS)
            compare(index, oracle, chance, 1)

    monkeypatch.setattr(index, "_breathe", use_the_pause)
    for merge in (index.maintain, index.compact, index.maintain):
        room = 30
        merge()
        compare(index, oracle, chance, 20)
    assert deepest > 1
    assert not index._busy
    assert not index._removals
    index.compact()
    compare(index, oracle, chance, 40)


def test_a_check_that_is_used_again_is_not_forgotten() -> None:
    vocabulary = Vocabulary()
    listed = {
        first: parse_fields({"a": {"use": 3, "extra": {"in": [first + 2 * i for i in range(40)]}}})
        for first in (0, 1000)
    }
    numbers = {first: vocabulary.boxes(fields)[0][1] for first, fields in listed.items()}
    vocabulary.begin_forgetting()
    vocabulary.boxes(listed[0])
    vocabulary.forget_residuals(list(numbers.values()))
    assert list(vocabulary.residuals) == [numbers[0]]
    vocabulary.end_forgetting()
    assert vocabulary.boxes(listed[1000])[0][1] not in numbers.values()


def test_tails_made_ahead_are_taken_unless_more_room_is_wanted() -> None:
    spares = Spares()
    first = spares.take(1, 1)
    for _ in range(2 * SPARES):
        spares.refill()
    ready = list(spares._ready)
    assert len(ready) == SPARES
    large = spares.take(0, 2 * BOUNDS)
    assert large not in ready
    assert len(large.words) > len(first.words)
    assert [spares.take(ENTRIES, BOUNDS) for _ in ready] == ready[::-1]
    assert len(spares.take(0, 0)) == 0
    assert not spares._ready


def test_where_merged_subscriptions_were_is_forgotten_tail_by_tail() -> None:
    first, second, third = Tail(), Tail(), Tail()
    recent = Recent(first)
    for number in (1, 2):
        recent.places[number] = recent.newest << 32 | first.append(number, [([1, 0, 1], 0)])
    recent.begin(second)
    recent.places[2] = recent.newest << 32 | second.append(2, [([1, 0, 1], 0)])
    recent.merged([first])
    assert list(recent.tails.values()) == [second]
    recent.forget_one()
    recent.forget_one()
    # What came again since is where it came again.
    assert recent.places == {2: 1 << 32}
    recent.begin(third)
    recent.begin(Tail())
    assert [*recent.tails] == [1, 3]


def test_places_are_forgotten_by_the_writer_and_when_there_is_nothing_else_to_do() -> None:
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(4), 4000, IDS)
    while index._due()[2] is not None:
        index.maintain()
    left = len(index._recent.gone)
    assert left > 1
    with index._lock:
        index._freeze(0, 0)
    assert len(index._recent.gone) == left - 1
    while index.maintain():
        pass
    assert not index._recent.gone
    assert not index._recent.places
    compare(index, oracle, random.Random(5), 40)


def test_where_many_tails_wait_some_are_merged_at_once_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homing.push.index.index.TAILS_AT_ONCE", 2)
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(6), 6000, 10 * IDS)
    waiting = len(index._frozen)
    assert waiting > 4
    assert index.maintain()
    assert len(index._frozen) == waiting - 2
    assert index.maintain()
    assert len(index._paged) == 2
    compare(index, oracle, random.Random(7), 20)
    while index.maintain():
        pass
    assert not index._frozen
    compare(index, oracle, random.Random(8), 20)


def test_a_writer_that_is_far_ahead_of_upkeep_waits_once_a_tail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("homing.push.index.index.TAILS_BEHIND", 2)
    index = Index(background=False)
    waits: list[float] = []
    monkeypatch.setattr(index._never, "wait", waits.append)
    fields = parse_fields({"a": {"use": 2, "low": 1, "high": 2}})
    for number in range(3 * ENTRIES):
        index.add(number, fields)
    assert waits == []  # nobody merges, so waiting would not help
    index._thread = threading.current_thread()
    for number in range(3 * ENTRIES, 8 * ENTRIES + 1):
        index.replace(number, fields)
    assert waits == [0.001, 0.002, 0.002, 0.003, 0.003, 0.004][: len(waits)]
    assert len(waits) == 6
    for number in range(8 * ENTRIES + 1, 12 * ENTRIES + 1):
        index.add(number, fields)
    assert max(waits) == LONGEST_WAIT
