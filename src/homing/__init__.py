"""homing: a messaging fabric.

A message goes to one worker that can serve it, or to every subscriber whose interest it
satisfies; all of it is journaled, and Spark reads the journal.

Names are imported when first used: `import homing` alone loads nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing alone would cost 5 ms; type checkers know the name
if TYPE_CHECKING:
    from homing.config import Config as Config
    from homing.errors import HomingError as HomingError
    from homing.errors import Refused as Refused
    from homing.push.publisher import Publisher as Publisher
    from homing.push.subscriber import Subscriber as Subscriber
    from homing.service.client import Client as Client
    from homing.service.worker import Worker as Worker
    from homing.wire.pushed import Gap as Gap
    from homing.wire.pushed import Push as Push

__version__ = "0.1.0"

# Where each public name lives.
_PUBLIC = {
    "Client": "homing.service.client",
    "Config": "homing.config",
    "Gap": "homing.wire.pushed",
    "HomingError": "homing.errors",
    "Publisher": "homing.push.publisher",
    "Push": "homing.wire.pushed",
    "Refused": "homing.errors",
    "Subscriber": "homing.push.subscriber",
    "Worker": "homing.service.worker",
}

__all__ = [
    "Client",
    "Config",
    "Gap",
    "HomingError",
    "Publisher",
    "Push",
    "Refused",
    "Subscriber",
    "Worker",
    "__version__",
]


def __getattr__(name: str) -> object:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'homing' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
