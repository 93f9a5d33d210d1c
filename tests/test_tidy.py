"""The house stays tidy: what a reviewer would say every time, said by a test instead."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("src", "tests", "benchmarks", "fuzz", "scripts", "examples")
ADRS = ROOT / "docs" / "design" / "adr"

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
# A numba kernel is one nest of loops over arrays it takes as arguments, one a line.
MAX_KERNEL_LINES = 100
# Names that say nothing: what is in there has a name of its own.
BANNED = re.compile(r"(?:^|_)(utils?|helpers?|managers?|handlers?|misc|common|stuff)(?:_|$)")
# A path of somebody's machine in a file of the project. Spelt in pieces, to pass by itself.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/[a-z]", "bash_" + "jobs"])
)


@cache
def _tracked() -> tuple[Path, ...]:
    """Files of the project: tracked by git and still there."""
    told = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return tuple(path for name in told.split("\0") if name and (path := ROOT / name).is_file())


@cache
def _python() -> tuple[Path, ...]:
    return tuple(path for path in _tracked() if path.suffix == ".py" and _room(path) in ROOMS)


def _room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def _told(path: Path, line: int = 1) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_there_is_something_to_look_at() -> None:
    assert len(_python()) > 50


def test_files_are_short() -> None:
    long = {_told(path): count for path in _python() if (count := _lines(path)) > MAX_FILE_LINES}
    assert not long, f"split them by what they are about: {long}"


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_functions_are_short() -> None:
    long = [
        f"{_told(path, node.lineno)} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in _python()
        for node in _definitions(path)
        if not isinstance(node, ast.ClassDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= _most_lines(node)
    ]
    assert not long


def _most_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    decorators = {ast.unparse(one).partition("(")[0] for one in node.decorator_list}
    return MAX_KERNEL_LINES if decorators & {"kernel", "njit", "numba.njit"} else MAX_FUNCTION_LINES


def test_a_constant_is_given_once() -> None:
    """A second one of the same name takes the place of the first, for those above it too."""
    for path in _python():
        given = [
            target.id
            for node in _tree(path).body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and target.id.isupper()
        ]
        twice = {name for name in given if given.count(name) > 1}
        assert not twice, f"{_told(path)}: {twice}"


def test_names_say_what_a_thing_is() -> None:
    files = [_told(path) for path in _python() if BANNED.search(path.stem)]
    folders = [_told(path) for path in _python() if BANNED.search(path.parent.name)]
    names = [
        f"{_told(path, node.lineno)} {node.name}"
        for path in _python()
        for node in _definitions(path)
        if BANNED.search(_snake(node.name))
    ]
    assert not files + folders + names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_every_module_and_public_class_says_what_it_is() -> None:
    silent = [_told(path) for path in _python() if not ast.get_docstring(_tree(path))]
    silent += [
        f"{_told(path, node.lineno)} {node.name}"
        for path in _python()
        if _room(path) == "src"
        for node in _definitions(path)
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not silent


def test_docstrings_begin_with_one_line() -> None:
    """Enough for someone who knows the field; the rest comes after an empty line."""
    broken = [
        f"{_told(path, getattr(node, 'lineno', 1))} {doc.splitlines()[0]!r}"
        for path in _python()
        if _room(path) == "src"
        for node in (_tree(path), *_definitions(path))
        if (doc := ast.get_docstring(node)) and len(doc.splitlines()) > 1 and doc.splitlines()[1]
    ]
    assert not broken


def test_imports_are_absolute_and_whole() -> None:
    wrong = [
        _told(path, node.lineno)
        for path in _python()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ImportFrom)
        and (node.level or any(alias.name == "*" for alias in node.names))
    ]
    assert not wrong


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    named = []
    for path in _tracked():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        named += [_told(path, n) for n, line in enumerate(lines, 1) if MACHINE_PATHS.search(line)]
    assert not named


def test_nothing_is_left_to_do_in_secret() -> None:
    """An open end belongs into an issue, where it is seen."""
    marks = re.compile(r"#\s*(TODO|FIXME|XXX|HACK)\b")
    left = [
        _told(path, number)
        for path in _python()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if marks.search(line)
    ]
    assert not left


def test_nothing_is_taken_from_the_front_of_a_dict() -> None:
    """The front is found behind all places that were taken before: an OrderedDict has it at hand."""
    front = re.compile(r"(del [\w.]+\[|\bpop\()next\(iter\(")
    taken = [
        _told(path, number)
        for path in _python()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if front.search(line)
    ]
    assert not taken


def _contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_what_calls_itself_pure_is_held_to_it() -> None:
    """A module whose docstring says `Pure.` stands in an import-linter contract."""
    held = {name for contract in _contracts() for name in contract.get("source_modules", [])}
    loose = [
        _module(path)
        for path in _python()
        if _room(path) == "src"
        and re.search(r"\bPure[.:]", ast.get_docstring(_tree(path)) or "")
        and not any(_module(path) == name or _module(path).startswith(f"{name}.") for name in held)
    ]
    assert not loose, "add them to `pure rooms ask nothing of the machine` in pyproject.toml"


def test_contracts_name_modules_that_exist() -> None:
    modules = {_module(path) for path in _python() if _room(path) == "src"}
    named = {name for contract in _contracts() for name in contract.get("source_modules", [])}
    assert not named - modules


def test_every_room_stands_in_the_layers() -> None:
    layers = " ".join(name for contract in _contracts() for name in contract.get("layers", []))
    rooms = {_module(path).split(".")[1] for path in _python() if "." in _module_or_none(path)}
    assert not {room for room in rooms if f"(homing.{room})" not in layers}


def _module_or_none(path: Path) -> str:
    return _module(path) if _room(path) == "src" else ""


def test_decisions_are_numbered_once_and_have_the_three_parts() -> None:
    records = sorted(path for path in _tracked() if path.parent == ADRS and path.stem != "index")
    assert records
    numbers = [path.name[:4] for path in records]
    assert sorted(set(numbers)) == numbers, "two decisions have one number"
    for path in records:
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name), path.name
        text = path.read_text(encoding="utf-8")
        assert re.match(rf"# {path.name[:4]}\W", text), (
            f"{path.name}: begin with `# {path.name[:4]} …`"
        )
        for part in ("context", "decision", "consequences"):
            assert re.search(rf"(?im)^(#+ |\*\*){part}", text), f"{path.name} has no {part}"


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"])
def test_the_papers_are_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_changelog_has_a_place_for_what_comes() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
