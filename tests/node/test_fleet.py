"""Who is there: from a list, and as a Serf agent tells it."""

from __future__ import annotations

from homing.cluster.members import Change, Member
from homing.config import Config, load
from homing.node.fleet import Fleet, Roster
from homing.node.push import owner

A, B = b"\0" * 7 + b"\xa1", b"\0" * 7 + b"\xb1"
TEXTS = (
    f"dispatcher,connector:{A.hex()}@nodes=a:7003,dispatchers=a:7004,subscribers=a:7005",
    f"matcher:{B.hex()}@status=b:7002",
)


def config(**flags: object) -> Config:
    return load(flags={name.replace("__", "."): value for name, value in flags.items()})


def member(node: bytes, host: str, epoch: int = 1) -> Member:
    ends = {"nodes": f"{host}:7003", "dispatchers": f"{host}:7004"}
    return Member(node.hex(), node, frozenset(("dispatcher", "connector")), ends, epoch)


def test_a_list_is_the_roster() -> None:
    roster = Fleet(config(cluster__members=TEXTS)).roster
    assert roster.endpoints("dispatcher", "nodes") == {A: "a:7003"}
    assert roster.endpoints("dispatcher", "nodes", but=A) == {}
    assert roster.endpoints("matcher", "status") == {B: "b:7002"}
    assert roster.endpoints("matcher", "publishers") == {}
    assert [one.id for one in roster.having("connector")] == [A]
    assert roster.ids == {A, B}


def test_who_failed_is_dialled_and_not_counted_and_who_left_is_neither() -> None:
    fleet = Fleet(config(cluster__membership="serf"))
    assert fleet.dynamic
    seen: list[Roster] = []
    fleet.watch(seen.append)
    for change in (
        Change("joined", member(A, "a")),
        Change("joined", member(B, "b")),
        Change("failed", member(A, "a")),
        Change("joined", member(A, "c", epoch=2)),
        Change("left", member(B, "b")),
    ):
        fleet._changed(change)
    told = [(roster.ids, roster.endpoints("dispatcher", "nodes")) for roster in seen]
    both = {A: "a:7003", B: "b:7003"}
    assert told == [
        ({A}, {A: "a:7003"}),
        ({A, B}, both),
        ({B}, both),
        ({A, B}, {A: "c:7003", B: "b:7003"}),
        ({A}, {A: "c:7003"}),
    ]


def test_what_others_are_told_of_us() -> None:
    fleet = Fleet(config(cluster__advertise="10.0.0.9"))
    ends = {"status": "tcp://0.0.0.0:7002", "http": "http://0.0.0.0:7006"}
    me = fleet._member({"matcher": A, "dispatcher": A}, ends)
    assert me.endpoints == {"status": "10.0.0.9:7002"}
    assert me.id == A
    assert me.roles == frozenset(("matcher", "dispatcher"))
    assert me.epoch > 0


def test_a_lost_dispatcher_moves_only_its_connectors() -> None:
    dispatchers = [bytes([number]) * 8 for number in range(5)]
    connectors = [number.to_bytes(8, "big") for number in range(100)]
    before = {one: owner(one, dispatchers) for one in connectors}
    after = {one: owner(one, dispatchers[1:]) for one in connectors}
    assert {one for one in connectors if before[one] != after[one]} == {
        one for one in connectors if before[one] == dispatchers[0]
    }


def test_a_fleet_is_complete_when_as_many_are_known_as_are_expected() -> None:
    fleet = Fleet(config(cluster__membership="serf", cluster__expect=2))
    known = []
    for change in (
        Change("joined", member(A, "a")),
        Change("joined", member(B, "b")),
        Change("failed", member(A, "a")),
    ):
        fleet._changed(change)
        known.append(fleet.complete)
    assert known == [False, True, False]
    assert Fleet(config(cluster__membership="serf")).complete
    assert Fleet(config(cluster__members=TEXTS, cluster__expect=9)).complete, "a list says it all"
