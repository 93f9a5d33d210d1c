"""Who connects to a broker, and how that is proven: flags of every verb that does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from homing.errors import ConfigError

if TYPE_CHECKING:
    from homing.wire.mechanisms import Mechanism


@Parameter(name="*")
@dataclass(frozen=True)
class Credentials:
    """Who asks, and how that is proven."""

    key: Annotated[Path | None, Parameter(help="our key file, for a broker with CURVE")] = None
    broker_key: Annotated[
        str | None,
        # One key in 85 begins with a hyphen.
        Parameter(help="that broker's public key", allow_leading_hyphen=True),
    ] = None
    user: Annotated[str | None, Parameter(help="NAME:PASSWORD, for a broker with PLAIN")] = None

    def mechanism(self) -> Mechanism:
        """What a connection proves itself with."""
        from homing.node.keys import read_keys
        from homing.wire.curve import CurveClient
        from homing.wire.mechanisms import PlainClient
        from homing.wire.z85 import from_z85
        from homing.wire.zmtp import NULL

        if self.user is not None:
            name, _, password = self.user.partition(":")
            return PlainClient(name, password)
        if self.broker_key is None:
            if self.key is not None:
                raise ConfigError(["--key: CURVE needs the broker's public key too: --broker-key"])
            return NULL
        try:
            return CurveClient(from_z85(self.broker_key), read_keys(self.key) if self.key else None)
        except ValueError as error:
            raise ConfigError([f"--broker-key: {error}"]) from None


NOBODY = Credentials()
