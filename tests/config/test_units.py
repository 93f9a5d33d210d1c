"""Durations, sizes and endpoints as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.config import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2500ms", 2.5),
        ("30s", 30.0),
        ("30", 30.0),
        ("5min", 300.0),
        ("1.5h", 5400.0),
        ("7d", 604800.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("1MiB", 1 << 20), ("64kib", 1 << 16), ("2GB", 2 * 10**9), ("512", 512), ("1.5 KiB", 1536)],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "fast", "-1s", "1 parsec", "1e3s", "s", "٣s", "1s2s"])
def test_nonsense_is_refused_as_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|unknown unit"):
        units.parse_seconds(text)
    with pytest.raises(ValueError, match=r"expected|unknown unit"):
        units.parse_bytes(text)


@given(st.integers(0, 1 << 60))
def test_sizes_round_trip(size: int) -> None:
    assert units.parse_bytes(units.show_bytes(size)) == pytest.approx(size, rel=1e-15)


@given(st.integers(0, 10**9))
def test_durations_round_trip(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert units.parse_seconds(units.show_seconds(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["200us", "50ms", "2500ms", "90s", "5min", "1h", "7d", "0s", "0.0000002s"]
)
def test_durations_are_shown_as_people_write_them(text: str) -> None:
    assert units.show_seconds(units.parse_seconds(text)) == text


@pytest.mark.parametrize("unit", ["us", "ms"])
def test_small_durations_are_the_nearest_number(unit: str) -> None:
    exponent = {"us": -6, "ms": -3}[unit]
    assert all(
        units.parse_seconds(f"{number}{unit}") == float(f"{number}e{exponent}")
        for number in range(1, 2000)
    )


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:80", "tcp://[::1]:5555", "tcp://*:1", "ipc:///run/x", "host.example:0"]
)
def test_endpoints(endpoint: str) -> None:
    assert units.check_endpoint(endpoint) == endpoint


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1", "tcp://127.0.0.1:99999", "http://a:80", ":80", "a b:80", "ipc://"]
)
def test_wrong_endpoints(endpoint: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        units.check_endpoint(endpoint)


def test_ports_shift_and_unix_sockets_do_not() -> None:
    assert units.shift_port("tcp://127.0.0.1:5555", 100) == "tcp://127.0.0.1:5655"
    assert units.shift_port("[::1]:7001", -1) == "[::1]:7000"
    assert units.shift_port("127.0.0.1:0", 7) == "127.0.0.1:0"
    assert units.shift_port("ipc:///run/x", 7) == "ipc:///run/x"
    with pytest.raises(ValueError, match="does not exist"):
        units.shift_port("127.0.0.1:65000", 1000)
