"""A cluster that does not answer is told before anything is started for it, and while it is waited for."""

from __future__ import annotations

import socket
import threading

import pytest

from homing.cli import pipeline_flags
from homing.errors import NoSpark, PipelineError
from homing.pipeline import jvm
from homing.pipeline.masters import check, unanswered
from homing.pipeline.session import connect


def refusing() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def test_who_refuses_is_named_before_a_jvm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(jvm, "launch")
    for place in (f"spark://127.0.0.1:{refusing()}", f"sc://127.0.0.1:{refusing()}/;token=x"):
        remote = place if place.startswith("sc://") else None
        with pytest.raises(NoSpark, match=r"no Spark answers at 127\.0\.0\.1:\d+: .*refused"):
            connect(place, remote=remote)


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        check(f"spark://127.0.0.1:{refusing()},{there}")
        check(f"sc://{there}")
        check(f"sc://{there}/;token=a,b")


@pytest.mark.parametrize("place", ["spark://host", "spark://", "spark://host:x", "sc://:15002"])
def test_what_names_no_place_is_told(place: str) -> None:
    with pytest.raises(PipelineError, match="a place of Spark is"):
        check(place)


@pytest.mark.parametrize(
    "master", ["bogus", "", "local[0]", "local[x]", "local[2", "YARN", "mesos://h:1"]
)
def test_what_spark_does_not_know_is_told_before_a_jvm_starts(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.delattr(jvm, "launch")
    with pytest.raises(PipelineError, match="no Spark master is called"):
        connect(master)


def test_others_are_sparks_own_business(monkeypatch: pytest.MonkeyPatch) -> None:
    for master in (
        *(
            "local",
            "local[2]",
            "local[*]",
            "local[2, 3]",
            "local[*,1]",
            "local-cluster[2, 1, 1024]",
        ),
        *("yarn", "k8s://https://host:443"),
    ):
        check(master)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    check(f"sc://127.0.0.1:{refusing()}")  # gRPC goes by the proxy


def test_a_master_that_took_no_application() -> None:
    stopped = RuntimeError("Cannot call methods on a stopped SparkContext.\nmore")
    found = unanswered("spark://host:7077", stopped)
    assert found is not None
    assert "no application within a minute" in str(found)
    assert unanswered("local[2]", stopped) is None
    assert unanswered("spark://host:7077", RuntimeError("something else")) is None


def test_people_are_told_for_whom_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    heard = threading.Event()

    def say(told: str) -> None:
        said.append(told)
        heard.set()

    monkeypatch.setattr(pipeline_flags, "say", say)
    monkeypatch.setattr(pipeline_flags, "PATIENCE", 0.0)
    with pipeline_flags.waiting_for("spark://host:7077"):
        assert heard.wait(60)
    assert said[0].startswith("waiting for Spark at spark://host:7077, since ")
    with pipeline_flags.waiting_for("local[2]"):
        pass
    assert len(said) == 1
