"""The loader of recorded bytes reads what it says, and refuses the rest with a line."""

from __future__ import annotations

import pytest

from tests.compat import parse


def test_reads_hex_text_repeats_and_comments() -> None:
    assert parse('ff 8*00 7f  # signature "not text"\n0d0a "a \\"b\\" \\\\"') == (
        b"\xff" + bytes(8) + b"\x7f" + b'\r\na "b" \\'
    )


@pytest.mark.parametrize("text", ["\n\nf", "\n\n0x01", '\n\n"open', "\n\nzz"])
def test_refuses_anything_else_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"sample\.hex:3"):
        parse(text, "sample")
