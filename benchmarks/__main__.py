"""Run the benchmarks of some or all areas: `python -m benchmarks [AREA …] [--quick]`."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import benchmarks
from benchmarks.harness import Report


def areas() -> list[str]:
    """Every sub-package that can run."""
    return [
        found.name
        for found in pkgutil.iter_modules(benchmarks.__path__)
        if found.ispkg and hasattr(importlib.import_module(f"benchmarks.{found.name}"), "run")
    ]


def main() -> int:
    """Run them one after the other; exit 1 if a goal was missed."""
    known = areas()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("area", nargs="*", help=f"one of: {', '.join(known)} (all by default)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one repeat, no files")
    options = parser.parse_args()
    unknown = set(options.area) - set(known)
    if unknown:
        parser.error(f"no such area: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    missed = 0
    for name in options.area or known:
        area = importlib.import_module(f"benchmarks.{name}")
        report = Report(name, title=(area.__doc__ or name).splitlines()[0], quick=options.quick)
        area.run(report)
        report.finish()
        missed += report.missed
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
