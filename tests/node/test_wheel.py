"""The timer wheel against a plain dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.node.wheel import TICK, Wheel

KEYS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.floats(0, 2)),
        st.tuples(st.just("cancel"), KEYS, st.just(0.0)),
        st.tuples(st.just("advance"), st.just(0), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_key_is_due_once_within_a_tick_of_its_deadline(
    steps: list[tuple[str, int, float]],
) -> None:
    wheel = Wheel()
    model: dict[int, float] = {}
    now = 100.0
    for verb, key, amount in steps:
        if verb == "set":
            wheel.set(key, now + amount)
            model[key] = now + amount
        elif verb == "cancel":
            wheel.cancel(key)
            model.pop(key, None)
        else:
            now += amount
            due = wheel.advance(now)
            assert len(due) == len(set(due))
            for ready in due:
                assert isinstance(ready, int)
                assert model.pop(ready) <= now
            assert all(deadline > now - TICK for deadline in model.values())
        assert len(wheel) == len(model)
        assert wheel.next is None if not model else wheel.next is not None


@given(st.lists(st.floats(0.1, 5), min_size=1, max_size=20))
def test_next_is_never_later_than_a_tick_after_the_earliest_deadline(waits: list[float]) -> None:
    wheel = Wheel()
    for key, wait in enumerate(waits):
        wheel.set(key, wait)
    now = 0.0
    due = wheel.next
    assert due is not None
    assert due <= min(waits) + TICK
    while due is not None:
        assert due >= now
        now = due
        wheel.advance(now)
        due = wheel.next
    assert len(wheel) == 0


def test_moving_and_cancelling_for_ever_holds_nothing() -> None:
    wheel = Wheel()
    for turn in range(20_000):
        wheel.set(turn, turn * 0.001 + 60)
        wheel.set("one", turn * 0.001 + 60)
        wheel.cancel(turn)
    assert len(wheel) == 1
    assert sum(len(keys) for keys in wheel._keys.values()) == 1
    assert len(wheel._ticks) <= 20 / TICK + 2, "a heap entry for each tick, not for each key"


def test_a_key_moved_forward_is_due_at_its_new_deadline() -> None:
    wheel = Wheel()
    wheel.set("key", 100.0)
    wheel.set("key", 1.0)
    assert wheel.advance(1.0 + TICK) == ["key"]
    assert wheel.advance(200.0) == []


def test_unknown_keys_are_cancelled_in_peace() -> None:
    Wheel().cancel("nobody")
