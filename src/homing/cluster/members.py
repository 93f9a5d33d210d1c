"""Members of the fabric and how a view of them changes. Pure.

A member is one homing process: its roles, its 8-byte id, where each of its plugs listens and
an epoch that grows with every start, so that old news about an earlier life is told apart
from news about this one. In Serf all of it travels as tags:

    role=matcher,dispatcher  id=00112233445566ff  epoch=7
    address=publishers=127.0.0.1:7001,status=127.0.0.1:7002
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from homing.endpoint import parse_endpoint
from homing.errors import ConfigError, Malformed
from homing.ids import parse_node_id

TAGS_MAX = 512
"""Serf refuses larger tags: they ride in one gossip packet."""

MEMBERS_MAX = 10_000
"""A view is held by every node; beyond this a gossip cluster is split by design."""


class Member(msgspec.Struct, frozen=True):
    """One process of the fabric, as others see it."""

    name: str
    id: bytes
    roles: frozenset[str]
    endpoints: dict[str, str]
    epoch: int = 0

    def tags(self) -> dict[str, str]:
        """As Serf tags; refused where Serf would refuse them."""
        tags = {
            "role": ",".join(sorted(self.roles)),
            "id": self.id.hex(),
            "address": ",".join(f"{plug}={at}" for plug, at in sorted(self.endpoints.items())),
            "epoch": str(self.epoch),
        }
        size = sum(len(key) + len(value) + 2 for key, value in tags.items())
        if size > TAGS_MAX:
            raise Malformed(f"the tags of {self.name} take {size} bytes, Serf carries {TAGS_MAX}")
        return tags


def from_tags(name: str, tags: Mapping[str, str]) -> Member | None:
    """The member that a Serf node's tags describe; None if it is no homing node."""
    if "role" not in tags or "id" not in tags:
        return None
    endpoints = {}
    for item in filter(None, tags.get("address", "").split(",")):
        plug, equals, endpoint = item.partition("=")
        if not equals:
            raise Malformed(f"{name}: address tag {item!r} is not PLUG=HOST:PORT")
        try:
            parse_endpoint(endpoint)
        except ConfigError as error:
            raise Malformed(f"{name}: address tag {item!r}: {error}") from error
        endpoints[plug] = endpoint
    epoch = tags.get("epoch", "0")
    if not epoch.isdecimal() or len(epoch) > TAGS_MAX:
        raise Malformed(f"{name}: epoch tag {epoch[:40]!r} is not a number")
    roles = frozenset(filter(None, tags["role"].split(",")))
    return Member(name, parse_node_id(tags["id"]), roles, endpoints, int(epoch))


class Change(msgspec.Struct, frozen=True):
    """What happened to one member."""

    kind: Literal["joined", "changed", "left", "failed"]
    member: Member


class View:
    """The members believed alive, by id."""

    def __init__(self) -> None:
        self._alive: dict[bytes, Member] = {}
        self._epochs: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._alive)

    def members(self, role: str | None = None) -> list[Member]:
        """Those alive, by id, of one role or all."""
        found = (m for m in self._alive.values() if role is None or role in m.roles)
        return sorted(found, key=lambda member: member.id)

    def twin(self, member: Member) -> Member | None:
        """Another that is alive under this one's id."""
        known = self._alive.get(member.id)
        return None if known is None or known.name == member.name else known

    def up(self, member: Member) -> list[Change]:
        """A member was seen alive; news of an earlier life is ignored."""
        known = self._alive.get(member.id)
        if member.epoch < self._epochs.get(member.id, 0) or member == known:
            return []
        if known is None and len(self._alive) >= MEMBERS_MAX:
            raise Malformed(f"more than {MEMBERS_MAX} members; {member.name} is left out")
        self._alive[member.id] = member
        self._remember_epoch(member)
        return [Change("joined" if known is None else "changed", member)]

    def _remember_epoch(self, member: Member) -> None:
        self._epochs.pop(member.id, None)
        self._epochs[member.id] = member.epoch
        if len(self._epochs) > 2 * MEMBERS_MAX:  # the longest unseen is forgotten first
            self._epochs.popitem(last=False)

    def down(self, member: Member, *, failed: bool) -> list[Change]:
        """A member left or failed; a report about an earlier life is ignored."""
        known = self._alive.get(member.id)
        if known is None or member.epoch < known.epoch:
            return []
        del self._alive[member.id]
        return [Change("failed" if failed else "left", known)]

    def replace(self, members: Iterable[Member]) -> list[Change]:
        """The whole truth at once, as after a reconnect to the agent."""
        # Of two with one id the later holds, as for those who hear of them one by one.
        fresh = {member.id: member for member in sorted(members, key=lambda one: one.epoch)}
        gone = [member for key, member in self._alive.items() if key not in fresh]
        changes = [change for member in gone for change in self.down(member, failed=True)]
        for member in fresh.values():
            changes += self.up(member)
        return changes
