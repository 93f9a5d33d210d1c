"""The authority: issues tokens and sends each subscriber to the least loaded connector (§5.5).

It keeps a link to every connector: one that does not answer is not recommended, and its
heartbeats tell how many sessions it holds. Between two heartbeats the authority counts whom
it has sent there itself, so that a burst of new clients spreads out. Among connectors with equal
load a hash of client and connector decides: whoever comes back is likely to find its session there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1

from homing.errors import Malformed, NoService
from homing.ids import parse_id
from homing.ports import Link, Port
from homing.push.links import PacketRole
from homing.push.tickets import Ticket
from homing.push.tokens import Keyring
from homing.wire import relay


class Authority(PacketRole):
    """A homing.ports.Role. Plug: `connectors` (dials)."""

    role = b"authority"
    dials = frozenset(("connectors",))

    def __init__(
        self,
        port: Port,
        node: bytes,
        wall: Callable[[], float],
        keys: Keyring,
        connectors: Mapping[str, str],
        *,
        tokens: Sequence[bytes] = (),
    ) -> None:
        """`connectors`: where dispatchers (and we) reach one → where subscribers do."""
        super().__init__(port, node, wall, tokens)
        self.keys = keys
        self._connectors = dict(connectors)
        self._sent: dict[Link, int] = {}  # tickets since the last heartbeat told the load
        self._ways: dict[str, Link] = {}
        for endpoint in connectors:
            port.connect(f"connectors/{endpoint}", endpoint)

    def meet(self, connectors: Mapping[str, str], now: float) -> None:
        """These are the connectors from now on."""
        gone = self._connectors.keys() - connectors.keys()
        for endpoint in gone:
            way = self._ways.get(endpoint)
            if way is not None:
                self.hang_up(way, "no longer a member", now)
            self.port.disconnect(f"connectors/{endpoint}", endpoint)
        fresh = connectors.keys() - self._connectors.keys()
        self._connectors = dict(connectors)
        for endpoint in fresh:
            self.port.connect(f"connectors/{endpoint}", endpoint)

    def opened(self, link: Link, now: float) -> None:
        plug, _, endpoint = link.plug.partition("/")
        if plug != "connectors" or endpoint not in self._connectors:
            raise Malformed(f"an authority has no plug {link.plug}")
        super().opened(link, now)
        self.peers[link].dialled = True
        link.send(self.hello().encode() + self.heartbeat())
        self._ways[endpoint] = link

    def closed(self, link: Link, now: float) -> None:
        super().closed(link, now)  # `left` tells only of those that have said hello
        self._sent.pop(link, None)
        for endpoint in [e for e, way in self._ways.items() if way is link]:
            del self._ways[endpoint]

    def receive(self, link: Link, message: bytes, now: float) -> None:
        super().receive(link, message, now)
        self._sent.pop(link, None)

    def relayed(self, link: Link, message: relay.Relayed, now: float) -> None:
        """A connector has nothing else to tell us."""

    def _load(self, way: Link) -> int:
        return self.peers[way].load + self._sent.get(way, 0)

    def issue(self, client_id: str) -> Ticket:
        """A token for a client, and where to use it. Malformed, or NoService without connectors."""
        parse_id(client_id)
        loads = {e: self._load(way) for e, way in self._ways.items() if self.peers[way].node}
        if not loads:
            raise NoService("no connector answers")
        least = min(loads.values())
        equal = [endpoint for endpoint, load in loads.items() if load == least]
        endpoint = max(equal, key=lambda one: sha1(f"{client_id}/{one}".encode()).digest())
        way = self._ways[endpoint]
        self._sent[way] = self._sent.get(way, 0) + 1
        stamp = int(self.wall())
        token = self.keys.issue(client_id, stamp)
        return Ticket("ok", client_id, stamp, token, self._connectors[endpoint])
