"""Which packages homing's extras bring: for hints, for `homing doctor`, and before a node starts."""

from __future__ import annotations

CLIENT = ("msgspec", "nacl", "cyclopts", "rich")
SERVER = (
    "numba",
    "numpy",
    "prometheus_client",
    "pyarrow",
    "starlette",
    "structlog",
    "uvicorn",
    "uvloop",
    "websockets",
)
SPARK = ("pyspark", "pandas", "pyarrow", "numba")


def extra_of(package: str) -> str | None:
    """The extra that brings a package; None if none does."""
    return "server" if package in SERVER else "spark" if package in SPARK else None


def absent(parts: tuple[str, ...]) -> list[str]:
    """Those that are not installed."""
    from importlib.util import find_spec

    return [part for part in parts if find_spec(part) is None]


def need_server() -> None:
    """ModuleNotFoundError, before anything is begun, if a part of a node is not installed."""
    for part in absent(SERVER):
        raise ModuleNotFoundError(f"No module named {part!r}", name=part)
