"""What a failed simulation tells: what, when, the last steps, and one line to see it again."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homing.testing.simulation import Simulation

SEED_VARIABLE = "HOMING_SIM_SEED"
FAULTS_VARIABLE = "HOMING_SIM_FAULTS"
# Enough to see what led to it, not so much that the summary scrolls away.
_LINES = 40


class SimulationFailure(AssertionError):
    """A role raised, an invariant failed, or time stood still; `cause` is that exception."""

    def __init__(self, sim: Simulation, cause: Exception) -> None:
        self.sim = sim
        self.cause = cause
        super().__init__(self._tell())

    def _tell(self) -> str:
        sim, what = self.sim, f"{type(self.cause).__name__}: {self.cause}"
        plan = [f"  {fault}" for fault in sim.faults.faults] or ["  none"]
        return "\n".join(
            [
                f"seed {sim.seed} failed at {sim.now:.6f} s: {what}",
                f"faults ({len(sim.faults.faults)}):",
                *plan,
                f"the last of {sim.trace.steps} steps:",
                *sim.trace.lines(_LINES),
                f"again: {reproduce(sim.seed, sim.faults.to_json())}",
            ]
        )


def reproduce(seed: int, faults: str) -> str:
    """The command that runs just this seed and plan, in the test that is running."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    command = f"pytest {shlex.quote(test)}" if test else "python …"
    return f"{SEED_VARIABLE}={seed} {FAULTS_VARIABLE}={shlex.quote(faults)} {command}"
