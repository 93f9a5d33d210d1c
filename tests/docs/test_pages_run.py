"""What README and docs show is executed, and prints what they show."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import Step, printed_as_shown, steps
from tests.docs.shell import Shell

ROOT = Path(__file__).parents[2]
PROFILE = os.environ.get("HOMING_TEST_PROFILE", "ci")
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
    if "<!-- runs" in path.read_text(encoding="utf-8")
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    _run(page, tmp_path)


def _run(page: Path, directory: Path) -> None:
    with Shell(directory) as shell:
        for step in steps(page):
            if step.nightly and PROFILE != "nightly":
                continue
            _take(step, shell, directory, f"{page.name}:{step.line}")


def _take(step: Step, shell: Shell, directory: Path, where: str) -> None:
    if step.kind == "file":
        (directory / step.expected).write_text(step.text)
        return
    command = step.text
    if step.kind == "program":
        (directory / "program.py").write_text(step.text)
        command = f"{shlex.quote(sys.executable)} program.py"
    if step.in_checkout:
        command = f"(cd {shlex.quote(str(ROOT))} && {command})"
    code, printed = shell.run(command)
    assert code == 0, f"{where}: {step.text}\nexit code {code}, printed:\n{printed}"
    if step.expected:
        assert printed_as_shown(printed, step.expected), (
            f"{where}: {step.text}\nthe page shows:\n{step.expected}\nit printed:\n{printed}"
        )


def _page(directory: Path, text: str) -> Path:
    page = directory / "page.md"
    page.write_text(text)
    return page


def test_a_page_that_lies_is_found(tmp_path: Path) -> None:
    lie = "<!-- runs -->\n```console\n$ echo one\ntwo\n```\n"
    with pytest.raises(AssertionError, match="the page shows"):
        _run(_page(tmp_path, lie), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- runs -->\n```console\n$ false\n```\n",
        "<!-- runs -->\n```console\n$ exit 3\n```\n",
        "<!-- runs -->\n```python\nassert 1 == 2\n```\n",
    ],
)
def test_a_block_that_fails_is_found(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="exit code"):
        _run(_page(tmp_path, text), tmp_path)


def test_a_page_shares_its_directory_and_its_shell(tmp_path: Path) -> None:
    text = (
        "<!-- file: a.toml -->\n```toml\nx = 1\n```\n\n"
        "<!-- runs -->\n```console\n$ cat a.toml\nx = 1\n$ NAME=homing\n$ sleep 60 &\n```\n"
        "<!-- runs -->\n```console\n$ echo a-$NAME-b\na-…-b\n$ seq 5\n1\n…\n5\n$ echo \\\n> long\nlong\n```\n"
        "<!-- runs -->\n```python\nimport pathlib\nassert pathlib.Path('a.toml').exists()\n```\n"
    )
    _run(_page(tmp_path, text), tmp_path)


def test_figures_may_vary_where_a_page_says_so(tmp_path: Path) -> None:
    block = "```console\n$ echo 1,234 requests in 5.5 s.\n987 requests in 1.25 s.\n```\n"
    _run(_page(tmp_path, f"<!-- runs, figures vary -->\n{block}"), tmp_path)
    with pytest.raises(AssertionError, match="the page shows"):
        _run(_page(tmp_path, f"<!-- runs -->\n{block}"), tmp_path)
    words = block.replace("987 requests", "987 letters")
    with pytest.raises(AssertionError, match="the page shows"):
        _run(_page(tmp_path, f"<!-- runs, figures vary -->\n{words}"), tmp_path)


def test_a_mark_without_a_block_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no fenced block"):
        steps(_page(tmp_path, "<!-- runs -->\n\nwords\n\n```console\n$ true\n```\n"))


def test_dots_stand_for_anything() -> None:
    assert printed_as_shown("a 12 ms\nb\n", "a … ms\nb\n")
    assert printed_as_shown("a\nx\ny\nb", "a\n…\nb\n")
    assert not printed_as_shown("a\nb\nc\n", "a\nb\n")
    assert not printed_as_shown("a 1\n", "a\n")
