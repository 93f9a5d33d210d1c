"""Run a scenario over many seeds; on failure, find the smallest fault plan that still fails.

    def scenario(seed: int, faults: FaultPlan) -> None:
        sim = Simulation(seed, faults)
        ...
        sim.run(until=60.0)
        sim.finish()

    def test_broker_under_faults() -> None:
        explore(scenario, seeds=seeds(ci=200, nightly=2000), plan=lambda seed: FaultPlan.random(...))

`HOMING_SIM_SEED` and `HOMING_SIM_FAULTS` replay one seed and one plan: every failure prints
the line to type.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from homing.testing.failure import FAULTS_VARIABLE, SEED_VARIABLE, SimulationFailure
from homing.testing.faults import FaultPlan

Scenario = Callable[[int, FaultPlan], object]
Planner = Callable[[int], FaultPlan]

# A plan of n faults takes at most n rounds of n runs to shrink; a person waits for it.
_SHRINK_RUNS = 200


def seeds(ci: int, nightly: int | None = None, first: int = 0) -> range:
    """How many seeds to run: `ci` of them, or `nightly` under HOMING_TEST_PROFILE=nightly."""
    night = os.environ.get("HOMING_TEST_PROFILE") == "nightly"
    return range(first, first + (nightly if night and nightly is not None else ci))


def explore(scenario: Scenario, seeds: Iterable[int], plan: Planner | None = None) -> int:
    """Run the scenario for every seed with the plan made for it; returns how many ran.

    The first failure is shrunk and raised as it is under the smallest plan found.
    """
    chosen = os.environ.get(SEED_VARIABLE)
    ran = 0
    for seed in [int(chosen)] if chosen else seeds:
        faults = _plan(seed, plan)
        try:
            scenario(seed, faults)
        except Exception:
            smallest = faults if chosen else shrink(scenario, seed, faults)
            scenario(seed, smallest)  # fails again, telling the smaller story
            raise
        ran += 1
    return ran


def shrink(scenario: Scenario, seed: int, plan: FaultPlan) -> FaultPlan:
    """Drop faults one by one, from the last, as long as the scenario still fails."""
    runs = 0
    index = len(plan.faults) - 1
    dropped = False
    while runs < _SHRINK_RUNS and plan.faults:
        if index < 0:
            if not dropped:
                break
            index, dropped = len(plan.faults) - 1, False
        smaller = plan.without(index)
        runs += 1
        if fails(scenario, seed, smaller):
            plan, dropped = smaller, True
        index -= 1
    return plan


def fails(scenario: Scenario, seed: int, plan: FaultPlan) -> bool:
    """Whether the scenario fails under this plan."""
    try:
        scenario(seed, plan)
    except Exception:
        return True
    return False


def _plan(seed: int, plan: Planner | None) -> FaultPlan:
    given = os.environ.get(FAULTS_VARIABLE)
    if given:
        return FaultPlan.from_json(given)
    return plan(seed) if plan is not None else FaultPlan()


__all__ = ["SimulationFailure", "explore", "fails", "seeds", "shrink"]
