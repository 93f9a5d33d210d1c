"""Membership by a fixed list: everyone named is taken to be there; links say who answers."""

from __future__ import annotations

from collections.abc import Iterable

from homing.cluster.members import Member
from homing.endpoint import parse_endpoint
from homing.errors import ConfigError, Malformed
from homing.ids import parse_node_id


def parse_member(text: str) -> Member:
    """`ROLE[,ROLE]:ID@PLUG=HOST:PORT[,PLUG=HOST:PORT…]`, as in `cluster.members`."""
    head, at, tail = text.partition("@")
    roles, colon, identity = head.partition(":")
    if not at or not colon or not roles:
        raise Malformed(f"{text!r} is not ROLE:ID@PLUG=HOST:PORT")
    endpoints = {}
    for item in tail.split(","):
        plug, equals, endpoint = item.partition("=")
        host, _, port = endpoint.rpartition(":")
        try:
            sound = plug and equals and host and port != "*" and not parse_endpoint(endpoint).path
        except ConfigError:
            sound = False
        if not sound:
            raise Malformed(f"{item!r} in {text!r} is not PLUG=HOST:PORT")
        endpoints[plug] = endpoint
    member_id = parse_node_id(identity)
    return Member(identity, member_id, frozenset(roles.split(",")), endpoints)


def parse_members(texts: Iterable[str]) -> list[Member]:
    """Every member of the list, or one error that names each bad line."""
    members: dict[bytes, Member] = {}
    problems = []
    for text in texts:
        try:
            member = parse_member(text)
        except Malformed as error:
            problems.append(f"cluster.members: {error}")
            continue
        if member.id in members:
            problems.append(f"cluster.members: {member.name} is named twice")
        members[member.id] = member
    if problems:
        raise ConfigError(problems)
    return list(members.values())
