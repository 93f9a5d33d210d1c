"""Lists of places (client id + connector id, 20 bytes each) taken apart and put together.

A fan-out's list may hold ten thousand entries, so both directions move whole columns of
bytes with strided slices instead of looping over entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from homing.ids import ID_BYTES, NODE_ID_BYTES
from homing.push.popular import Popular

PLACE_BYTES = ID_BYTES + NODE_ID_BYTES
each_id = Struct(f"{ID_BYTES}s").iter_unpack
"""The ids of a concatenated list, as 1-tuples: twice as quick as slicing."""

# Below this many entries a plain loop is quicker than twenty strided copies.
_FEW = 12
# And below this many bytes of places one look at each is quicker than finding runs.
_SHORT = 64 * PLACE_BYTES
# What was worked out for long lists, which come again.
_joined: Popular[bytes] = Popular()
_groups: Popular[Mapping[bytes, bytes]] = Popular()
_each_place = Struct(f"{ID_BYTES}s{NODE_ID_BYTES}s").iter_unpack


def places(clients: bytes, connector: bytes) -> bytes:
    """Bare client ids as places at one connector."""
    count = len(clients) // ID_BYTES
    if count == 1:
        return clients + connector
    if count <= _FEW:
        ids = [clients[at : at + ID_BYTES] for at in range(0, len(clients), ID_BYTES)]
        return connector.join(ids) + connector
    known = _joined.get(clients)
    if known is not None and known.endswith(connector):
        return known
    out = bytearray(count * PLACE_BYTES)
    for column in range(ID_BYTES):
        out[column::PLACE_BYTES] = clients[column::ID_BYTES]
    for column in range(NODE_ID_BYTES):
        out[ID_BYTES + column :: PLACE_BYTES] = connector[column : column + 1] * count
    return _joined.keep(clients, bytes(out))


def by_connector(listed: bytes) -> Mapping[bytes, bytes]:
    """Bare client ids per connector, each in the order of the list."""
    if len(listed) <= _SHORT:
        return _grouped(listed)
    return _groups.get(listed) or _groups.keep(listed, _grouped(listed))


def once(lists: list[bytes]) -> bytes:
    """All places of several lists, each once."""
    lists = [one for one in lists if one]
    if len(lists) <= 1:
        return b"".join(lists)
    every = (one[at : at + PLACE_BYTES] for one in lists for at in range(0, len(one), PLACE_BYTES))
    return b"".join(dict.fromkeys(every))


def _grouped(listed: bytes) -> dict[bytes, bytes]:
    groups: dict[bytes, list[bytes]] = {}
    if len(listed) <= _SHORT:
        connector = listed[ID_BYTES:PLACE_BYTES]
        alone = listed.split(connector) if listed else [b"."]
        if not alone[-1] and max(map(len, alone)) == ID_BYTES:  # it is in its places only
            return {connector: b"".join(alone)}
        for client, connector in _each_place(listed):
            groups.setdefault(connector, []).append(client)
        return {connector: b"".join(clients) for connector, clients in groups.items()}
    at = 0
    while at < len(listed):
        connector = listed[at + ID_BYTES : at + PLACE_BYTES]
        end = _run_end(listed, at, connector)
        groups.setdefault(connector, []).append(_clients(listed[at:end]))
        at = end
    return {connector: b"".join(runs) for connector, runs in groups.items()}


def node_ids(data: bytes) -> list[bytes]:
    """The ids in a concatenated list of nodes."""
    return [data[at : at + NODE_ID_BYTES] for at in range(0, len(data), NODE_ID_BYTES)]


def _run_end(listed: bytes, at: int, connector: bytes) -> int:
    """Where the entries at this connector end: doubling steps, since runs are mostly long."""
    step = 1
    end = at + PLACE_BYTES
    while step and end < len(listed):
        ahead = min(end + step * PLACE_BYTES, len(listed))
        if _all_at(listed, end, ahead, connector):
            end = ahead
            step *= 2
        else:
            step //= 2
    return end


def _all_at(listed: bytes, at: int, end: int, connector: bytes) -> bool:
    count = (end - at) // PLACE_BYTES
    return all(
        listed[at + ID_BYTES + column : end : PLACE_BYTES] == connector[column : column + 1] * count
        for column in range(NODE_ID_BYTES)
    )


def _clients(run: bytes) -> bytes:
    count = len(run) // PLACE_BYTES
    if count <= _FEW:
        return b"".join([run[i : i + ID_BYTES] for i in range(0, len(run), PLACE_BYTES)])
    out = bytearray(count * ID_BYTES)
    for column in range(ID_BYTES):
        out[column::ID_BYTES] = run[column::PLACE_BYTES]
    return bytes(out)
