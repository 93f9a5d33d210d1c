"""A million random publications, index beside oracle, in the nightly run.

In a file of its own, so that it has a worker to itself, and in quarters: whichever fails tells its seed.
The oracle takes half a millisecond for each, a quarter about three minutes.
"""

from __future__ import annotations

import random

import pytest

from homing.push.index import Index, Oracle
from homing.push.index import kernels as compiled
from tests.push.index.test_index import churn, compare

ROUNDS, PUBLICATIONS = 250, 1000


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_a_quarter_of_a_million_random_publications(seed: int) -> None:
    compiled.load()
    chance = random.Random(seed)
    index, oracle = Index(), Oracle()
    churn(index, oracle, chance, 1000, 400)
    for _ in range(ROUNDS):
        churn(index, oracle, chance, 20, 400)
        compare(index, oracle, chance, PUBLICATIONS)
    assert index.publications >= ROUNDS * PUBLICATIONS
    index.close()
