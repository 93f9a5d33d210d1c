"""What a service may be called."""

from __future__ import annotations

from typing import Final

from homing.wire.mdp import MMI

ANY: Final = b"*"
"""The name under which a broker publishes its workers for any service."""


def proper_name(service: bytes) -> bool:
    """Whether it can be a service's name: printable UTF-8, and not the sign for any."""
    try:
        text = service.decode()
    except UnicodeDecodeError:
        return False
    return text.isprintable() and service != ANY and bool(text.strip())


def may_be_served(service: bytes) -> bool:
    """Whether a worker may offer it: what begins with `mmi.` the broker answers itself."""
    return proper_name(service) and not service.startswith(MMI)
