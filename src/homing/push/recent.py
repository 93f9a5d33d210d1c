"""Which publications went to which clients lately: what recognises one that comes again.

A fan-out is remembered as the list of clients it came with, unopened: only when the same
publication comes a second time is anything compared. So a delivery costs nothing here.

What is forgotten oldest first stands in an OrderedDict, here and elsewhere: the front of a dict is found only behind
the empty places of all that was taken from there, thousands where it is large.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from homing.ids import ID_BYTES

MAX_IDS: Final = 65_536
"""Publications: at 1000/s a minute, longer than any node takes to send again."""
MAX_BYTES: Final = 32 << 20
"""Of client lists: 2.8 million deliveries."""


class Recent:
    """Message ids with the clients each went to, oldest forgotten first."""

    def __init__(self, max_ids: int = MAX_IDS, max_bytes: int = MAX_BYTES) -> None:
        self._max_ids = max_ids
        self._max_bytes = max_bytes
        self._lists: OrderedDict[bytes, bytes] = OrderedDict()
        self._held = 0

    def __len__(self) -> int:
        return len(self._lists)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self._lists.items())

    def fresh(self, message_id: bytes, clients: bytes) -> bytes:
        """Those of the clients that it has not gone to, in their order."""
        listed = self._lists.get(message_id)
        if listed is None:
            return clients
        if listed == clients:
            return b""
        known = {listed[at : at + ID_BYTES] for at in range(0, len(listed), ID_BYTES)}
        ids = [clients[at : at + ID_BYTES] for at in range(0, len(clients), ID_BYTES)]
        return b"".join([client for client in ids if client not in known])

    def add(self, message_id: bytes, clients: bytes) -> None:
        """It goes to these clients now."""
        if not clients:
            return
        listed = self._lists.pop(message_id, b"")
        self._lists[message_id] = listed + clients
        self._held += len(clients)
        while len(self._lists) > self._max_ids or (
            self._held > self._max_bytes and len(self._lists) > 1
        ):
            _, oldest = self._lists.popitem(last=False)
            self._held -= len(oldest)

    def forget(self, message_id: bytes, client: bytes) -> None:
        """It has not gone to this client after all: should it come again it is new."""
        listed = self._lists.get(message_id, b"")
        for at in range(0, len(listed), ID_BYTES):
            if listed[at : at + ID_BYTES] == client:
                left = listed[:at] + listed[at + ID_BYTES :]
                self._held -= ID_BYTES
                if left:
                    self._lists[message_id] = left
                else:
                    del self._lists[message_id]
                return
