"""Fault plans are values: they survive JSON, come from seeds, and stay in their time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.testing import Crash, FaultPlan, Pause, Simulation

NODES = ["a", "b", "c"]


@given(st.integers(0, 2**63), st.integers(1, 5), st.floats(1.0, 200.0))
def test_a_random_plan_survives_json_and_is_over_in_time(
    seed: int, many: int, until: float
) -> None:
    nodes = [f"n{i}" for i in range(many)]
    plan = FaultPlan.random(seed, nodes, until)
    assert FaultPlan.from_json(plan.to_json()) == plan
    assert FaultPlan.random(seed, nodes, until) == plan
    for fault in plan.faults:
        lasts = getattr(fault, "lasts", 0.0) or getattr(fault, "down", 0.0) or 0.0
        assert fault.at >= 0.0
        assert fault.at + lasts <= until + 0.002  # rounded to the millisecond
        assert set(fault.nodes()) <= set(nodes)


def test_every_kind_comes_up() -> None:
    kinds = {
        type(fault) for seed in range(50) for fault in FaultPlan.random(seed, NODES, 60.0).faults
    }
    assert len(kinds) == 9


def test_kinds_can_be_chosen() -> None:
    plan = FaultPlan.random(1, NODES, 500.0, kinds=[Crash, Pause])
    assert {type(fault) for fault in plan.faults} == {Crash, Pause}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[{"fault": "crash", "node": "a"}]', "missing required field `at`"),
        ('[{"fault": "earthquake", "at": 1}]', "Invalid value 'earthquake'"),
        ('[{"fault": "pause", "at": "x", "node": "a", "lasts": 1}]', r"\$\[0\]\.at"),
        (
            '[{"fault": "skew", "at": 1, "node": "a", "seconds": 1, "typo": 2}]',
            "unknown field `typo`",
        ),
        ("[", "truncated"),
    ],
)
def test_a_broken_plan_says_where(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        FaultPlan.from_json(text)


def test_without_drops_one() -> None:
    one, two = Crash(at=1.0, node="a"), Pause(at=2.0, node="b", lasts=1.0)
    assert FaultPlan((one, two)).without(0) == FaultPlan((two,))


def test_a_plan_for_nodes_that_are_not_there_is_refused() -> None:
    sim = Simulation(faults=FaultPlan((Crash(at=1.0, node="ghost"),)))
    with pytest.raises(ValueError, match="ghost"):
        sim.run(until=2.0)
