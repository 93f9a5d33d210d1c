"""The mistakes of the first hour: each is told in a line that says what happened and what to do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import homing
from homing.testing import Fabric, fabric

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "tcp://127.0.0.1:1"  # the port of tcpmux, which nobody has used for decades


class Run(Protocol):
    def __call__(self, *words: str) -> tuple[int, str]: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in an empty directory: its exit code and what it said on stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "homing.cli", *words]
        ended = subprocess.run(argv, capture_output=True, encoding="utf-8", timeout=120)
        return ended.returncode, ended.stderr

    return command


@pytest.fixture
def taken() -> Iterator[str]:
    """An endpoint that somebody else has; it takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"tcp://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture(scope="module")
def here() -> Iterator[Fabric]:
    with fabric("security.api_keys=known", push=True) as running:
        yield running


def plain(told: str) -> None:
    """One line and a hint; nothing that only a programmer understands."""
    message, hint = told.rstrip("\n").split("\n  hint: ")
    assert message.startswith("homing: ")
    assert hint
    for jargon in ("Errno", "Traceback", "Error:", "Exception"):
        assert jargon not in told


def test_the_broker_is_down(run: Run) -> None:
    for words in (
        ["request", "echo", "hello", "--timeout", "1s"],
        ["services"],
    ):
        code, told = run(*words, "--endpoint", NOWHERE)
        assert (code, f"cannot reach {NOWHERE}: nobody listens there" in told) == (69, True)
        assert "homing up" in told
        plain(told)


def test_the_matcher_is_down(run: Run, tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"attrs": {"a": 1}}\n')
    for words in (["price=1"], ["--from", "many.jsonl"]):
        code, told = run("publish", *words, "--to", "127.0.0.1:1", "--timeout", "0.5")
        assert (code, "no matcher answers at 127.0.0.1:1" in told) == (69, True)
        plain(told)


def test_there_is_no_such_journal(run: Run) -> None:
    for words in (["cat"], ["verify"], ["stats"]):
        code, told = run("journal", *words, "nowhere")
        assert (code, "nowhere" in told) == (66, True)


def test_the_plan_is_not_there(run: Run) -> None:
    """The journal is open by then, and told of: nobody is there yet to hear it."""
    code, told = run("matcher", "--plan", "none.json", "--set", "push.publishers=127.0.0.1:0")
    assert (code, "none.json: No such file or directory" in told) == (78, True)
    plain(told)


def test_the_host_is_misspelt(run: Run) -> None:
    code, told = run(
        "request", "echo", "--endpoint", "tcp://broker.invalid:5555", "--timeout", "5s"
    )
    assert code == 69
    assert "there is no such host" in told
    plain(told)


def test_something_else_listens_there(run: Run, taken: str) -> None:
    code, told = run("request", "echo", "--endpoint", taken, "--timeout", "300ms")
    assert code == 69
    assert "none that is ZeroMQ's" in told
    plain(told)


@pytest.mark.parametrize("verb", ["broker", "up"])
def test_the_port_is_taken(verb: str, run: Run, taken: str) -> None:
    code, told = run(verb, "--set", f"service.localfe={taken}", "--set", "node.log_level=error")
    assert code == 69
    assert f"cannot listen on {taken}: Address already in use" in told
    assert "--port-offset" in told
    plain(told)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_the_host_is_an_ipv6_address(host: str, run: Run, taken: str) -> None:
    code, told = run("broker", "--host", host, "--set", f"service.localbe={taken}")
    assert (code, "cannot listen on" in told) == (69, True), "it was understood"


def test_the_host_is_an_endpoint(run: Run) -> None:
    code, told = run("broker", "--host", "tcp://127.0.0.1")
    assert (code, "--host: expected an address" in told) == (78, True)
    plain(told)


@pytest.mark.parametrize("verb", ["broker", "matcher", "connector", "up"])
def test_the_data_directory_cannot_be_used(verb: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for data, why in (("/proc/none", "No such file or directory"), ("file", "it is a file")):
        code, told = run(verb, "--data", data)
        assert (code, f"cannot keep anything in {data}: {why}" in told) == (78, True)
        assert "--data DIR" in told
        plain(told)


def test_the_config_file_is_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('[service]\nhartbeat = "1s"\n')
    code, told = run("up", "--config", "bad.toml")
    assert code == 78
    assert "bad.toml:2: unknown setting service.hartbeat; did you mean service.heartbeat?" in told
    plain(told)
    code, told = run("up", "--config", "none.toml")
    assert (code, "none.toml: no such file" in told) == (78, True)


def test_nobody_serves_it(run: Run, here: Fabric) -> None:
    code, told = run("request", "nobody", "hello", "--endpoint", here.clients)
    assert code == 69
    assert "nobody serves 'nobody'" in told
    assert "homing services" in told
    plain(told)


def test_the_filter_does_not_parse(run: Run) -> None:
    code, told = run("subscribe", "price in")
    assert code == 65
    assert "^ column" in told
    assert "for example" in told


def test_there_is_no_token_key_here(run: Run) -> None:
    code, told = run("subscribe", "price > 1")
    assert code == 77
    assert "no token key in homing-data" in told
    assert "--authority" in told
    plain(told)


def test_a_subscribers_token_is_wrong(run: Run, here: Fabric) -> None:
    code, told = run(
        *("subscribe", "price > 1", "--connector", here.subscribers),
        *("--set", "security.token_key=wrong"),
    )
    assert code == 77
    plain(told)


def test_a_publishers_token_is_wrong(run: Run, here: Fabric) -> None:
    for words in ([], ["--token", "wrong"]):
        code, told = run("publish", "price=1", "--to", here.publishers, *words)
        assert (code, "wrong token" in told) == (77, True)
        plain(told)


def test_a_line_of_a_file_is_wrong(run: Run, here: Fabric, tmp_path: Path) -> None:
    """And nothing of the file is published."""
    (tmp_path / "bad.jsonl").write_text('{"attrs": {"a": 1}}\n' * 5000 + "nonsense\n")
    (tmp_path / "good.jsonl").write_text('{"attrs": {"a": 3}}\n')
    words = ("--to", here.publishers, "--token", "known")

    async def first() -> object:
        async with here.subscriber() as subscriber:
            await subscriber.subscribe("a >= 0")
            code, told = await asyncio.to_thread(run, "publish", "--from", "bad.jsonl", *words)
            assert (code, "homing: bad.jsonl:5001: " in told) == (65, True)
            assert await asyncio.to_thread(run, "publish", "--from", "good.jsonl", *words) == (
                0,
                "",
            )
            return await anext(subscriber)

    push = asyncio.run(first())
    assert isinstance(push, homing.Push)
    assert push.attrs == {"a": 3}


def test_lines_of_a_pipe_are_published_as_they_come(here: Fabric) -> None:
    """The next may be a day away: it waited for thousands more, and the pipe's end."""
    argv = [sys.executable, "-m", "homing.cli", "publish", "--from", "-"]
    argv += ["--to", here.publishers, "--token", "known"]

    async def each(process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        async with here.subscriber() as subscriber, asyncio.timeout(60):
            await subscriber.subscribe("piped >= 0")
            for number in range(3):
                process.stdin.write(b'{"attrs": {"piped": %d}}\n' % number)
                process.stdin.flush()
                push = await anext(subscriber)
                assert isinstance(push, homing.Push)
                assert push.attrs == {"piped": number}

    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            asyncio.run(each(process))
            told, _ = process.communicate(timeout=60)
            assert (process.returncode, told) == (0, b"3 published, 3 matches\n")
        finally:
            process.kill()


def test_a_file_that_is_called_so_is_not_the_standard_input(here: Fabric, tmp_path: Path) -> None:
    """What came was read to see whether it was right, and then there was nothing left of it to publish."""
    (tmp_path / "-").write_text('{"attrs": {"file": 1}}\n')
    argv = [sys.executable, "-m", "homing.cli", "publish", "--from", "-"]
    argv += ["--to", here.publishers, "--token", "known"]
    lines = b'{"attrs": {"piped": 1}}\n' * 3
    ended = subprocess.run(argv, cwd=tmp_path, input=lines, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"3 published, 0 matches\n")
    argv[argv.index("-")] = "./-"  # and so it is
    ended = subprocess.run(argv, cwd=tmp_path, input=lines, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"1 published, 0 matches\n")


@pytest.mark.parametrize(
    "bad",
    [
        b'{"attrs": {"n": 3}',
        b"\xff\xfe",
        b'{"attrs": {"": 3}}',
        b'{"attrs": {"n": 3}, "paylod": "x"}',
        b'{"attrs": {"n": 3}, "id": "12"}',
    ],
)
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_a_line_of_publications_is_bad(
    run: Run, here: Fabric, tmp_path: Path, bad: bytes, piped: bool
) -> None:
    """A pipe cannot be looked at before: who mends it wants to know where to go on."""
    source = tmp_path / "readings.jsonl"
    lines = b'{"attrs": {"n": 1}}\n\n{"attrs": {"n": 2}}\n' + bad + b"\n{}\n"
    if piped:
        os.mkfifo(source)
        threading.Thread(target=source.write_bytes, args=(lines,), daemon=True).start()
    else:
        source.write_bytes(lines)
    code, told = run("publish", "--from", source.name, "--to", here.publishers, "--token", "known")
    assert code == 65
    assert told.startswith("homing: readings.jsonl:4: ")
    assert told.splitlines()[0].endswith("(2 published: all before it)") == piped


def test_lines_with_ids_are_published_once_however_often(
    run: Run, here: Fabric, tmp_path: Path
) -> None:
    lines = [json.dumps({"attrs": {"n": n}, "id": f"{n:024x}"}) for n in (1, 2, 3, 2)]
    (tmp_path / "some.jsonl").write_text("\n".join(lines[:2]))
    (tmp_path / "all.jsonl").write_text("\n".join(lines))

    async def got() -> list[object]:
        async with here.subscriber() as subscriber:
            await subscriber.subscribe("n >= 0")
            for name in ("some.jsonl", "all.jsonl"):
                words = ("--from", name, "--to", here.publishers, "--token", "known")
                assert await asyncio.to_thread(run, "publish", *words) == (0, "")
            async with homing.Publisher(here.publishers, token="known") as publisher:
                await publisher.publish({"n": 4})
            return [await anext(subscriber) for _ in range(4)]

    assert [push.attrs["n"] for push in asyncio.run(got()) if isinstance(push, homing.Push)] == [
        1,
        2,
        3,
        4,
    ]


def test_a_count_of_none_is_refused(run: Run) -> None:
    code, told = run("subscribe", "price > 1", "--count", "0")
    assert (code, "--count" in told) == (64, True)
    plain(told)


def test_the_authority_is_not_there(run: Run) -> None:
    code, told = run("subscribe", "price > 1", "--authority", "http://127.0.0.1:1")
    assert code == 69
    assert "no authority at http://127.0.0.1:1: nobody listens there" in told
    plain(told)


def test_there_is_no_java(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    Path("tables/_batches").mkdir(parents=True)  # without tables nobody would need it
    code, told = run("pipeline", "ledger", "--tables", "tables")
    assert code == 69
    assert "install Java 17" in told
    plain(told)


def test_a_key_that_begins_with_a_hyphen_is_a_key(run: Run) -> None:
    key = "-" + "0" * 39
    code, told = run(
        "request", "echo", "--broker-key", key, "--endpoint", NOWHERE, "--timeout", "1s"
    )
    assert (code, "nobody listens there" in told) == (69, True), told


def test_the_verb_is_misspelt(run: Run) -> None:
    code, told = run("upp")
    assert (code, "did you mean `homing up`?" in told) == (64, True)
    plain(told)


def test_python_is_too_old(tmp_path: Path) -> None:
    """`make setup` looks before it installs anything."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.1" && exit\nexit 1\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["sh", "scripts/bootstrap.sh"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": str(old), "VENV": str(tmp_path / "venv")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 69
    assert "Python 3.9.1 is too old; homing needs Python 3.11+" in done.stderr
    assert not (tmp_path / "venv").exists()
