"""The words of `homing publish`: a value that reads as a number or a truth is one, everything else is text."""

from __future__ import annotations

import pytest

from homing.cli.publish import parse_attributes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("true", True),
        ('"01"', "01"),
        ("01", "01"),
        ("null", "null"),
        ("[1]", "[1]"),
        ("[" * 60_000, "[" * 60_000),
        (
            "\udcff",
            "\udcff",
        ),  # what the shell gives for a byte that is no UTF-8: refused further on
    ],
)
def test_a_value_is_what_it_reads_as(text: str, value: object) -> None:
    assert parse_attributes((f"a={text}",)) == {"a": value}
