"""`homing worker` and `homing services` as processes against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from homing import sync
from homing.cli import main
from homing.errors import Failed, RequestTimeout
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
        pytest.raises(Failed, match="exit code 3 no such picture"),
    ):
        client.request("bad", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(here: Fabric, number: int, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = f"sh -c 'touch {begun}; exec sleep 60'"
    with worker(here, "slow", "--exec", command) as process, sync.Client(here.clients) as client:
        while not begun.exists():
            with suppress(RequestTimeout):
                client.request("slow", b"", timeout=0.2)
        process.send_signal(number)
        while client.request("mmi.service", b"slow") == b"200":
            time.sleep(0.02)  # until it has said goodbye
        process.send_signal(number)
        assert process.wait(20) == -number


def test_a_worker_that_finds_nobody_says_so(tmp_path: Path) -> None:
    words = ["worker", "echo", "--echo", "--endpoint", "tcp://127.0.0.1:1"]
    with subprocess.Popen(
        [sys.executable, "-m", "homing.cli", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert said.startswith("homing: tcp://127.0.0.1:1 does not answer, trying on: ")


def test_a_task_worker_proves_who_it_is(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("wes:secret serve=*\nann:word call=*\n")
    settings = ("security.mechanism=plain", f"security.users_file={tmp_path / 'users'}")
    with fabric(*settings) as guarded:
        taskbe = guarded.workers.replace("localbe", "taskbe")
        command = "sh -c 'read name; test $name = ann || exit 5; echo hello $name'"
        words = ["greet", "--exec", command, "--endpoint", taskbe, "--user", "wes:secret"]
        process = subprocess.Popen(
            [sys.executable, "-m", "homing.cli", "task-worker", *words],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready task-worker greet ")
            with sync.Client(guarded.clients, security=PlainClient("ann", "word")) as client:
                assert client.request("greet", b"ann") == b"hello ann\n"
                with pytest.raises(Failed, match="exit code 5"):
                    client.request("greet", b"bob")
        finally:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def test_a_reader_that_leaves_ends_the_list(here: Fabric) -> None:
    nobody, pipe = os.pipe()
    os.close(nobody)
    words = ["services", "--endpoint", here.clients]
    run = subprocess.run(
        [sys.executable, "-m", "homing.cli", *words],
        stdout=pipe,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(pipe)
    assert (run.returncode, run.stderr) == (141, b"")


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
        (78, ["worker", "echo", "--exec", "cat 'unclosed"], "no closing quotation"),
        (78, ["worker", "echo", "--echo", "--endpoint", "nowhere"], "expected host:port"),
        (64, ["worker", "echo", "--echo", "--concurrency", "0"], "concurrency is from 1"),
        (64, ["worker", "mmi.mine", "--echo"], "no service can be called 'mmi.mine'"),
        (64, ["worker", "*", "--echo"], "no service can be called '*'"),
        (64, ["task-worker", "echo"], "either --echo or --exec"),
        (78, ["task-worker", "echo", "--exec", "no-such-command-here"], "there is no command"),
        (64, ["task-worker", "echo", "--echo", "--credit", "0"], "credit is from 1"),
        (64, ["task-worker", "*", "--echo"], "no service can be called '*'"),
    ],
)
def test_what_a_newcomer_gets_wrong(
    code: int,
    words: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)  # what a task worker remembers
    assert main(words) == code
    assert says in capsys.readouterr().err
