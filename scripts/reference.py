"""Write docs/reference/ from the code, so that the pages cannot say anything else.

    python -m scripts.reference           # write every page (make reference)

tests/docs/test_reference.py fails while a page on disk differs from what this makes.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from homing import errors, metrics
from homing.cli import PLANES, Verb, main, outcome
from homing.config.catalogue import SETTINGS
from homing.config.settings import SECTIONS
from homing.node.instruments import METRICS

PAGES = Path(__file__).parents[1] / "docs" / "reference"
HELP_COLUMNS = "88"  # what fits a page of the site without scrolling

CONFIG_HEAD = """\
# Settings

Every setting of homing with its default, what it takes and why. Values are taken from, later
before earlier: the defaults below, `homing.toml` (in the working directory, at
`$HOMING_CONFIG`, or where `--config` says), environment variables `HOMING_SECTION_KEY`, and
flags (`--set section.key=value` sets anything).

```toml
[service]
name = "paris"
heartbeat = "2500ms"
peers = ["london=tcp://london.example:5557"]
```

Durations take `us`, `ms`, `s`, `min`, `h`, `d`; sizes take `KiB`, `MiB`, `GiB` and their
decimal cousins; lists in environment variables are separated by commas. A wrong config is
refused whole, with every mistake in it, its file and its line. `homing config show` prints
what is in effect and where it came from.
"""

METRICS_HEAD = f"""\
# Metrics

A node with `node.metrics` set serves these to Prometheus at `/metrics` (text or OpenMetrics, as the
scraper asks), with `/livez` and `/readyz` beside it, and the figures of its process (`process_*`,
`python_*`). Each is there only where its role counts it. Label values that come from outside are bounded: past
{metrics.MAX_CHILDREN} children of one metric the rest share one labelled `{metrics.OVERFLOW}`.

| metric | kind | unit | labels | meaning |
|---|---|---|---|---|"""

CLI_HEAD = """\
# The homing command

Each verb as its own `--help` shows it. A verb that fails says what happened in one line on
stderr, what to do about it in a second, and ends with one of the exit codes below; a traceback
appears only with `--debug` or `HOMING_DEBUG=1`.
"""

ERRORS_HEAD = """\
# Errors

Everything homing raises on purpose is a `homing.HomingError` with a stable `code`, a `hint`
that says what to do, and `retryable`: whether the same call may succeed later without anyone
changing anything. NAK codes on the wire are the codes of the classes below `Refused`. The last
column is the exit code of the `homing` command.

| class | code | retryable | exit code | meaning |
|---|---|---|---|---|"""


def config_page() -> str:
    """Every setting, a table a section."""
    return "\n".join([CONFIG_HEAD, *_config_tables()])


def _config_tables() -> Iterator[str]:
    for section, kind in SECTIONS.items():
        yield f"## {section}\n\n{inspect.cleandoc(kind.__doc__ or '')}\n"
        yield "| setting | default | takes | why |\n|---|---|---|---|"
        for one in SETTINGS.values():
            if one.section == section:
                yield _row(f"`{one.key}`", f"`{one.show(one.default)}`", one.takes(), one.reason)
        yield ""


def metrics_page() -> str:
    """Every metric that is declared."""
    rows = [
        _row(f"`{one.name}`", one.kind, one.unit or "–", ", ".join(one.labels) or "–", one.help)
        for one in METRICS
    ]
    return "\n".join([METRICS_HEAD, *rows, ""])


def errors_page() -> str:
    """The exception tree, depth shown by dots."""
    return "\n".join([ERRORS_HEAD, *_error_rows(errors.HomingError, 0), ""])


def _error_rows(kind: type[errors.HomingError], depth: int) -> Iterator[str]:
    meaning = inspect.cleandoc(kind.__doc__ or "").splitlines()[0]
    retryable = "yes" if kind.retryable else "no"
    yield _row(
        f"{'· ' * depth}`{kind.__name__}`",
        f"`{kind.code}`",
        retryable,
        str(outcome.exit_code(kind)),
        meaning,
    )
    for heir in kind.__subclasses__():
        if heir.__module__ == errors.__name__:
            yield from _error_rows(heir, depth + 1)


def cli_page() -> str:
    """The help of every verb and sub-verb, and the exit codes."""
    parts = [CLI_HEAD, "## Exit codes\n\n| code | meaning |\n|---|---|"]
    parts += [_row(code, meaning) for code, meaning in _exit_codes()]
    parts.append("")
    for plane, verbs in PLANES.items():
        parts.append(f"## {plane}\n")
        for verb in verbs:
            parts.append(_verb("###", verb.name))
            parts += [_verb("####", verb.name, below) for below in _below(verb)]
    return "\n".join(parts)


def _verb(level: str, *words: str) -> str:
    return f"{level} homing {' '.join(words)}\n\n```text\n{_help(*words)}\n```\n"


def _below(verb: Verb) -> list[str]:
    """The sub-verbs of a verb that has some."""
    return sorted(name for name in import_module(verb.module).app if not name.startswith("-"))


def _exit_codes() -> Iterator[tuple[str, str]]:
    """Code and comment of each constant of homing.cli.outcome."""
    for line in inspect.getsource(outcome).splitlines():
        name, equals, rest = line.partition(" = ")
        if equals and name.isupper() and "#" in rest:
            code, _, comment = rest.partition("  # ")
            yield code, comment


def _help(*words: str) -> str:
    os.environ["COLUMNS"] = HELP_COLUMNS
    with contextlib.redirect_stdout(io.StringIO()) as told:
        main([*words, "--help"])
    lines = [line.rstrip() for line in told.getvalue().strip().splitlines()]
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


MAKERS: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "config.md": config_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
}


if __name__ == "__main__":
    PAGES.mkdir(parents=True, exist_ok=True)
    for name, make in MAKERS.items():
        (PAGES / name).write_text(make())
        print(f"wrote docs/reference/{name}")
