"""What homing is measured beside and with: brokers and load, all built from source here.

`load/` is every client and worker in one C process, `fanout/` a publisher and every subscriber;
`majordomo.c` the yardstick on libzmq, `majordomo.py` the same on pyzmq, `floor.c` what the machine's
sockets cost alone; `matchers/` two matchers. Programs go to build/peers, rebuilt when a source is newer.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

from benchmarks.harness import ROOT, apt_installed

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "peers"


def load_program() -> Path:
    """The load generator; without a C compiler there is nothing to measure with."""
    if not apt_installed("gcc", "gcc"):
        raise RuntimeError("the service benchmark needs a C compiler for its load generator")
    return _compile("load", sorted((HERE / "load").glob("*.c")))


def sink_program() -> Path:
    """Publisher and subscribers of the push benchmark."""
    if not apt_installed("gcc", "gcc"):
        raise RuntimeError("the push benchmark needs a C compiler for its sink")
    return _compile("sink", sorted((HERE / "fanout").glob("*.c")))


def majordomo_program() -> Path | None:
    """The broker on libzmq, or None where libzmq's headers cannot be had."""
    if not Path("/usr/include/zmq.h").exists():
        apt_installed("zmq.h", "libzmq3-dev")
    if not Path("/usr/include/zmq.h").exists() or not which("gcc"):
        return None
    return _compile("majordomo", [HERE / "majordomo.c"], "-lzmq")


def floor_program() -> Path:
    """The least that a Majordomo can cost on this machine."""
    return _compile("floor", [HERE / "floor.c"])


def matcher_library() -> Path:
    """The matchers in C that the index is measured beside, as a shared library."""
    if not apt_installed("gcc", "gcc"):
        raise RuntimeError("the matching benchmark needs a C compiler for its yardsticks")
    return _compile("matchers.so", sorted((HERE / "matchers").glob("*.c")), "-shared", "-fPIC")


def _compile(name: str, sources: list[Path], *libraries: str) -> Path:
    target = BUILD / name
    newest = max(path.stat().st_mtime for path in (*sources, *sources[0].parent.glob("*.h")))
    if not target.exists() or target.stat().st_mtime < newest:
        BUILD.mkdir(parents=True, exist_ok=True)
        print(f"  compiling {name}", file=sys.stderr)
        files = [str(path) for path in sources]
        subprocess.run(["gcc", "-O2", "-o", str(target), *files, *libraries], check=True)
    return target
