"""Durations, sizes and endpoints as people write them. Pure.

"2500ms", "30s", "5min", "1.5h" and "7d" are seconds; "64KiB", "1MiB" and "2GB" are bytes; a
plain number is already in the setting's own unit.
"""

from __future__ import annotations

import re

from homing.endpoint import MAX_PATH

# As a fraction: 200 / 10**6 is 0.0002, and 200 * 1e-6 is not.
_SECONDS = {
    "us": (1, 10**6),
    "ms": (1, 10**3),
    "s": (1, 1),
    "min": (60, 1),
    "h": (3600, 1),
    "d": (86400, 1),
}
_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_BYTES_BY_LOWER = {unit.lower(): factor for unit, factor in _BYTES.items()}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_TCP = re.compile(r"(?P<head>(?:tcp://)?(?:\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s]+)):(?P<port>\d{1,5})")
_IPC = re.compile(r"(?:ipc|unix)://.+")

MAX_PORT = 65535
# Past every limit that there is: three hundred digits are infinity, which is no number of bytes.
BEYOND = 2.0**64


def parse_seconds(text: str) -> float:
    """ "2500ms" to 2.5; ValueError says what was expected."""
    number, unit = _split(text, 'a duration such as "2500ms", "30s" or "5min"')
    fraction = _SECONDS.get(unit or "s")
    if fraction is None:
        raise ValueError(f"unknown unit {unit!r}; durations take {', '.join(_SECONDS)}")
    return number * fraction[0] / fraction[1]


def parse_bytes(text: str) -> int:
    """ "1MiB" to 1048576; ValueError says what was expected."""
    number, unit = _split(text, 'a size such as "64KiB" or "1MiB"')
    factor = _BYTES_BY_LOWER.get((unit or "B").lower())
    if factor is None:
        raise ValueError(f"unknown unit {unit!r}; sizes take {', '.join(_BYTES)}")
    return round(min(number * factor, BEYOND))


def _split(text: str, expected: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"expected {expected}, got {text!r}")
    return float(found[1]), found[2]


def show_seconds(seconds: float) -> str:
    """The shortest form that parses back to the same number."""
    for unit, (times, parts) in reversed(_SECONDS.items()):
        text = f"{round(seconds * parts / times)}{unit}"
        if text[0] != "0" and parse_seconds(text) == seconds:
            return text
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def show_bytes(size: int) -> str:
    """The largest binary unit that divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def check_endpoint(text: str) -> str:
    """`text` if it names a TCP address or a unix socket; ValueError says what was expected."""
    found = _TCP.fullmatch(text)
    if found is not None and int(found["port"]) <= MAX_PORT:
        return text
    if _IPC.fullmatch(text) is not None:
        if len(text.partition("://")[2].encode()) > MAX_PATH:
            raise ValueError(
                f"a socket's path has at most {MAX_PATH} bytes, the kernel takes no more: {text!r}"
            )
        return text
    raise ValueError(f"expected host:port, tcp://host:port or ipc:///path, got {text!r}")


def shift_port(endpoint: str, offset: int) -> str:
    """The same host at a port `offset` higher; unix sockets and port 0 stay as they are."""
    found = _TCP.fullmatch(endpoint)
    if found is None or int(found["port"]) == 0:
        return endpoint
    port = int(found["port"]) + offset
    if not 0 < port <= MAX_PORT:
        raise ValueError(
            f"port_offset {offset} moves {endpoint} to port {port}, which does not exist"
        )
    return f"{found['head']}:{port}"
