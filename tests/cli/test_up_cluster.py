"""`homing up --cluster`: a table when all nodes are ready, nothing left behind, clear refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from homing.cli.verb import NO_FLAGS
from homing.cluster.static import parse_members
from homing.config import Config, load
from homing.node.cluster import lay_out
from tests.push.processes import free_offset

UP = (sys.executable, "-m", "homing.cli", "up")


def test_nodes_know_each_other_and_share_one_key(tmp_path: Path) -> None:
    given = {"node.data": str(tmp_path), "node.port_offset": 1000}
    nodes = lay_out(lambda more: NO_FLAGS.load({**given, **more}), 3, serf=False)
    assert [node.config.node.port_offset for node in nodes] == [1000, 1100, 1200]
    loaded = [_loaded(node.variables) for node in nodes]
    assert len({config.security.token_key for config in loaded}) == 1
    members = [parse_members(config.cluster.members) for config in loaded]
    assert members[0] == members[1] == members[2]
    assert len({member.id for member in members[0]}) == 3
    assert members[0][1].endpoints["publishers"] == "127.0.0.1:8101"
    assert loaded[0].service.peers == (
        "node-2=tcp://127.0.0.1:6657|tcp://127.0.0.1:6658",
        "node-3=tcp://127.0.0.1:6757|tcp://127.0.0.1:6758",
    )
    again = lay_out(lambda more: NO_FLAGS.load({**given, **more}), 3, serf=False)
    assert [node.variables for node in again] == [node.variables for node in nodes]


def _loaded(variables: dict[str, str]) -> Config:
    return load(environment=variables)


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (64, ["--cluster", "1"], "2 to 9 nodes"),
        (78, ["--cluster", "2", "--serf"], "no serf to run"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(
    tmp_path: Path, code: int, words: list[str], told: str
) -> None:
    ended = subprocess.run(
        [*UP, *words, "--data", str(tmp_path)],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == code
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_cluster_comes_up_and_drains(tmp_path: Path) -> None:
    words = ["--cluster", "2", "--no-serf", "--data", str(tmp_path)]
    words += ["--port-offset", str(free_offset()), "--set", "dashboard.enabled=false"]
    process = subprocess.Popen(
        [*UP, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if line.startswith("ready"):
                break
        assert told[-1] == "ready cluster\n", process.communicate()[1]
        assert "membership: a fixed list\n" in told
        assert sum("node-" in line for line in told) == 2
        children = (
            Path(f"/proc/{process.pid}/task/{process.pid}/children")
            .read_text(encoding="utf-8")
            .split()
        )
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()
        process.communicate()
