"""`homing worker` and `homing services` as processes against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from homing import sync
from homing.cli import main
from homing.errors import Refused
from homing.testing import Fabric, fabric
from homing.wire.mechanisms import PlainClient


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric("service.heartbeat=200ms") as running:
        yield running


@contextmanager
def worker(here: Fabric, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process that has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", "worker", *words, "--endpoint", here.workers],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith(f"ready worker {words[0]} ")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_echo_and_a_graceful_end(here: Fabric) -> None:
    with worker(here, "echo", "--echo") as process, sync.Client(here.clients) as client:
        assert client.request("echo", b"a\0b") == b"a\0b"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_command_gets_the_body_and_its_failure_is_a_refusal(here: Fabric) -> None:
    with worker(here, "upper", "--exec", "tr a-z A-Z"), sync.Client(here.clients) as client:
        assert client.request("upper", b"hello") == b"HELLO"
    shell = "sh -c 'echo no such picture >&2; exit 3'"
    with (
        worker(here, "bad", "--exec", shell),
        sync.Client(here.clients) as client,
        pytest.raises(Refused, match="no such picture"),
    ):
        client.request("bad", b"")


def test_a_task_worker_proves_who_it_is(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("wes:secret\n")
    with fabric("security.mechanism=plain", f"security.users_file={users}") as here:
        door = here.workers.replace("localbe", "taskbe")
        words = ["task-worker", "upper", "--exec", "tr a-z A-Z", "--endpoint", door]
        process = subprocess.Popen(
            [sys.executable, "-m", "homing.cli", *words, "--user", "wes:secret"],
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
        )
        assert process.stdout is not None
        with process:
            assert process.stdout.readline() == f"ready task-worker upper {door}\n"
            with sync.Client(here.clients, security=PlainClient("wes", "secret")) as client:
                assert client.request("upper", b"hello") == b"HELLO"
            process.terminate()
        assert process.returncode == 0


def test_a_worker_without_a_broker_says_what_it_waits_for(tmp_path: Path) -> None:
    nobody = f"ipc://{tmp_path}/nobody"
    words = ["worker", "echo", "--echo", "--endpoint", nobody]
    process = subprocess.Popen(
        [sys.executable, "-m", "homing.cli", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process:
        told = process.stderr.readline()
        assert told == f"homing: no broker answers at {nobody}; waiting for one\n"
        process.terminate()
    assert process.returncode == 0


def test_services_are_listed(here: Fabric, capsys: pytest.CaptureFixture[str]) -> None:
    with worker(here, "listed", "--echo", "--concurrency", "3"):
        assert main(["services", "--endpoint", here.clients]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["listed", "1", "3", "0", "0", "–"] in rows
        assert main(["services", "--endpoint", here.clients, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["listed"]["free"] == 3


@pytest.mark.parametrize(
    ("code", "words", "says"),
    [
        (64, ["worker", "echo"], "either --echo or --exec"),
        (64, ["worker", "echo", "--echo", "--exec", "cat"], "either --echo or --exec"),
        (78, ["worker", "echo", "--exec", "no-such-command-here"], "there is no command"),
        (64, ["worker", "echo", "--echo", "--concurrency", "0"], "concurrency is from 1"),
        (64, ["task-worker", "echo"], "either --echo or --exec"),
        (78, ["task-worker", "echo", "--exec", "no-such-command-here"], "there is no command"),
        (78, ["worker", "echo", "--exec", "tr 'a"], "No closing quotation"),
        (64, ["task-worker", "echo", "--echo", "--credit", "0"], "--credit"),
    ],
)
def test_what_a_newcomer_gets_wrong(
    code: int, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    assert says in capsys.readouterr().err
