"""Z85 against RFC 32's own example, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.wire.z85 import from_z85, z85


def test_the_example_of_rfc_32() -> None:
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert from_z85("HelloWorld") == bytes.fromhex("864fd26fb559f75b")


@given(st.binary(max_size=64).filter(lambda data: len(data) % 4 == 0))
def test_there_and_back(data: bytes) -> None:
    assert from_z85(z85(data)) == data


@pytest.mark.parametrize("text", ["four", "quot'", "     ", "#####"])
def test_what_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not Z85"):
        from_z85(text)


def test_only_whole_groups_are_encoded() -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        z85(b"abc")
