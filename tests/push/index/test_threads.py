"""Kernels that come late, merges beside matching, readers in other threads."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from homing.push.index.reader import Reader
from homing.push.subscription import parse_fields
from tests.push.index.test_index import answers, churn, compare, random_publication

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def test_the_first_match_does_not_wait_for_a_compiler() -> None:
    """In a fresh process numba is not even imported when the first match is answered."""
    code = """
import sys
from homing.push.index import Index
from homing.push.index import kernels
from homing.push.subscription import parse_fields
kernels._import_cached = lambda: __import__("time").sleep(60)  # a very slow compiler
index = Index()
for i in range(3000):
    index.add(i, parse_fields({"a": {"use": 2, "low": i, "high": i + 10}}))
print(sorted(index.match({"a": 100}).tolist()) == list(range(90, 101)), "numba" in sys.modules)
index.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_importing_the_index_needs_no_event_loop_and_no_compiler() -> None:
    code = (
        "import sys, homing.push.index; "
        "print(*[m for m in ('asyncio', 'numba', 'zmq', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_readers_see_whole_answers_while_the_writer_writes() -> None:
    """What is never touched always matches; ids that never existed never do."""
    compiled.load()
    index = Index()
    always = parse_fields({"a": {"use": 2, "low": 0, "high": 1000}})
    for identity in range(1000):
        index.add(identity, always)
    failures: list[str] = []
    stop = threading.Event()

    def read() -> None:
        chance = random.Random(5)
        while not stop.is_set():
            row = {**random_publication(chance), "a": 7}
            found = index.match(row).tolist()
            if sorted(identity for identity in found if identity < 1000) != list(range(1000)):
                failures.append("one that was always there is missing or came twice")
            if any(identity >= 6000 for identity in found):
                failures.append("one that was never there was found")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    oracle = Oracle()
    chance = random.Random(6)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline and not failures:
        _churn_above(index, oracle, chance)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert failures == []
    for identity in range(1000):
        oracle.add(identity, always)
    compare(index, oracle, chance, 20)
    index.close()


def _churn_above(index: Index, oracle: Oracle, chance: random.Random) -> None:
    for _ in range(200):
        identity = 1000 + chance.randrange(5000)
        low = chance.random() * 100
        fields = parse_fields({"a": {"use": 2, "low": low, "high": low + 5}, "b": {"use": 2}})
        if identity in oracle and chance.random() < 0.4:
            index.remove(identity)
            oracle.remove(identity)
        else:
            index.replace(identity, fields)
            oracle.replace(identity, fields)


def test_background_merges_catch_up() -> None:
    compiled.load()
    index, oracle = Index(), Oracle()
    churn(index, oracle, random.Random(8), 6000, 100_000)
    deadline = time.monotonic() + 60
    while index.stats().pages == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert index.stats().pages > 0
    compare(index, oracle, random.Random(9), 20)
    index.close()


def test_a_closed_index_still_answers() -> None:
    index = Index()
    index.add(1, parse_fields({"a": {"use": 1, "strval": "x"}}))
    index.close()
    assert answers(index, {"a": "x"}) == [1]
    index.add(2, parse_fields({"a": {"use": 1, "strval": "x"}}))
    assert answers(index, {"a": "x"}) == [1, 2]


def test_a_failed_merge_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.load()
    index, oracle = Index(background=False), Oracle()
    churn(index, oracle, random.Random(12), 1500, 1000)

    def no_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("homing.push.index.build.paged_block", no_memory)
        with pytest.raises(MemoryError):
            index.compact()
    compare(index, oracle, random.Random(13), 20)
    churn(index, oracle, random.Random(14), 300, 1000)
    index.compact()
    compare(index, oracle, random.Random(15), 20)


def test_a_match_sees_a_replaced_subscription_as_it_was_or_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replaced between two looks, the old one is dead and the new one in a tail that came later."""
    index = Index(background=False)
    fields = parse_fields({"a": {"use": 2, "low": 0}})
    index.add(1, fields)
    look, undisturbed = Reader.match_row, [False]

    def disturbed(self: Reader, *seen: Any) -> Any:
        if not undisturbed[0]:
            undisturbed[0] = True
            index.remove(1)
            index._freeze(0, 0)
            index.add(1, fields)
        return look(self, *seen)

    monkeypatch.setattr(Reader, "match_row", disturbed)
    compiled.load()
    assert answers(index, {"a": 5}) == [1]
    assert index.stats().matches == 1


def test_a_match_beside_a_writer_answers_as_the_index_was_at_one_moment() -> None:
    """Two are moved to and fro, the new one always added before the old one goes."""
    compiled.load()
    index = Index()
    fields = parse_fields({"a": {"use": 2, "low": 0}})
    for number in range(2000):
        index.add(number, parse_fields({"a": {"use": 2, "low": -number, "high": -1}}))
    index.add(10_000, fields)
    stop = threading.Event()
    wrong: list[list[int]] = []

    def read() -> None:
        while not stop.is_set():
            found = answers(index, {"a": 5})
            if len(found) not in (1, 2) or found[-1] - found[0] > 1:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(10_000, 60_000):
        index.add(number + 1, fields)
        index.remove(number)
        if wrong:
            break
    stop.set()
    for reader in readers:
        reader.join(30)
    index.close()
    assert wrong == []


@pytest.mark.parametrize("columns", [False, True])
def test_each_answer_of_a_batch_beside_a_writer_is_of_one_moment(columns: bool) -> None:
    """As with single ones: replaced again and again, it is found once, whoever asks meanwhile."""
    compiled.load()
    index = Index()
    fields = [parse_fields({"a": {"use": 2, "low": low}}) for low in (0, -1)]
    for number in range(2000):
        index.add(number, parse_fields({"a": {"use": 2, "low": -number, "high": -1}}))
    index.add(10_000, fields[0])
    stop, looks = threading.Event(), [0]
    wrong: list[list[int]] = []

    def read() -> None:
        while not stop.is_set():
            if columns:
                offsets, ids = index.match_columns({"a": np.full(100, 5.0)})
            else:
                offsets, ids = index.match_batch([{"a": 5}] * 100)
            looks[0] += 1
            found = [ids[a:b].tolist() for a, b in pairwise(offsets)]
            wrong.extend(one for one in found if one != [10_000])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    changes = 0
    while (changes < 20_000 or looks[0] < 20) and not wrong:
        index.replace(10_000, fields[changes % 2])
        changes += 1
    stop.set()
    for reader in readers:
        reader.join(30)
    index.close()
    assert wrong == []


def test_the_compiler_leaves_standard_output_alone() -> None:
    """It works in a thread: what it puts in place of sys.stdout and back may have been closed meanwhile."""
    code = """
import sys
from homing.push.index import kernels
from numba.core import errors

sys.exit(hasattr(errors, "ColorShell"))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
