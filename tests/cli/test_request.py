"""`homing request` against a real broker: answers, refusals, and what a newcomer gets wrong."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace

import pytest

import homing
from homing.cli import main
from homing.testing import fabric


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Where clients connect to a broker with a few services."""
    with fabric("service.heartbeat=200ms") as here:
        worker = homing.Worker(here.workers)

        @worker.service("total")
        def total(numbers: list[float]) -> float:
            return sum(numbers)

        @worker.service("upper")
        async def upper(body: bytes) -> bytes:
            return body.upper()

        @worker.service("count")
        async def count(upto: int) -> AsyncIterator[bytes]:
            for number in range(upto):
                yield b"%d;" % number

        with here.serving(worker):
            yield here.clients


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["total", "[1, 2, 3.5]"], b"6.5"),
        (["upper", "é!"], "é!".encode().upper()),
        (["count", "3", "--stream"], b"0;1;2;"),
        (["mmi.service", "upper"], b"200"),
        (["mmi.service", "nobody"], b"404"),
    ],
)
def test_the_answer_is_printed_as_it_is(
    words: list[str], answer: bytes, endpoint: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["request", *words, "--endpoint", endpoint]) == 0
    assert capfdbinary.readouterr() == (answer, b"")


def test_a_body_may_begin_with_hyphens(
    endpoint: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for body in ("-5x", "-----begin", "-- a comment"):
        assert main(["request", "upper", body, "--endpoint", endpoint]) == 0
        assert capfdbinary.readouterr() == (body.upper().encode(), b"")


@pytest.mark.parametrize("word", ["--strem", "--time-out", "--retry=3"])
def test_an_option_that_is_misspelt_is_no_body(
    word: str, endpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`upper` was asked for `--strem`, and answered."""
    assert main(["request", "upper", word, "--endpoint", endpoint]) == 64
    out, err = capfd.readouterr()
    told = f"homing: no such option: {word}; a body like that comes by standard input: -"
    assert (out, err.splitlines()[0]) == ("", told)


def test_the_body_comes_from_standard_input(
    endpoint: str,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff\x00piped")))
    assert main(["request", "upper", "-", "--endpoint", endpoint]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00PIPED"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["nobody", "x", "--timeout", "5s"], 69, "homing: "),
        (["total", "not json"], 65, "homing: "),
        (["total", "[1]", "--timeout", "soon"], 78, "--timeout: expected a duration"),
        ([], 64, "homing: "),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    words: list[str], code: int, told: str, endpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["request", *words, "--endpoint", endpoint]) == code
    output = capfd.readouterr()
    assert told in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_no_broker_there(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["request", "echo", "x", "--endpoint", "tcp://127.0.0.1:1", "--timeout", "300ms"]
    assert main(words) == 69
    assert "tcp://127.0.0.1:1" in capfd.readouterr().err
