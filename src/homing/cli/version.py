"""Print the version of homing and of what it stands on.

Examples:
  homing version
  homing version --json
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Annotated

from cyclopts import Parameter

import homing
from homing.cli.verb import verb

app = verb("version", __doc__)

# What a bug report should name; a part that is not installed is left out.
_PARTS = ("msgspec", "pynacl", "uvloop", "numba", "numpy", "pyarrow", "pyspark")


@app.default
def version(*, json: Annotated[bool, Parameter(help="as JSON")] = False) -> None:
    """Print versions."""
    found = {"homing": homing.__version__, **_stands_on()}
    if json:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return
    print(f"homing {homing.__version__}")
    print("  " + ", ".join(f"{name} {number}" for name, number in _stands_on().items()))


def _stands_on() -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "platform": f"{sys.platform}-{platform.machine()}",
    }
    for part in _PARTS:
        try:
            found[part] = importlib.metadata.version(part)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
