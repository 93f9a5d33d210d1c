"""Membership from a Serf agent, over its RPC port: who joined, left, failed, changed tags.

The agent does the gossip; homing talks to its own agent only. The stream of events is opened
before the member list is read, so that nothing falls between the two; after a lost connection
both are done again and the difference is reported.

Gossip may pass a node by: what an agent did not hear in the first second it learns when some agent next
compares notes with it, every 15 or 30 seconds. So whoever comes has its agent join those it knows of, which is
such a comparison: they have our tags then, and we theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import random
from collections.abc import Callable
from typing import Any

from homing.cluster.members import Change, Member, View, from_tags
from homing.errors import HandshakeRefused, LinkError, Malformed, Unavailable, WireError
from homing.wire import serf as wire

log = logging.getLogger("homing.cluster.serf")

CALL_SECONDS = 10.0
"""An agent on the same machine answers in milliseconds; joins wait for a TCP connect."""

RETRY_SECONDS = (0.2, 5.0)
"""First and longest pause before the agent is tried again: it restarts in under a second."""

COMPARED = 8
"""Agents that ours compares notes with when we come: the rest hear of us from them."""

COMPARE_SECONDS = 2.0
"""For that, of which each takes milliseconds; one of them may be gone without a word."""

CHUNK = 1 << 16


class SerfAgent:
    """A connection to one agent: calls, and the events it streams."""

    def __init__(self, host: str, port: int, auth_key: str = "") -> None:
        self._at = (host, port)
        self._auth_key = auth_key
        self._decoder = wire.Decoder()
        self._waiting: dict[int, asyncio.Future[wire.Answer]] = {}
        self._on_record: Callable[[dict[str, Any]], None] = lambda record: None
        self._stream_seq = -1
        self._seq = 0
        self._reader_task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, shake hands, authenticate."""
        host, port = self._at
        try:
            reader, self._writer = await asyncio.open_connection(host, port)
        except OSError as error:
            raise Unavailable(
                f"no Serf agent at {host}:{port}: {error.strerror or error}",
                hint="start one with `serf agent -rpc-addr HOST:PORT`, or use static membership",
            ) from None
        self._reader_task = asyncio.create_task(self._read(reader))
        await self.call("handshake", {"Version": wire.VERSION})
        if self._auth_key:
            await self.call("auth", {"AuthKey": self._auth_key})

    async def call(self, command: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One command and its answer's body."""
        if self._writer is None:
            raise LinkError("the Serf agent is not connected")
        seq, self._seq = self._seq, self._seq + 1
        future: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[seq] = future
        self._decoder.expect(seq, command)
        if command == "stream":
            self._stream_seq = seq
        self._writer.write(wire.encode(command, seq, body))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answer = await future
        except TimeoutError:
            raise LinkError(f"the Serf agent did not answer {command!r}") from None
        finally:
            self._waiting.pop(seq, None)
        if answer.error:
            kind = HandshakeRefused if command in ("handshake", "auth") else LinkError
            raise kind(f"Serf refused {command!r}: {answer.error}")
        return answer.body

    async def members(self) -> list[dict[str, Any]]:
        """Every member the agent knows, in Serf's own words."""
        return list((await self.call("members")).get("Members") or ())

    async def stream(self, on_record: Callable[[dict[str, Any]], None]) -> None:
        """Call `on_record` for every membership event from now on."""
        self._on_record = on_record
        kinds = "member-join,member-leave,member-failed,member-update,member-reap"
        await self.call("stream", {"Type": kinds})

    async def wait_closed(self) -> None:
        """Return when the connection is gone."""
        if self._reader_task is not None:
            await asyncio.wait({self._reader_task})

    async def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        if self._reader_task is not None:
            self._reader_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader_task

    async def _read(self, reader: asyncio.StreamReader) -> None:
        reason = "the Serf agent hung up"
        try:
            while data := await reader.read(CHUNK):
                for answer in self._decoder.receive(data):
                    self._take(answer)
        except (OSError, WireError) as error:
            reason = f"the Serf agent's connection broke: {error}"
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(LinkError(reason))
            if self._writer is not None:
                self._writer.close()

    def _take(self, answer: wire.Answer) -> None:
        future = self._waiting.get(answer.seq)
        if future is not None and not future.done():
            future.set_result(answer)
        elif answer.seq == self._stream_seq:
            self._on_record(answer.body)


class SerfMembership:
    """A view of the fabric that follows an agent for as long as `run` runs."""

    def __init__(
        self, agent: str, me: Member, on_change: Callable[[Change], None], auth_key: str = ""
    ) -> None:
        host, _, port = agent.rpartition(":")
        self._open = functools.partial(SerfAgent, host, int(port), auth_key)
        self._me = me
        self._on_change = on_change
        self.view = View()
        self.synced = asyncio.Event()
        self._named: dict[str, Member] = {}  # who had tags when last heard of

    async def run(self, join: list[str] | None = None) -> None:
        """Publish our own tags, join the others, follow the agent; reconnect for ever."""
        pause = RETRY_SECONDS[0]
        while True:
            agent = self._open()
            try:
                await self._follow(agent, join or [])
                pause = RETRY_SECONDS[0]
                await agent.wait_closed()
                log.warning("the Serf agent is gone; the last view is kept until it is back")
            except LinkError as error:
                # A key that is refused too: it may be the agent's that is wrong, and is set right.
                log.warning("%s", error)
            finally:
                await agent.close()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, RETRY_SECONDS[1])

    async def _follow(self, agent: SerfAgent, join: list[str]) -> None:
        await agent.open()
        await agent.call("tags", {"Tags": self._me.tags(), "DeleteTags": []})
        await agent.stream(self._record)
        if join:
            await agent.call("join", {"Existing": join, "Replay": False})
        await self._compare(agent)
        members = [member for member in map(_member, await _alive(agent)) if member is not None]
        self._named = {member.name: member for member in members}
        self._report(self.view.replace(members))
        for member in members:
            self._tell_twin(member)
        self.synced.set()

    async def _compare(self, agent: SerfAgent) -> None:
        """Have our agent and others tell each other all they know."""
        others = [raw for raw in await _alive(agent) if not self._is_me(raw)]
        known = [address for address in map(_address, others) if address]
        if known:
            chosen = random.sample(known, min(COMPARED, len(known)))
            with contextlib.suppress(LinkError, TimeoutError):  # gossip will do, later
                async with asyncio.timeout(COMPARE_SECONDS):
                    await agent.call("join", {"Existing": chosen, "Replay": False})

    def _is_me(self, raw: dict[str, Any]) -> bool:
        member = _member(raw)
        return member is not None and member.id == self._me.id

    async def leave(self) -> None:
        """Tell the cluster that this node goes on purpose; the agent stops."""
        await self._once("leave", None)

    async def withdraw(self) -> None:
        """Take our tags back: this node goes on purpose, its agent stays."""
        await self._once("tags", {"Tags": {}, "DeleteTags": list(self._me.tags())})

    async def _once(self, command: str, body: dict[str, Any] | None) -> None:
        agent = self._open()
        try:
            await agent.open()
            await agent.call(command, body)
        finally:
            await agent.close()

    def _record(self, record: dict[str, Any]) -> None:
        event = record.get("Event")
        for raw in record.get("Members") or ():
            member = _member(raw)
            if member is None:
                known = self._named.pop(str(raw.get("Name")), None)
                if known is not None:  # its tags are gone, and so is it
                    self._report(self.view.down(known, failed=False))
                continue
            self._named[member.name] = member
            if event in ("member-join", "member-update"):
                self._tell_twin(member)
                self._report(self.view.up(member))
            else:
                self._report(self.view.down(member, failed=event == "member-failed"))

    def _tell_twin(self, member: Member) -> None:
        """Two nodes of one id, as when data was copied with it, take each other's place everywhere."""
        twin = self.view.twin(member)
        if twin is not None:
            log.warning(
                "%s and %s have one id, %s: only the one that started last is reached",
                *(twin.name, member.name, member.id.hex()),
            )

    def _report(self, changes: list[Change]) -> None:
        for change in changes:
            self._on_change(change)


async def _alive(agent: SerfAgent) -> list[dict[str, Any]]:
    return [raw for raw in await agent.members() if raw.get("Status") == "alive"]


def _address(raw: dict[str, Any]) -> str:
    """Where a member's agent listens; empty if that makes no sense."""
    packed = str(raw.get("Addr") or "").encode("utf-8", "surrogateescape")
    try:
        host = ipaddress.ip_address(packed)
    except ValueError:
        return ""
    return f"[{host}]:{raw.get('Port')}" if host.version == 6 else f"{host}:{raw.get('Port')}"


def _member(raw: dict[str, Any]) -> Member | None:
    tags = raw.get("Tags") or {}
    try:
        return from_tags(str(raw.get("Name")), {str(k): str(v) for k, v in tags.items()})
    except Malformed as error:
        log.warning("a Serf member with tags that make no sense is left out: %s", error)
        return None
