"""Peers: how much each could take, which of them gets a request, when one counts as gone.

What a peer publishes is a hint. Each repost takes one off the hint and its answer puts it back, a
bounce sets it to nothing until the peer answers or publishes again, and silence for the expiry time makes the peer no candidate at all. So a
request tries each peer at most once per publication and otherwise waits at home.
"""

from __future__ import annotations

from typing import Final

from homing.ports import Link
from homing.service.names import ANY
from homing.service.pending import DONE, Holder, Pending
from homing.wire.frames import SHORT, SHORT_MAX
from homing.wire.mdp import address_head
from homing.wire.mdp_fields import EMPTY
from homing.wire.mdp_messages import State
from homing.wire.mdp_peers import repost_head

LINE_OF_REPOSTS: Final = 8
"""What may stand in line for each worker where a repost still may too: a few quick answers, and enough for brokers
to tell each other several with a call (ADR 0017)."""

PATIENCE = 1.0
"""Seconds for which a peer that bounced is sent nothing ahead: it may be one that never has a line."""

PAST_HOPE = 60.0
"""Seconds after its deadline for which a peer's answer is still told from another's by its address."""


class Peer(Holder):
    """Another broker, as a holder of reposted requests."""

    __slots__ = (
        "_broker",
        "_heads",
        "ahead",
        "capacity",
        "endpoints",
        "heard",
        "idle",
        "mistaken",
        "patient_until",
    )

    remote = True

    def __init__(self, name: bytes, broker: bytes, endpoints: tuple[str, str]) -> None:
        super().__init__(None, name)
        self.endpoints = endpoints  # its cloudfe, its statebe
        self.capacity: dict[bytes, int] = {}
        self.idle = 0
        self.heard = float("-inf")  # when it last published
        self.mistaken = b""  # whose news came in place of its own
        self.ahead = 0  # of what it holds: sent without a place that is free
        self.patient_until = float("-inf")  # it would not have more than it has places for
        self._broker = broker  # our own name: the origin of what we repost
        self._heads: dict[bytes, bytes] = {}

    def hand(self, pending: Pending) -> None:
        """B3: repost it, to a place that is free."""
        self._spend(pending.service.name)
        self.hand_next(pending)

    def hand_next(self, pending: Pending) -> None:
        """B3: repost it, to the place of one that has just been answered."""
        service, link, held = pending.service.name, self.link, self.held
        address = pending.asker.stem + pending.envelope
        if pending.message_id or address in held:
            address = self.keep(pending)
        else:
            held[address] = pending
        if link is None:
            return
        head = self._heads.get(service)
        if head is None:
            head = self._heads[service] = repost_head(service, self._broker)
        if len(address) <= SHORT_MAX:
            image = b"%b%b%b%b%b" % (head, SHORT[len(address)], address, EMPTY, pending.data)
            if self.ahead:
                link.send_with_others(image)
            else:
                link.send(image)
        else:
            link.send(head + address_head(address) + pending.data)

    def may_go_ahead(self) -> bool:
        """Whether fewer were sent ahead than its line takes, for each that has a place there."""
        return self.ahead < LINE_OF_REPOSTS * (len(self.held) - self.ahead)

    def free(self, service: bytes) -> int:
        """What it could take for a service, as far as is known."""
        capacity = self.capacity
        return capacity.get(service, 0) or capacity.get(ANY, 0)

    def claims(self, service: bytes) -> bool:
        """Whether it has workers for a service, busy or not."""
        return service in self.capacity or ANY in self.capacity

    def _spend(self, service: bytes) -> None:
        if not self.capacity.get(service, 0):
            service = ANY
        self.capacity[service] = max(0, self.capacity.get(service, 0) - 1)

    def regain(self, service: bytes) -> None:
        """It answered one: that place is free again, though what it publishes need not change."""
        if service not in self.capacity:
            service = ANY
        if service in self.capacity:
            self.capacity[service] += 1

    def bounced(self, now: float) -> None:
        """It refused one, perhaps one that was sent ahead: no more of these for a while."""
        if self.ahead:
            self.ahead -= 1
            self.patient_until = now + PATIENCE

    def forget_capacity(self, service: bytes) -> None:
        """It has no room: nothing more for this service until it publishes again."""
        self.capacity[service] = 0
        if ANY in self.capacity:
            self.capacity[ANY] = 0

    def publish(self, state: State, now: float) -> None:
        """S1 from this peer."""
        self.heard = now
        self.mistaken = b""
        self.idle = state.idle
        self.capacity = {name.encode(): free for name, free in state.services.items()}
        if len(self._heads) > 2 * len(self.capacity) + 64:
            self._heads.clear()

    def forget_ended(self, now: float) -> None:
        """Let go of what it never answered: one that only takes would fill our memory."""
        held = self.held
        ended = [a for a, p in held.items() if p.state == DONE and now - p.deadline > PAST_HOPE]
        for address in ended:
            del held[address]
        self.ahead = min(self.ahead, len(held))

    def reached(self, now: float, expiry: float) -> bool:
        """Whether it is linked and was heard of lately: one that hangs keeps its link."""
        return self.link is not None and now - self.heard <= expiry

    def silence(self) -> None:
        """It is taken for gone: no capacity until it is heard again."""
        self.capacity = {}
        self.idle = 0


class Federation:
    """The peers by name, and the choice among them."""

    def __init__(self, broker: bytes, peers: dict[bytes, tuple[str, str]], seed: int = 1) -> None:
        self.broker = broker
        self.peers = {name: Peer(name, broker, ends) for name, ends in peers.items()}
        self.only = next(iter(self.peers.values())) if len(self.peers) == 1 else None
        self._draw = seed or 1

    def choose(self, service: bytes) -> Peer | None:
        """The reachable peer with most free capacity for a service.

        Between equals two are drawn and the one that holds fewer of our requests is taken:
        brokers that all see the same figures would otherwise all pick the same peer.
        """
        only = self.only
        if only is not None:  # `free`, written out: every request that waits asks
            capacity = only.capacity
            some = capacity.get(service, 0) or capacity.get(ANY, 0)
            return only if some and only.link is not None else None
        most, best = 0, []
        for peer in self.peers.values():
            if peer.link is None:
                continue
            free = peer.free(service)
            if free > most:
                most, best = free, [peer]
            elif free == most and free:
                best.append(peer)
        if len(best) < 2:
            return best[0] if best else None
        first, second = best[self._random(len(best))], best[self._random(len(best))]
        return second if len(second.held) < len(first.held) else first

    def _random(self, below: int) -> int:
        """A small xorshift: seeded, so that a simulation replays."""
        draw = self._draw
        draw ^= (draw << 13) & 0xFFFFFFFF
        draw ^= draw >> 17
        draw ^= (draw << 5) & 0xFFFFFFFF
        self._draw = draw
        return draw % below

    def knows(self, service: bytes) -> bool:
        """Whether some peer has workers for it, busy or not."""
        if self.only is not None:  # here too
            return self.only.claims(service)
        return any(peer.claims(service) for peer in self.peers.values())

    def reached(self, link: Link) -> Peer | None:
        """A cloudbe link opened: the peer it leads to, if it is one of ours."""
        peer = self.peers.get(link.peer)
        if peer is not None:
            peer.link = link
        return peer

    def silent(self, now: float, expiry: float) -> list[Peer]:
        """Peers that hold requests or claim capacity, and have not been heard for too long."""
        return [
            peer
            for peer in self.peers.values()
            if now - peer.heard > expiry and (peer.held or peer.capacity)
        ]
