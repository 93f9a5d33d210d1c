"""Endpoints in every form people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.endpoint import Endpoint, parse_endpoint
from homing.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp://127.0.0.1:5555", Endpoint("127.0.0.1", 5555)),
        ("127.0.0.1:7001", Endpoint("127.0.0.1", 7001)),
        ("tcp://broker.example:5555", Endpoint("broker.example", 5555)),
        ("tcp://*:5555", Endpoint("", 5555)),
        ("tcp://127.0.0.1:*", Endpoint("127.0.0.1", 0)),
        ("tcp://[::1]:5555", Endpoint("::1", 5555)),
        ("ipc:///run/homing.sock", Endpoint("", 0, "/run/homing.sock")),
        ("unix:///run/homing.sock", Endpoint("", 0, "/run/homing.sock")),
        ("ipc://@name", Endpoint("", 0, "\0name")),
    ],
)
def test_forms(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        *("", "tcp://", "host", "host:", "host:x", "host:65536", "host:-1", "::1:5555", "host:²"),
        *("udp://h:1", "ipc://", "ipc://@", "ipc://" + "p" * 200),
        "host:" + "9" * 5_000,
    ],
)
def test_what_is_no_endpoint_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_endpoint(text)
    assert repr(text) in caught.value.problems[0]


@given(st.text(max_size=40))
def test_any_text_is_an_endpoint_or_a_config_error(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except ConfigError:
        return
    assert endpoint.path or 0 <= endpoint.port < 65536
