"""A node that comes has its agent compare notes with others: gossip alone may pass one by."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from homing.cluster.members import Change, Member
from homing.cluster.serf import SerfMembership
from homing.wire import serf as wire

BODILESS = ("members",)


def member(number: int) -> Member:
    return Member(
        f"n{number}", bytes([number]) * 8, frozenset({"matcher"}), {"status": "a:1"}, epoch=1
    )


class Forgetful:
    """An agent that has not heard of another one's tags until it joins it."""

    def __init__(self, other: Member) -> None:
        self.called: list[tuple[str, Any]] = []
        self._other = other
        self._tags: dict[str, str] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = b""
        values: list[Any] = []
        while data := await reader.read(1 << 16):
            held += data
            while (found := wire.decode(held)) is not None:
                values.append(found[0])
                held = held[found[1] :]
            while values and (values[0]["Command"] in BODILESS or len(values) > 1):
                header = values.pop(0)
                body = None if header["Command"] in BODILESS else values.pop(0)
                self.called.append((header["Command"], body))
                writer.write(msgspec.msgpack.encode({"Seq": header["Seq"], "Error": ""}))
                writer.write(self._answer(header["Command"], body))
        writer.close()

    def _answer(self, command: str, body: Any) -> bytes:
        if command == "tags":
            self._tags = body["Tags"]
        if command == "join":
            return msgspec.msgpack.encode({"Num": len(body["Existing"])})
        if command != "members":
            return b""
        joined = "join" in [name for name, _ in self.called]
        theirs = self._other.tags() if joined else {}
        return msgspec.msgpack.encode(
            {"Members": [self._raw("own", 1, self._tags), self._raw("other", 2, theirs)]}
        )

    def _raw(self, name: str, last: int, tags: dict[str, str]) -> dict[str, Any]:
        address = bytes((10, 0, 0, last)).decode()
        return {"Name": name, "Addr": address, "Port": 7946, "Status": "alive", "Tags": tags}


async def come() -> tuple[list[Change], Forgetful]:
    agent = Forgetful(member(2))
    server = await asyncio.start_server(agent.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    changes: list[Change] = []
    membership = SerfMembership(f"{host}:{port}", member(1), changes.append)
    running = asyncio.create_task(membership.run())
    try:
        async with asyncio.timeout(20.0):
            await membership.synced.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()
        await server.wait_closed()
    return changes, agent


def test_what_gossip_has_not_told_is_known_from_the_start() -> None:
    changes, agent = asyncio.run(come())
    assert [(one.kind, one.member.id) for one in changes] == [
        ("joined", member(1).id),
        ("joined", member(2).id),
    ]
    commands = [command for command, _ in agent.called]
    assert commands.index("tags") < commands.index("join"), "so that the other has ours"
    assert ("join", {"Existing": ["10.0.0.2:7946"], "Replay": False}) in agent.called
