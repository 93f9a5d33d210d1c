"""The demo's city is the same every time, and worth watching."""

from __future__ import annotations

from homing.demo.pushes import _expected
from homing.demo.traffic import readings, watches
from homing.push.filters import parse_filter


def test_the_same_seed_gives_the_same_city() -> None:
    assert list(readings(50)) == list(readings(50))
    assert list(readings(50)) != list(readings(50, seed=1))
    assert watches(20) == watches(20)


def test_every_watch_is_a_filter() -> None:
    assert all(len(parse_filter(text)) == 1 for text in watches(300))


def test_some_readings_are_asked_for_and_most_are_not() -> None:
    pairs = _expected(watches(200), 200)
    assert 10 < len(pairs) < 200 * 200 / 10
