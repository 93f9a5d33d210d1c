"""Routing decisions: may this be asked, and of which service? The policy a broker's switch leaves out.

A Router is asked once for every request that is not plainly allowed: a name the broker has not seen, a
broker with allow-lists, or one with a route of its own (content routing, validation).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from homing.service.access import Access
from homing.service.names import may_be_served, proper_name

Route = Callable[[str, bytes, bytes], bytes]
"""(user, service, data) -> the service to use; raise homing.errors.Refused to refuse."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a request goes, or (with a reason) why it goes nowhere."""

    service: bytes
    reason: bytes = b""


class Router:
    """The broker's policy on requests, apart from who is free to serve them."""

    __slots__ = ("_route", "access", "guards")

    def __init__(self, access: Access, route: Route | None = None) -> None:
        self.access = access
        self._route = route
        self.guards = route is not None or access.clients is not None
        """Whether every request must be shown to `decide`, not only new names."""

    def repost(self, service: bytes) -> Verdict:
        """The verdict on a peer's request: allow-lists and routes are its origin's business."""
        if not may_be_served(service):
            return Verdict(service, b"malformed no service of ours")
        return Verdict(service)

    def decide(self, user: str, service: bytes, data: bytes) -> Verdict:
        """The verdict on one request; never raises."""
        if not proper_name(service):
            return Verdict(service, b"malformed a service name is printable UTF-8")
        if not self.access.may_call(user, service):
            return Verdict(service, b"denied")
        if self._route is None:
            return Verdict(service)
        return self._rerouted(self._route, user, service, data)

    def _rerouted(self, route: Route, user: str, service: bytes, data: bytes) -> Verdict:
        try:
            target = route(user, service, data)
        except Exception as error:  # a route is the user's code: its bugs refuse, never crash
            code = getattr(error, "code", "malformed")
            return Verdict(service, f"{code} {error}".encode()[:200])
        if not proper_name(target):
            return Verdict(service, b"malformed the route chose no proper name")
        return Verdict(target)
