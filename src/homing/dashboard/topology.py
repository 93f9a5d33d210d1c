"""What the page draws of each node, from what its role keeps anyway. Cheap: once a second, on the loop."""

from __future__ import annotations

from heapq import nlargest
from typing import Any

from homing.node.host import Host
from homing.push.connector import Connector
from homing.push.dispatcher import Dispatcher
from homing.push.matcher import Matcher
from homing.push.sessions import Session
from homing.service.switch import Broker

MAX_SLOW = 20
"""Rows of the table of slow subscribers: the slowest."""


def node(name: str, host: Host, endpoints: dict[str, str]) -> dict[str, Any]:
    """A node's card: what it is, whether it is up, and its facts."""
    role = host.role
    facts: dict[str, Any] = dict(endpoints)
    told = {"role": name, "name": "", "up": not host.draining, "facts": facts}
    if isinstance(role, Broker):
        told["name"] = _text(role.name)
        facts["services"] = len(role.core.services)
        facts["requests under way"] = role.core.live
    elif isinstance(role, Matcher):
        facts["subscriptions"] = len(role.table)
        facts["publications owed"] = len(role.owed)
        facts["placement plan"] = _plan(role)
    elif isinstance(role, Dispatcher):
        facts["connectors"] = len(role.connectors)
    elif isinstance(role, Connector):
        facts["sessions"] = len(role.sessions)
    return told


def _plan(role: Matcher) -> str:
    share = role.table.newest
    if not any(tree.cuts for tree in share.plan.trees):
        return "none: all subscriptions here"
    return f"epoch {share.plan.epoch}, tiles held: {len(share.held)}"


def peers(role: object, now: float) -> list[dict[str, Any]]:
    """A broker's peers: reached or not, what they could take, what they hold of ours."""
    if not isinstance(role, Broker):
        return []
    return [
        {
            "name": _text(peer.name),
            "up": peer.reached(now, role.policy.expiry),
            "free": sum(peer.capacity.values()),
            "holds": len(peer.held),
        }
        for peer in role.federation.peers.values()
    ]


def ring(role: object) -> list[dict[str, Any]]:
    """A matcher's ring: every matcher, and its share."""
    if not isinstance(role, Matcher):
        return []
    return [{"name": _text(name), "share": share} for name, share in role.ring.shares().items()]


def slow(role: object) -> list[dict[str, Any]]:
    """A connector's sessions that are behind, the furthest first."""
    if not isinstance(role, Connector):
        return []
    behind = nlargest(MAX_SLOW, role.sessions.values(), key=_held)
    return [
        {
            "client": session.client.hex(),
            "here": session.link is not None,
            "durable": session.durable,
            "policy": session.policy,
            "owed": len(session),
            "bytes": session.held,
        }
        for session in behind
        if session.held
    ]


def _held(session: Session) -> int:
    return session.held


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
