"""The users file of a broker that runs: read again on SIGHUP.

Rights are in force at once. Whoever is gone from the file, or has another key or password there, is cut off; a
worker that may no longer serve is sent away, and what it held goes to another.
"""

from __future__ import annotations

from collections.abc import Sequence

from homing.config import Config
from homing.errors import ConfigError
from homing.node.host import Host
from homing.node.keys import Keyring
from homing.node.routers import Routers
from homing.node.zmtp import ZmtpPlug
from homing.service.switch import Broker
from homing.wire.mechanisms import Mechanism


class Door:
    """Who may come in, as the users file says; it may say otherwise while the broker runs."""

    def __init__(
        self,
        host: Host,
        config: Config,
        broker: Broker,
        keyring: Keyring,
        routers: Routers | None,
        listening: Sequence[str],
    ) -> None:
        """`listening`: the plugs that others come in by."""
        self._host = host
        self._config = config
        self._broker = broker
        self._keyring = keyring
        self._routers = routers
        self._listening = listening

    def read_again(self) -> None:
        """All of the file is in force, or nothing of it: ConfigError, and all stays as it was."""
        fresh = Keyring.load(self._config.security)
        if not fresh.users:  # rather half written than meant: everybody would be cut off
            raise ConfigError([f"{self._config.security.users_file} names nobody"])
        locks = self._locks(fresh)
        if self._routers is not None:
            self._routers.allow(fresh.access)
        for plug, mechanism in locks.items():
            plug.mechanism = mechanism
        revoked, self._keyring = self._keyring.revoked(fresh), fresh
        self._broker.allow(fresh.access, self._host.now())
        for link in [link for title in self._listening for link in self._host.plugs[title].links]:
            # One that is about to show an old key comes again, as everybody does.
            if not link.open or link.user in revoked or not self._broker.may_stay(link):
                link.lose("its user may no longer be here")

    def _locks(self, fresh: Keyring) -> dict[ZmtpPlug, Mechanism]:
        """What connections begin with from now on, both ways."""
        own = self._config.service.name
        mechanisms = dict.fromkeys(self._listening, fresh.server())
        for name in self._broker.federation.peers:
            peer = name.decode()
            ours = fresh.client(peer, own)
            mechanisms |= {f"cloudbe/{peer}": ours, f"statefe/{peer}": ours}
        plugs = self._host.plugs
        return {
            plug: mechanism
            for title, mechanism in mechanisms.items()
            if isinstance(plug := plugs[title], ZmtpPlug)
        }
