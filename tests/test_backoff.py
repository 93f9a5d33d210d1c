"""Pauses double, are cut at random, and start again after success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.backoff import Backoff


def test_pauses_double_up_to_the_last() -> None:
    backoff = Backoff(lambda: 0.0, 0.1, 1.0)
    assert [round(backoff.pause(), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.pause() == 0.1


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30))
def test_jitter_takes_up_to_half_and_never_more(draws: list[float]) -> None:
    values = iter(draws)
    backoff = Backoff(lambda: next(values), 0.1, 1.0)
    plain = Backoff(lambda: 0.0, 0.1, 1.0)
    for _ in draws:
        whole = plain.pause()
        assert whole / 2 <= backoff.pause() <= whole
