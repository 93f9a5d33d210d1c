"""Whether the master or server that a session is asked of answers at all, tried before anything is started for it.

Spark asks a standalone master three times, a minute in all, and a Spark Connect server for ten; it says nothing meanwhile, and
what it raises in the end tells of a context that is stopped. A port that refuses, or a machine that is not there, is
known at once.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from homing.errors import NoSpark, PipelineError

STANDALONE, CONNECT = "spark://", "sc://"
CONNECT_PORT = 15002  # where a server listens that was told nothing else
# For a connection to a machine far away; whoever refuses does so at once.
SECONDS = 5.0
# What Spark takes without a place to look at; of anything else it tells in a stack trace, after a JVM has started.
_OTHERS = re.compile(
    r"local(\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|k8s://.+"
)
FORMS = "local[2], local[*], spark://host:port, yarn, k8s://host:port or sc://host"
HINT = "is it running there? --master 'local[*]' runs the job on this machine"


def check(place: str) -> None:
    """NoSpark if this is a cluster that takes no connection, PipelineError if it is no name of one; others that Spark knows may pass."""
    if not place.startswith((STANDALONE, CONNECT)):
        if not _OTHERS.fullmatch(place):
            raise PipelineError(f"no Spark master is called {place!r}", hint=f"there are {FORMS}")
        return
    why = {}
    for host, port in _places(place):
        try:
            socket.create_connection((host, port), SECONDS).close()
        except OSError as error:
            why[f"{host}:{port}"] = error.strerror or str(error)
        else:
            return
    if why:
        told = "; ".join(f"{each}: {reason}" for each, reason in why.items())
        raise NoSpark(f"no Spark answers at {told}", hint=HINT)


def unanswered(master: str, error: Exception) -> NoSpark | None:
    """What to tell of a session that a standalone master had to give, and did not; Spark stops its context then."""
    if not master.startswith(STANDALONE) or "stopped SparkContext" not in str(error):
        return None
    told = f"{master} took a connection, and no application within a minute"
    return NoSpark(told, hint="is it a Spark master, of the same version? its log says more")


def _places(place: str) -> Iterator[tuple[str, int]]:
    """Host and port of each; a cluster may have several masters."""
    scheme, _, rest = place.partition("://")
    default, form = (None, "spark://host:port")
    if place.startswith(CONNECT):
        default, form = CONNECT_PORT, "sc://host or sc://host:port"
    for each in rest.split(",") if default is None else [rest]:
        try:
            found = urlsplit(f"{scheme}://{each}")
            host, port = found.hostname, found.port or default
        except ValueError:
            host = port = None
        if not host or not port:
            raise PipelineError(f"a place of Spark is {form}, not {place!r}")
        if default is None or not _by_proxy(host):
            yield host, port


def _by_proxy(host: str) -> bool:
    """Whether gRPC would go another way than a socket of ours."""
    return bool(getproxies()) and not proxy_bypass(host)
