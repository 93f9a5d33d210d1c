"""Profiles: `ci` is what `make test` runs, `nightly` the long form of the same tests."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HOMING_TEST_PROFILE", "ci")
TESTS = Path(__file__).parent
NIGHTLY_ONLY = "nightly profile only (make nightly)"

settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.register_profile(
    "nightly",
    max_examples=5000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(PROFILE)


# Rooms whose files take longest: begun first, so that no process is left alone with them.
LONGEST = ("pipeline", "demo", "examples", "docs", "sim")


def _rank(item: pytest.Item) -> int:
    room = item.path.relative_to(TESTS).parts[0]
    return LONGEST.index(room) if room in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; leave the nightly tests out of the ci profile."""
    items.sort(key=_rank)
    if PROFILE == "nightly":
        return
    skip = pytest.mark.skip(reason=NIGHTLY_ONLY)
    for item in items:
        if item.get_closest_marker("nightly") is not None:  # its folder may be called that too
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that leaves itself out is a failure: what is not run is not proven."""
    report = yield
    if report.skipped and os.environ.get("HOMING_CI") and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr)
        if NIGHTLY_ONLY not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped in CI: {reason}"
    return report
