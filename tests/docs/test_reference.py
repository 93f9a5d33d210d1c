"""The generated pages say what the code says."""

from __future__ import annotations

import pytest

from scripts.reference import MAKERS, PAGES


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_page_is_what_the_code_makes_of_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "")  # put back whatever the maker sets
    assert (PAGES / name).read_text(encoding="utf-8") == MAKERS[name](), "run: make reference"
