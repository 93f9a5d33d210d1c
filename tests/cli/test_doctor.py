"""`homing doctor`: every check in both its outcomes, and the exit code."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest

from homing.cli import checkup, main
from homing.cli.checkup import Finding, examine
from homing.config import Config, load

DiskUsage = namedtuple("DiskUsage", "total used free")


def _config(**flags: object) -> Config:
    given = {name.replace("__", "."): value for name, value in flags.items()}
    return load(flags=given, environment={})


def _finding(name: str, config: Config | None = None) -> Finding:
    found = [one for one in examine(config or _config()) if one.name == name]
    assert len(found) == 1, name
    return found[0]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_everything_that_is_not_in_order_comes_with_a_fix() -> None:
    findings = examine(_config())
    assert len(findings) >= len(checkup.CHECKS) - 1  # a check of named files may find nothing
    assert all(finding.fix for finding in findings if finding.state != "ok")
    assert not any(finding.fix for finding in findings if finding.state == "ok")


def test_an_old_python_stops_homing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "MIN_PYTHON", (99, 0))
    assert _finding("python").stops_homing


def test_a_missing_extra_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "SERVER", ("numpy", "no_such_package"))
    finding = _finding("server packages")
    assert (finding.state, finding.stops_homing) == ("lacking", False)
    assert "no_such_package" in finding.found
    assert "homing[server]" in finding.fix


def test_the_kernels_cache_is_where_they_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from homing.push.index.kernels import _cache_directory

    monkeypatch.setenv("HOMING_CACHE_DIR", str(tmp_path / "kept"))
    assert _finding("kernel cache").found == str(tmp_path / "kept")
    assert _cache_directory().is_relative_to(tmp_path / "kept")


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        taken = f"{host}:{port}"
        finding = _finding("ports", _config(push__publishers=taken))
        assert finding.state == "lacking"
        assert f"{taken} (push.publishers)" in finding.found
        assert "port_offset" in finding.fix


def test_a_socket_s_file_is_taken_while_somebody_listens(tmp_path: Path) -> None:
    path = tmp_path / "be"
    where = f"tcp://127.0.0.1:0,ipc://{path}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        finding = _finding("ports", _config(service__localbe=where))
        assert finding.state == "lacking"
        assert f"ipc://{path} (service.localbe)" in finding.found
    left = _finding("ports", _config(service__localbe=where))
    assert "service.localbe" not in left.found, "a file that a dead broker left is none"


def _java(directory: Path, version: str) -> None:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok"),
        ('openjdk version "21" 2023-09-19', "ok"),
        ('java version "1.8.0_202"', "lacking"),
        ('openjdk version "11.0.2"', "lacking"),
        ("segmentation fault", "lacking"),
    ],
)
def test_java_versions(
    told: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _java(tmp_path, told)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert _finding("java").state == state


def test_no_java_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = _finding("java")
    assert finding.state == "lacking"
    assert "install Java 17" in finding.fix


@pytest.mark.parametrize(("hard", "state"), [(1 << 20, "ok"), (4096, "lacking"), (64, "broken")])
def test_open_files(hard: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, hard))
    assert _finding("open files").state == state


@pytest.mark.parametrize(("error", "state"), [(None, "ok"), (errno.EPERM, "lacking")])
def test_io_uring(error: int | None, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def volley() -> io.BytesIO:
        if error is not None:
            raise OSError(error, os.strerror(error))
        return io.BytesIO()

    monkeypatch.setattr(checkup, "Volley", volley)
    finding = _finding("io_uring")
    assert finding.state == state
    assert ("io_uring_disabled" in finding.fix) is (error is not None)


@pytest.mark.parametrize(
    ("free", "state"), [(1 << 40, "ok"), (500 << 20, "lacking"), (1 << 20, "broken")]
)
def test_disk_space(free: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: DiskUsage(1 << 41, 0, free))
    assert _finding("data directory").state == state


def test_a_data_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert _finding("data directory", _config(node__data="data")).stops_homing


def test_a_key_file_that_is_not_there_is_named_with_its_origin() -> None:
    finding = _finding("security.key_file", _config(security__key_file="none.key"))
    assert finding.stops_homing
    assert "--key-file" in finding.fix


def test_exit_code_is_one_only_for_what_is_required(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = Finding("serf", "lacking", "none", "apt-get install serf")
    broken = Finding("python", "broken", "3.8", "install Python 3.11", required=True)
    monkeypatch.setattr(checkup, "CHECKS", (lambda _config: [lacking],))
    assert main(["doctor"]) == 0
    assert "homing can run here (lacking, and optional: serf)" in capsys.readouterr().out
    monkeypatch.setattr(checkup, "CHECKS", (lambda _config: [lacking, broken],))
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "fix: install Python 3.11" in told
    assert "1 to mend before homing can run" in told


def test_json_is_the_findings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"name", "state", "found", "fix", "required"} == set(told[0])
    assert {"python", "ports", "java"} <= {one["name"] for one in told}
