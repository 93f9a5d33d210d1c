"""What `homing doctor` looks at: one small function a check, each with its remedy."""

from __future__ import annotations

import errno
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from homing.cli.parts import CLIENT, SERVER, SPARK, absent
from homing.config import Config
from homing.config.sources import listening
from homing.config.units import show_bytes
from homing.endpoint import parse_endpoint
from homing.errors import NoSpark
from homing.node.listener import knock
from homing.node.volley import Volley

State = Literal["ok", "lacking", "broken"]

MIN_PYTHON = (3, 11)
MIN_JAVA = 17
# A node with a few thousand links; homing raises its soft limit to the hard one by itself.
GOOD_DESCRIPTORS = 65536
MIN_DESCRIPTORS = 256
# Below the first the journal soon refuses work, below the second it cannot start a segment.
GOOD_DISK = 1 << 30
MIN_DISK = 64 << 20
JAVA_SECONDS = 20  # a cold JVM on a busy machine

PROGRAMS = {
    "serf": ('`homing up --cluster` and cluster.membership = "serf"', "apt-get install serf"),
    "chromium": ("homing's own tests of the dashboard", "apt-get install chromium"),
}


class Finding(Struct, frozen=True):
    """The outcome of one check."""

    name: str
    state: State
    found: str
    fix: str = ""
    required: bool = False

    @property
    def stops_homing(self) -> bool:
        return self.required and self.state == "broken"


def examine(config: Config) -> list[Finding]:
    """Every check, in the order a reader would mend things."""
    return [finding for check in CHECKS for finding in check(config)]


def _python(_config: Config) -> Iterator[Finding]:
    fine = sys.version_info >= MIN_PYTHON
    yield Finding(
        "python",
        "ok" if fine else "broken",
        f"{platform.python_implementation()} {platform.python_version()}",
        "" if fine else f"install Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer",
        required=True,
    )


def _packages(_config: Config) -> Iterator[Finding]:
    yield _parts("client", CLIENT, "homing", required=True)
    yield _parts("server", SERVER, "homing[server]")
    yield _parts("spark", SPARK, "homing[spark]")


def _parts(name: str, modules: tuple[str, ...], install: str, required: bool = False) -> Finding:
    lacking = absent(modules)
    if not lacking:
        return Finding(f"{name} packages", "ok", f"all {len(modules)}", required=required)
    return Finding(
        f"{name} packages",
        "broken" if required else "lacking",
        f"without {', '.join(lacking)}",
        f"pip install '{install}'",
        required,
    )


def _java(_config: Config) -> Iterator[Finding]:
    yield find_java()


def find_java() -> Finding:
    """The Java that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    fix = f"install Java {MIN_JAVA} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return Finding("java", "lacking", "none; the Spark pipeline needs it", fix)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    major = 0 if found is None else int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major >= MIN_JAVA:
        return Finding("java", "ok", told.splitlines()[0])
    return Finding("java", "lacking", f"{major or told.strip()[:60]}: too old for Spark", fix)


def need_java() -> None:
    """NoSpark unless Spark would find a Java; Spark itself says so in pages of shell errors."""
    java = find_java()
    if java.state != "ok":
        raise NoSpark(f"java: {java.found}", hint=java.fix)


def _descriptors(_config: Config) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    state: State = "ok" if limit >= GOOD_DESCRIPTORS else "lacking"
    if limit < MIN_DESCRIPTORS:
        state = "broken"
    yield Finding(
        "open files",
        state,
        f"{soft} now, at most {'any number' if limit == sys.maxsize else hard}",
        "" if state == "ok" else "LimitNOFILE=1048576 in the unit, or `ulimit -Hn 1048576` as root",
        required=True,
    )


def _backlog(config: Config) -> Iterator[Finding]:
    try:
        kernel = int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    fine = kernel >= config.node.listen_backlog
    yield Finding(
        "listen backlog",
        "ok" if fine else "lacking",
        f"the kernel keeps {kernel}, node.listen_backlog is {config.node.listen_backlog}",
        "" if fine else f"sysctl net.core.somaxconn={config.node.listen_backlog}",
    )


def _volleys(_config: Config) -> Iterator[Finding]:
    try:
        Volley().close()
    except OSError as error:
        yield Finding(
            "io_uring",
            "lacking",
            f"{error.strerror}: connectors write to every subscriber by itself",
            "sysctl kernel.io_uring_disabled=0, or a container profile that allows it",
        )
    else:
        yield Finding("io_uring", "ok", "connectors write to many subscribers at once")


def _ports(config: Config) -> Iterator[Finding]:
    endpoints = list(listening(config))
    taken = [(name, where) for name, where in endpoints if _is_taken(where)]
    if not taken:
        yield Finding("ports", "ok", f"all {len(endpoints)} default endpoints are free")
        return
    yield Finding(
        "ports",
        "lacking",
        "taken: " + ", ".join(f"{where} ({name})" for name, where in taken),
        "if that is not homing itself: --set node.port_offset=100, or set these endpoints",
    )


def _is_taken(endpoint: str) -> bool:
    path = parse_endpoint(endpoint).path
    if path:
        return knock(path) in (0, errno.EAGAIN)
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _disk(config: Config) -> Iterator[Finding]:
    data = Path(config.node.data).absolute()
    place = next(path for path in (data, *data.parents) if path.exists())
    if not os.access(place, os.W_OK | os.X_OK) or not place.is_dir():
        yield Finding(
            "data directory",
            "broken",
            f"{data}: {place} cannot be written to",
            "set node.data to a directory of yours",
            required=True,
        )
        return
    free = shutil.disk_usage(place).free
    state: State = "ok" if free >= GOOD_DISK else "lacking" if free >= MIN_DISK else "broken"
    yield Finding(
        "data directory",
        state,
        f"{data}, {show_bytes(_rounded(free))} free",
        ""
        if state == "ok"
        else "free space, set node.data elsewhere, or lower journal.retain_bytes",
        required=True,
    )


def _rounded(size: int) -> int:
    """Whole GiB where there is one: the rest is no help to a reader."""
    unit = 1 << 30 if size >= 1 << 30 else 1 << 20
    return size // unit * unit


def _kernel_cache(_config: Config) -> Iterator[Finding]:
    """Compiled matching kernels are kept between runs; without that each start compiles them."""
    if absent(("numba",)):
        return
    asked = os.environ.get("HOMING_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    base = Path(asked) if asked else Path.home() / ".cache"
    place = next(path for path in (base, *base.absolute().parents) if path.exists())
    fine = os.access(place, os.W_OK | os.X_OK)
    yield Finding(
        "kernel cache",
        "ok" if fine else "lacking",
        str(base) if fine else f"{base} cannot be written to: the index compiles at each start",
        "" if fine else "set HOMING_CACHE_DIR to a directory of yours",
    )


def _files(config: Config) -> Iterator[Finding]:
    """Files that the security section names."""
    for key in ("users_file", "key_file", "tls_cert", "tls_key"):
        named = getattr(config.security, key)
        if named and not os.access(named, os.R_OK):
            yield Finding(
                f"security.{key}",
                "broken",
                f"{named} cannot be read",
                f"mend the path ({config.origin(f'security.{key}')}) or its permissions",
                required=True,
            )


def _programs(_config: Config) -> Iterator[Finding]:
    for program, (purpose, fix) in PROGRAMS.items():
        path = shutil.which(program)
        if path:
            yield Finding(program, "ok", path)
        else:
            yield Finding(program, "lacking", f"none; only needed for {purpose}", fix)


CHECKS: tuple[Callable[[Config], Iterable[Finding]], ...] = (
    _python,
    _packages,
    _descriptors,
    _disk,
    _ports,
    _files,
    _backlog,
    _volleys,
    _kernel_cache,
    _java,
    _programs,
)
