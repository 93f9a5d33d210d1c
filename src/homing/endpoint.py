"""Where to listen or dial: `tcp://host:port`, `host:port`, `ipc://path`, `unix://path`.

IPv6 hosts stand in brackets (`tcp://[::1]:5555`); `*` as a host is every address, port `*` or 0
any free one; `ipc://@name` is an abstract socket, as libzmq has it.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from homing.errors import ConfigError

_PORT = re.compile(r"[0-9]{1,5}")
_HINT = "an endpoint is tcp://HOST:PORT (or HOST:PORT), tcp://[IPv6]:PORT or ipc://PATH"

# The kernel's sun_path holds 108 bytes with its end mark.
MAX_PATH = 107

_REASONS = {
    errno.ECONNREFUSED: "nobody listens there",
    errno.ENOENT: "there is no such socket",
    errno.EHOSTUNREACH: "no way leads there",
    errno.ENETUNREACH: "no way leads there",
    errno.ETIMEDOUT: "no answer",
    errno.ECONNRESET: "it hung up",
    errno.EACCES: "not allowed",
}


class Endpoint(NamedTuple):
    """A parsed endpoint: a path, or a host and a port."""

    host: str
    port: int
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"ipc://{'@' + self.path[1:] if self.path[0] == chr(0) else self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host or "*"
        return f"tcp://{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """The endpoint that a text names; ConfigError says what is wrong with it."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme, rest = "tcp", text
    if scheme in ("ipc", "unix"):
        path = "\0" + rest[1:] if rest.startswith("@") else rest
        if not rest.strip("@") or len(path.encode()) > MAX_PATH:
            raise ConfigError([f"{text!r}: a socket's path has 1 to {MAX_PATH} bytes"], hint=_HINT)
        return Endpoint("", 0, path)
    if scheme != "tcp":
        raise ConfigError(
            [f"{text!r}: homing speaks tcp:// and ipc://, not {scheme}://"], hint=_HINT
        )
    host, colon, port = rest.rpartition(":")
    if not colon or not (port == "*" or (_PORT.fullmatch(port) and int(port) < 65536)):
        raise ConfigError([f"{text!r}: expected host:port with a port from 0 to 65535"], hint=_HINT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError([f"{text!r}: an IPv6 address stands in brackets"], hint=_HINT)
    if not _can_be_asked_for(host):
        raise ConfigError([f"{text!r}: no host can have this name"], hint=_HINT)
    return Endpoint("" if host == "*" else host, 0 if port == "*" else int(port))


def _can_be_asked_for(host: str) -> bool:
    """Whether a resolver can be asked at all: what Python cannot spell for it is no OSError to who dials."""
    try:
        return b"\0" not in host.encode("idna")
    except UnicodeError:
        return False


def why_unreachable(error: Exception) -> str:
    """Why an endpoint could not be reached, in words for a person."""
    number = getattr(error, "errno", None)
    if number is None:  # asyncio puts what several addresses of a host said into one text
        found = re.search(r"\[Errno (-?\d+)\]", str(error))
        number = int(found[1]) if found else None
    if number is not None and number < 0:  # of the resolver's own
        return "there is no such host"
    if isinstance(error, TimeoutError):
        return "no answer"
    return _REASONS.get(number or 0) or getattr(error, "strerror", "") or str(error) or "no answer"
