"""Router processes: the same decisions as inside, in order, and none lost with a router."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import ConfigError, Denied, RemoteProtocolError
from homing.metrics import Gauge, Registry
from homing.node.instruments import ROUTERS, UNDECIDED, watch_role
from homing.node.routers import Task, load_route
from homing.service.access import Access
from homing.service.decisions import (
    CLIENT,
    MAJORDOMO,
    WORKER,
    Decision,
    Unreadable,
    decide,
    read_decision,
    read_ticket,
    write_decision,
    write_ticket,
)
from homing.service.router import Router
from homing.service.router_process import RouterProcess
from homing.testing import RecordingLink, RecordingPort
from homing.wire import mdp, tasks
from homing.wire.frames import frame, pack
from homing.wire.mdp_messages import Nak, Request
from tests.service.processes import Process, Reaper
from tests.service.stage import D0X, Stage
from tests.service.test_processes import ROUNDS, dealer, until

BODY = frame(b"hello", False)


class Office(Stage):
    """A broker whose router processes the test plays with real RouterProcess roles."""

    def __init__(self, **options: Any) -> None:
        super().__init__(routers=True, **options)
        self.desks: dict[bytes, tuple[RecordingLink, RecordingLink, RouterProcess]] = {}

    def router(self, name: bytes) -> RecordingLink:
        """A router that has connected and answered HELLO; its `tasks` link."""
        inbox, outbox = self.link("tasks", name), self.link("decisions")
        role = RouterProcess(RecordingPort(), self.broker.router, name, "", "")
        role.opened(RecordingLink("decisions"), 0.0)
        self.desks[name] = (inbox, outbox, role)
        self.work(name)
        return inbox

    def work(self, name: bytes, count: int = 1000) -> None:
        """Let a router decide what lies on its desk, and what is laid there then."""
        inbox, outbox, role = self.desks[name]
        out = RecordingLink("decisions")
        role.opened(out, 0.0)
        while inbox.sent and count > 0:
            tickets, inbox.sent = inbox.sent[:count], inbox.sent[count:]
            count -= len(tickets)
            for image in tickets:
                role.receive(RecordingLink("tasks"), image, self.now)
            for image in out.take():
                self.broker.receive(outbox, image, self.now)

    def lose(self, name: bytes) -> None:
        """A router dies with what lies on its desk."""
        inbox, outbox, _ = self.desks.pop(name)
        self.broker.closed(inbox, self.now)
        self.broker.closed(outbox, self.now)


def task(message_id: str, service: str = "echo") -> bytes:
    return tasks.write(tasks.Task(service, message_id, BODY))


def worker_at(office: Office, name: bytes) -> RecordingLink:
    link = office.link("taskbe")
    for message in (tasks.Connect("echo", "", 100), tasks.Ping(1)):
        office.broker.receive(link, tasks.write(message), office.now)
        office.work(name)
    link.take()
    return link


def ids(link: RecordingLink) -> list[str]:
    found = [tasks.read(image)[1] for image in link.take()]
    return [message.message_id for message in found if isinstance(message, tasks.Task)]


def test_a_whole_conversation_through_a_router() -> None:
    office = Office()
    office.router(b"r1")
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    office.broker.receive(client, task("mine"), office.now)
    assert worker.sent == [], "nothing happens before the decision"
    told = Registry()
    watch_role(told, office.broker)
    figures = told.read()
    ready, open_ = figures[ROUTERS][()], figures[UNDECIDED][()]
    assert isinstance(ready, Gauge)
    assert isinstance(open_, Gauge)
    assert (ready.value, open_.value) == (1, 1)
    office.work(b"r1")
    assert ids(worker) == ["mine"]
    office.broker.receive(worker, tasks.write(tasks.Response("echo", "mine", BODY)), office.now)
    office.work(b"r1")
    assert [tasks.read(image)[1] for image in client.take()] == [
        tasks.Response("echo", "mine", BODY)
    ]


def test_messages_wait_for_the_first_router() -> None:
    office = Office()
    client = office.link("taskfe")
    for number in range(3):
        office.broker.receive(client, task(str(number)), office.now)
    office.router(b"r1")
    office.work(b"r1")
    worker = worker_at(office, b"r1")
    worker.sent.clear()
    assert office.broker.core.live == 3


def test_what_a_dead_router_held_goes_to_another_in_order() -> None:
    office = Office()
    office.router(b"r1")
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    for number in range(6):
        office.broker.receive(client, task(str(number)), office.now)
    office.work(b"r1", 2)
    office.router(b"r2")
    office.lose(b"r1")
    office.work(b"r2")
    assert ids(worker) == [str(number) for number in range(6)]
    late = write_decision(b"r1", 3, Decision(tasks.Task("echo", "3", b""), 0, 0))
    office.broker.receive(office.desks[b"r2"][1], late, office.now)
    assert ids(worker) == []


def test_decisions_link_lost_counts_as_router_lost() -> None:
    office = Office()
    inbox = office.router(b"r1")
    client = office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    office.broker.closed(office.desks[b"r1"][1], office.now)
    assert inbox.reason is not None, "its other link is closed, so that it comes anew"
    assert office.broker.pool is not None
    assert office.broker.pool.open == 1


def test_a_router_that_hangs_is_left_for_another() -> None:
    office = Office()
    stuck = office.router(b"r1")
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    office.router(b"r2")
    office.broker.wake("tick", office.now)
    office.now += office.broker.policy.expiry + 0.1
    office.broker.receive(worker, tasks.write(tasks.Pong(1)), office.now)
    office.broker.wake("tick", office.now)
    assert stuck.reason is not None, "so that it comes anew"
    office.work(b"r2")
    assert ids(worker) == ["1"]
    office.work(b"r1")
    assert ids(worker) == [], "its decision comes late"


def test_who_runs_a_router_that_hangs_is_told() -> None:
    office = Office()
    office.router(b"r1")
    assert office.broker.pool is not None
    told: list[bytes] = []
    office.broker.pool.hung = lambda name, seconds: told.append(name)
    office.broker.receive(office.link("taskfe"), task("1"), office.now)
    for _ in range(2):
        office.broker.wake("tick", office.now)
        assert told == []
        office.now += 0.6 * office.broker.policy.expiry
    office.broker.wake("tick", office.now)
    assert told == [b"r1"]


def test_a_message_that_takes_routers_with_it_is_refused_and_no_other() -> None:
    office = Office()
    office.router(b"r1")
    worker, client, other = worker_at(office, b"r1"), office.link("taskfe"), office.link("taskfe")
    for message_id in ("0", "1", "deadly", "3"):
        office.broker.receive(client, task(message_id), office.now)
    office.broker.receive(other, task("4"), office.now)
    office.router(b"r2")
    office.lose(b"r1")  # of the third; nobody heard what it thought of those before
    office.work(b"r2", 5)  # 0 and 1, each after a question, and the question before the third
    office.router(b"r3")
    office.lose(b"r2")
    office.work(b"r3")
    office.broker.wake("tick", office.now)
    assert ids(worker) == ["0", "1", "3", "4"]
    refused = [tasks.read(image)[1] for image in client.take()]
    assert refused == [tasks.Error("malformed", "the route died or hung over it", "deadly")]
    assert office.broker.pool is not None
    assert office.broker.pool.open == 0


def test_a_router_that_was_dead_already_is_not_held_against_a_message() -> None:
    office = Office()
    for name in (b"r1", b"r2", b"r3"):
        office.router(name)
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    for name in (b"r1", b"r2", b"r3"):  # killed at once; their links are seen to break one by one
        office.lose(name)
    office.broker.wake("tick", office.now)
    office.router(b"r4")
    office.work(b"r4")
    assert ids(worker) == ["1"]
    assert client.take() == []
    assert office.broker.pool is not None
    assert office.broker.pool.open == 0


def test_a_router_that_hangs_before_it_has_a_suspect_is_left_for_another() -> None:
    office = Office()
    for name in (b"r1", b"r2"):
        office.router(name)
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    office.lose(b"r1")
    office.broker.wake("tick", office.now)
    office.now += office.broker.policy.expiry + 0.1
    office.broker.receive(worker, tasks.write(tasks.Pong(1)), office.now)
    office.broker.wake("tick", office.now)
    office.router(b"r3")
    office.work(b"r3")
    assert ids(worker) == ["1"]
    assert client.take() == []


def test_a_suspect_whose_time_is_up_keeps_its_router_until_that_is_lost() -> None:
    office = Office()
    office.router(b"r1")
    worker, client = worker_at(office, b"r1"), office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    office.now += office.broker.policy.default.timeout / 2
    office.broker.receive(worker, tasks.write(tasks.Pong(1)), office.now)
    office.router(b"r2")
    office.lose(b"r1")
    office.work(b"r2", 1)  # it says that it lives
    office.now += office.broker.policy.default.timeout / 2 + 0.1
    office.broker.receive(client, task("2"), office.now)
    office.broker.wake("tick", office.now)
    assert tasks.read(client.take()[0])[1] == tasks.Error("timeout", "no router decided", "1")
    office.router(b"r3")
    office.lose(b"r2")
    office.broker.wake("tick", office.now)
    office.work(b"r3")
    assert client.take() == [], "the second is not taken for what the router was lost over"
    assert office.broker.core.live == 1


def test_what_no_router_decides_ends_with_its_time() -> None:
    office = Office(route=deny_x)
    client, asker = office.link("taskfe"), office.client()
    office.broker.receive(client, task("1"), office.now)
    office.send(asker, b"mine", b"", b"MDPC0X", b"echo", b"hello")
    office.now += office.broker.policy.default.timeout + 0.1
    office.broker.wake("tick", office.now)
    assert tasks.read(client.take()[0])[1] == tasks.Error("timeout", "no router decided", "1")
    nak = mdp.read_to_client(asker.take()[0])
    assert nak == Nak(b"echo", b"timeout no router decided", b"mine")
    assert office.broker.pool is not None
    assert office.broker.pool.open == 0


def test_gone_senders_and_garbage_decisions_are_ignored() -> None:
    office = Office()
    office.router(b"r1")
    client = office.link("taskfe")
    office.broker.receive(client, task("1"), office.now)
    office.broker.closed(client, office.now)
    office.work(b"r1")
    office.broker.receive(office.desks[b"r1"][1], pack([b"garbage"]), office.now)
    office.broker.receive(office.link("decisions", b"who"), pack([b"x"]), office.now)
    assert office.broker.core.live == 0


def deny_x(user: str, service: bytes, data: bytes) -> bytes:
    """A route for the tests: bodies that start with x are not for everybody."""
    if data[2:3] == b"x":
        raise Denied("no x here")
    return b"echo" if service == b"any" else service


def test_policy_for_majordomo_is_asked_of_routers_too() -> None:
    office = Office(route=deny_x)
    office.router(b"r1")
    worker, client = office.worker(b"echo"), office.client()
    office.ask(client, b"any")
    assert worker.sent == []
    office.work(b"r1")
    assert len(worker.sent) == 1
    office.ask(client, b"echo", b"xyz")
    office.work(b"r1")
    assert mdp.read_to_client(client.take()[0]) == Nak(b"echo", b"denied no x here")
    office.send(client, b"", b"MDPC0X", b"echo")
    office.work(b"r1")
    nak = mdp.read_to_client(client.take()[0])
    assert isinstance(nak, Nak)
    assert nak.reason.startswith(b"malformed")


@given(st.binary(max_size=120), st.sampled_from([CLIENT, WORKER, MAJORDOMO]))
def test_decide_never_raises_and_survives_its_wire(image: bytes, side: bytes) -> None:
    decision = decide(Router(Access()), side, "", image)
    assert read_decision(write_decision(b"r", 7, decision)) == (b"r", 7, decision)


def test_decisions_of_every_kind_survive_their_wire() -> None:
    router = Router(Access())
    for message in (
        tasks.Connect("echo", "wes", 3),
        tasks.Ping(1.5),
        tasks.Pong(),
        tasks.Task("echo", "1", BODY, 9, 100),
        tasks.Response("echo", "1", BODY),
        tasks.Error("failed", "why", "1"),
        tasks.Disconnect(),
        tasks.Config("here", [], 1, 1, 1),
    ):
        decision = decide(router, WORKER, "", tasks.write(message))
        assert read_decision(write_decision(b"r", 1, decision)) == (b"r", 1, decision)
        assert isinstance(decision.content, Unreadable) == isinstance(message, tasks.Config)


def test_tickets_carry_the_whole_message() -> None:
    image = mdp.write(Request(D0X, b"echo", pack([b"a", b"b"])))
    assert read_ticket(write_ticket(5, CLIENT, "ann", image)) == (5, CLIENT, "ann", image)
    with pytest.raises(RemoteProtocolError):
        read_ticket(pack([b"x"]))


def test_load_route() -> None:
    assert load_route("") is None
    assert load_route("tests.service.test_routers:deny_x") is not None
    for wrong in ("nowhere", "nowhere:x", "os:nothing", "os:sep"):
        with pytest.raises(ConfigError):
            load_route(wrong)


# --- real processes ---------------------------------------------------------------------------


def test_a_router_that_starts_while_its_broker_ends_says_so_in_a_line(tmp_path: Path) -> None:
    """The broker's folder goes with it; a router that was just starting anew had a traceback to say about that."""
    users = str(tmp_path / "users")
    told = Task("router-7", "ipc:///x", "ipc:///y", "", users, 1000, "info", "json")
    words = [sys.executable, "-m", "homing.node.routers", msgspec.json.encode(told).decode()]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == f"router-7: its broker keeps no {users} any more\n"


def test_a_router_that_is_ready_when_its_broker_has_gone_says_so_in_a_line(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("null")
    tasks_end, decisions_end = f"ipc://{tmp_path}/x", f"ipc://{tmp_path}/y"
    told = Task("router-7", tasks_end, decisions_end, "", str(users), 1000, "error", "json")
    words = [sys.executable, "-m", "homing.node.routers", msgspec.json.encode(told).decode()]
    reads, writes = os.pipe()
    os.close(reads)
    ended = subprocess.run(words, stdout=writes, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writes)
    assert ended.returncode == 1
    assert ended.stderr.startswith("router-7: its broker hears no more that it is ready\n")
    assert "Traceback" not in ended.stderr


def children(process: Process) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(process.child.pid)], capture_output=True, text=True, check=False
    )
    return [int(word) for word in found.stdout.split()]


@pytest.mark.slow
def test_killed_routers_lose_nothing(reaper: Reaper, context: zmq.Context[Any]) -> None:
    broker = reaper.broker("here", "--routers", "2", service__heartbeat="5s")
    worker = dealer(context, broker.ends["taskbe"])
    worker.send_multipart([b'{"request":"CONNECT","service":"echo","credit":1000}', b""])
    worker.recv_multipart()
    worker.send_multipart([b'{"request":"PING"}', b""])
    worker.recv_multipart()
    client = dealer(context, broker.ends["taskfe"])
    for round_ in range(ROUNDS):
        until(lambda: len(children(broker)) == 2)
        wanted = {f"{round_}-{number}" for number in range(200)}
        for at, message_id in enumerate(sorted(wanted)):
            ask = {
                "request": "TASK",
                "type": "REQUEST",
                "service": "echo",
                "message_id": message_id,
            }
            client.send_multipart([msgspec.json.encode(ask), b"x"])
            if at == 100:
                os.kill(children(broker)[round_ % 2], signal.SIGKILL)
        for _ in wanted:
            header, body = worker.recv_multipart()
            worker.send_multipart([header.replace(b"REQUEST", b"RESPONSE"), body])
        got = {msgspec.json.decode(client.recv_multipart()[0])["message_id"] for _ in wanted}
        assert got == wanted
    kids = children(broker)
    broker.terminate()
    assert broker.wait() == 0, broker.stderr()
    until(lambda: not any(_alive(pid) for pid in kids))


def loops(user: str, service: bytes, data: bytes) -> bytes:
    """A route for the tests: it never comes back from bodies that start with x."""
    while data[2:3] == b"x":
        Path("looping").touch()
    return service


@pytest.mark.slow
def test_a_router_that_loops_for_ever_is_killed_and_replaced(
    reaper: Reaper, context: zmq.Context[Any]
) -> None:
    route = "tests.service.test_routers:loops"
    broker = reaper.broker(
        "here", "--routers", "1", service__route=route, service__heartbeat="600ms"
    )
    client = dealer(context, broker.ends["localfe"])
    client.setsockopt(zmq.RCVTIMEO, 60_000)  # three routers are started, one after the other
    for body in (b"fine", b"x", b"fine too"):
        client.send_multipart([b"", b"MDPC0X", b"mmi.service", body])
    answers = [client.recv_multipart()[2:] for _ in range(3)]
    assert answers == [
        [b"\x02", b"mmi.service", b"404"],
        [b"\x03", b"mmi.service", b"malformed the route died or hung over it"],
        [b"\x02", b"mmi.service", b"404"],
    ]
    assert broker.stderr().count("and is killed") == 2
    looping = reaper.cwd / "looping"
    looping.unlink()
    client.send_multipart([b"", b"MDPC0X", b"mmi.service", b"x"])
    until(looping.exists)
    kids = children(broker)
    broker.kill()
    until(lambda: not any(_alive(pid) for pid in kids))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except OSError:
        return False
