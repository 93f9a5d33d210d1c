"""The frame of the command: the table of verbs, help, and how commands end."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App

import homing.cli
from homing import errors
from homing.cli import PLANES, VERBS, main, parts
from homing.cli.outcome import exit_code, report


def test_help_lists_every_verb_under_its_plane(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for plane, verbs in PLANES.items():
        assert plane in told
        for verb in verbs:
            assert re.search(rf"^  {verb.name} +{re.escape(verb.purpose)}$", told, re.M)
    assert max(map(len, told.splitlines())) <= 100


def test_every_verb_that_a_file_defines_is_in_the_table() -> None:
    room = Path(homing.cli.__file__).parent
    defined = {
        path.stem
        for path in room.glob("*.py")
        if "\napp = verb(" in path.read_text(encoding="utf-8")
    }
    assert defined == {verb.module.rpartition(".")[2] for verb in VERBS.values()}


@pytest.mark.parametrize("name", sorted(VERBS))
def test_every_verb_has_help_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = import_module(VERBS[name].module)
    assert isinstance(module.app, App)
    assert main([name, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"Usage: homing {name}" in told
    examples = (module.__doc__ or "").partition("Examples:\n")[2].strip("\n").splitlines()
    assert examples, "the module's docstring needs an `Examples:` part"
    assert any(f"homing {name}" in line for line in examples)
    assert max(map(len, examples)) <= 80, "examples wrap on an ordinary terminal"
    assert examples[0].strip() in told


@pytest.mark.parametrize("name", ["config", "journal", "keys", "pipeline"])
def test_every_sub_verb_shows_its_own_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    below = [word for word in import_module(VERBS[name].module).app if word[0] != "-"]
    assert len(below) > 1
    for word in below:
        assert main([name, word, "--help"]) == 0
        told = capsys.readouterr().out.partition("Examples:\n")[2].splitlines()
        assert told
        assert all(f"homing {name} {word}" in line for line in told)


def test_help_leaves_out_defaults_that_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["request"], ["worker"], ["publish"], ["pipeline", "ingest"], ["journal", "cat"]):
        assert main([*words, "--help"]) == 0
        told = capsys.readouterr().out
        assert not re.search(r"default:\s+(False|\(\)|\"\")", told), told
    assert main(["request", "--help"]) == 0
    told = capsys.readouterr().out
    assert "[default: 30s]" in told
    assert "[default: 0]" in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_verbs_and_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in (*VERBS, "ingest", "port-offset", "max-events"):
        assert word in script, word


def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    typed = (
        'COMP_WORDS=(homing pipe); COMP_CWORD=1; _homing; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(homing broker --po); COMP_CWORD=2; _homing; echo "${COMPREPLY[@]}"\n'
    )
    script = capsys.readouterr().out + typed
    told = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["pipeline", "--port-offset"]
    assert told.stderr == ""


def test_help_imports_neither_cyclopts_nor_any_verb() -> None:
    code = (
        "import sys, homing.cli\nhoming.cli.main(['--help'])\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(told.stderr.split())
    assert not loaded & {"cyclopts", "rich", "msgspec", "asyncio"}
    assert not loaded & {verb.module for verb in VERBS.values()}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["doctr"], 64, "did you mean `homing doctor`"),
        (["zzz"], 64, "`homing --help` lists the verbs"),
        (["doctor", "--bad"], 64, "`homing doctor --help` shows its options"),
        (["config", "show", "nowhere"], 64, "homing: "),
        (["journal", "cat", "--limit", "-1"], 64, "--limit"),
        (["subscribe", "a = 1", "--count", "0"], 64, "--count"),
        (["request", "echo", "--retries", "-1"], 64, "--retries"),
        (["request", "echo", "--timeout", "soon"], 78, "--timeout: expected a duration"),
        (
            ["request", "echo", "--timeout", "0"],
            78,
            "--timeout: more than 0 seconds, not 0\n  hint: ",
        ),
        (["publish", "a=1", "--timeout", "0s"], 78, "for example --timeout 30s"),
        (["publish"], 64, "nothing to publish: say name=value"),
        (["publish", "a"], 65, "for example: homing publish price=12.5"),
        (
            ["request", "echo", "--endpoint", "http://x:1"],
            78,
            "hint: an endpoint is tcp://HOST:PORT",
        ),
        (["broker", "--set", "service.route=nowhere:route"], 78, "PYTHONPATH=. homing broker"),
        (["task-worker", "a", "--echo", "--connect-timeout", "x"], 78, "--connect-timeout: "),
        (["completion", "csh"], 64, "csh"),
        (["pipeline", "replay"], 64, "`homing pipeline replay --help`"),
        (["pipeline", "compact", "--keep", "0"], 64, "--keep"),
        (["keys", "show", "none.key"], 78, "none.key: No such file or directory\n"),
        (["broker", "--peer", "paris"], 78, "service.peers: 'paris': a peer is NAME=CLOUDFE"),
        (["subscribe", "a = 1", "--client", "me"], 65, "a message or client id is 24 hex digits"),
        (["subscribe", "a = 1", "--authority", "host:7006"], 65, "http://HOST:PORT"),
        (["config", "check", "--set", "a.b=1"], 78, "unknown setting a.b"),
        (["config", "check", "--set", "x", "--set", "y"], 78, "2 settings are wrong"),
    ],
)
def test_wrong_words_are_told_in_a_line_and_a_hint(
    words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    output = capsys.readouterr()
    assert output.err.startswith("homing: ")
    assert told in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (errors.Unavailable("no broker at tcp://a:1"), 69, "homing up"),
        (errors.HandshakeRefused("key not known"), 77, ""),
        (errors.NoService("echo"), 69, ""),
        (errors.RequestTimeout("echo after 1 s"), 75, ""),
        (errors.QueueFull("echo"), 75, ""),
        (errors.Denied("echo"), 77, ""),
        (errors.TooLarge("echo"), 65, ""),
        (errors.RemoteProtocolError("bad greeting", 3), 76, ""),
        (errors.FilterError("expected a value", "a = ", 5), 65, ""),
        (errors.CorruptSegment("j/1", 4, "checksum"), 65, ""),
        (errors.DiskFull("journal"), 74, "free space"),
        (errors.PipelineError("2 requests were lost"), 1, ""),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 66, ""),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 77, ""),
        (OSError(errno.EADDRINUSE, "Address already in use"), 69, "--port-offset"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), 69, ""),
        (ModuleNotFoundError("no", name="pyspark.sql"), 69, "homing[spark]"),
        (ModuleNotFoundError("no", name="starlette"), 69, "homing[server]"),
        (ModuleNotFoundError("no", name="homing.nowhere"), 70, "installed whole"),
        (KeyboardInterrupt(), 130, ""),
        (ZeroDivisionError("division by zero"), 70, "this is a bug"),
        (SystemExit(3), 3, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_every_end_has_its_exit_code(
    error: BaseException, code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, debug=False) == code
    told = capsys.readouterr().err
    assert hint in told
    assert "Traceback" not in told
    assert told == "" or told.startswith("homing: ")


def test_no_error_of_the_tree_looks_like_success_or_like_a_bug() -> None:
    def tree(kind: type[errors.HomingError]) -> list[type[errors.HomingError]]:
        return [kind, *(below for heir in kind.__subclasses__() for below in tree(heir))]

    codes = {kind: exit_code(kind) for kind in tree(errors.HomingError)}
    assert len(codes) > 20
    assert not {0, 70} & set(codes.values()), codes


@pytest.mark.parametrize(
    "verb", ["broker", "up", "matcher", "dispatcher", "connector", "authority"]
)
def test_a_node_without_its_packages_does_not_begin(
    verb: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "SERVER", ("msgspec", "no_such_package"))
    assert main([verb]) == 69
    told = capsys.readouterr()
    assert told.err == (
        "homing: this needs the package no_such_package\n  hint: pip install 'homing[server]'\n"
    )
    assert told.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(VERBS))
def test_help_needs_no_packages_of_nodes(name: str) -> None:
    """So it is there, and can be completed, where only the client is installed."""
    code = (
        "import sys\n"
        f"for name in {[*parts.SERVER, *parts.SPARK]}: sys.modules[name] = None\n"
        f"import homing.cli; sys.exit(homing.cli.main([{name!r}, '--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_debug_prints_the_traceback(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "variable":
        monkeypatch.setenv("HOMING_DEBUG", "1")
    words = ["config", "check", "--set", "a.b=1", *["--debug"] * (how == "flag")]
    assert main(words) == 78
    assert "Traceback" in capsys.readouterr().err


def test_debug_after_a_lone_dash_pair_is_an_argument() -> None:
    words = ["echo", "--", "--debug"]
    assert not homing.cli._take_debug(words)
    assert words == ["echo", "--", "--debug"]


def _homing(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "homing.cli", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )


def _interruptible() -> None:
    """A test run in the background of a shell ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    process = _homing("config", "show", "--why", "--json")
    assert process.stdout is not None
    process.stdout.close()
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (141, "")


def test_sigint_ends_with_130_and_one_line(tmp_path: Path) -> None:
    """A config that is a pipe with no writer keeps the command waiting for us."""
    pipe = tmp_path / "homing.toml"
    os.mkfifo(pipe)
    process = _homing("config", "check", "--config", str(pipe))
    writer = os.open(pipe, os.O_WRONLY)  # returns once the command reads from it
    for _ in range(60):
        # One that comes just before the read begins is only seen when the read ends.
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
            break
    else:
        process.kill()
    _, told = process.communicate(timeout=60)
    os.close(writer)
    assert (process.returncode, told) == (130, "homing: interrupted\n")


def test_help_is_as_wide_as_the_terminal_is_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    for columns in ("60", "100", "60"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["request", "--help"]) == 0
        widths.append(max(map(len, capsys.readouterr().out.splitlines())))
    assert widths[0] == widths[2] < widths[1]


@pytest.mark.parametrize("compiling", [True, False])
def test_the_command_ends_at_once_under_a_compiler_at_work(
    compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would meet an interpreter that is being taken apart."""
    from homing.push.index import kernels

    ended: list[int] = []
    monkeypatch.setattr(kernels, "loading", lambda: compiling)
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(sys, "argv", ["homing", "no-such-verb"])
    assert main() == 64
    assert ended == ([64] if compiling else [])


def closed(redirection: str, *words: str) -> subprocess.Popen[bytes]:
    """The command, with some of its standard files closed."""
    script = f'exec "$@" {redirection}'
    argv = ["sh", "-c", script, "sh", sys.executable, "-m", "homing.cli", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_standard_files_that_are_closed_are_as_good_as_none() -> None:
    nobody = ["--endpoint", "tcp://127.0.0.1:1", "--timeout", "300ms"]
    for redirection, words, code in (
        (">&-", ["--help"], 0),
        (">&-", ["services", *nobody[:2]], 69),
        ("<&-", ["request", "echo", "-", *nobody], 69),
        ("<&- >&- 2>&-", ["request", "echo", "-", *nobody], 69),
    ):
        process = closed(redirection, *words)
        _, told = process.communicate(timeout=60)
        assert process.returncode == code, told
        assert b"internal error" not in told


def test_no_socket_takes_the_place_of_a_standard_file_that_is_closed(tmp_path: Path) -> None:
    """Whatever wrote to stderr would have written to a peer, or into the journal."""
    named = ["service.localfe", "service.localbe", "service.cloudfe", "service.statebe"]
    named += ["service.taskfe", "service.taskbe"]
    words = [f"--set={name}=tcp://127.0.0.1:0" for name in named]
    process = closed("<&- 2>&-", "broker", "--data", str(tmp_path), *words)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready broker")
        files = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert files == [os.devnull, os.devnull]
