"""`python -m fuzz [TARGET…] [--seconds N]`: fuzz the named targets, or every one of them."""

from __future__ import annotations

import argparse
import subprocess
import sys

from fuzz import driver


def main() -> int:
    """One target runs here; several run one after the other, each in its own process."""
    known = driver.targets()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", help=f"one or more of: {', '.join(known)}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    asked = parser.parse_args()
    unknown = sorted(set(asked.target) - set(known))
    if unknown:
        parser.error(f"no such target: {', '.join(unknown)}; there are: {', '.join(known)}")
    names = asked.target or known
    if len(names) == 1:
        driver.run(names[0], asked.seconds)
        return 0
    failed = [name for name in names if _apart(name, asked.seconds)]
    print(f"{len(names) - len(failed)} of {len(names)} targets clean", *failed)
    return 1 if failed else 0


def _apart(name: str, seconds: int) -> int:
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", "fuzz", name, "--seconds", str(seconds)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
