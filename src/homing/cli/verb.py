"""What a verb's file is made of.

    \"\"\"Run a broker of the service plane.

    Examples:
      homing broker --name paris
    \"\"\"

    from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

    app = verb("broker", __doc__)


    @app.default
    def broker(*, name: str | None = None, flags: ConfigFlags = NO_FLAGS) -> None:
        \"\"\"Run a broker.\"\"\"
        config = flags.load({"service.name": name})

A verb with sub-verbs uses `@app.command` instead. The function may be async; what it
returns, if an int, is the exit code. Wrong input is raised as a homing error, never printed.
Boolean flags have no --no-… form unless `Parameter(negative="--no-…")` asks for one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from homing.cli.outcome import OK, USAGE, say

if TYPE_CHECKING:
    from rich.console import Console

    from homing.config import Config


def verb(name: str, doc: str | None) -> App:
    """The cyclopts app of a verb; the module's docstring is its help, `Examples:` and all."""
    text, _, examples = (doc or "").partition("Examples:\n")
    app = App(
        name=f"homing {name}",
        help=re.sub(r"(?<!\n)\n(?!\n)", " ", text.strip()),  # the terminal wraps, not the source
        help_format="plaintext",
        help_epilogue=f"Examples:\n{examples.rstrip()}" if examples else None,
        version_flags=(),
        default_parameter=Parameter(negative=(), show_default=_shown),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app["--help"].show = False
    return app


def _share_examples(app: App) -> None:
    """Each sub-verb shows those of its verb's examples that are about it."""
    lines = (app.help_epilogue or "").splitlines()
    for name in app:
        if not name.startswith("-"):
            own = [line for line in lines if f"{app.name[0]} {name}" in line]
            app[name].help_epilogue = "\n".join(["Examples:", *own]) if own else ""


def _shown(default: object) -> str | None:
    """A default that says something: that a flag is off and a list empty goes without saying."""
    return None if default is False or default in (None, "", ()) else str(default)


def invoke(app: App, words: Sequence[str]) -> int:
    """Run a verb; a wrong flag is told in one line.

    What goes wrong for good is raised, so warnings on the way (a broker that does not answer
    yet) are not printed; nodes log them, with homing.node.logs.
    """
    logging.getLogger("homing").addHandler(logging.NullHandler())
    console = None
    if "--help" in words or "-h" in words:
        console = _console()
        _share_examples(app)
    try:
        result = app(words, console=console, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        below = words[:1] if words and words[0] in app else []
        say(
            " ".join(str(error).split()),
            f"`{' '.join([*app.name, *below])} --help` shows its options",
        )
        return USAGE
    return result if isinstance(result, int) else OK


def seconds_of(text: str, flag: str = "--timeout") -> float:
    """Seconds, from what a flag says."""
    from homing.config.units import parse_seconds
    from homing.errors import ConfigError

    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise ConfigError([f"{flag}: {error}"], hint=f"for example {flag} 30s") from None
    if not seconds > 0:
        raise ConfigError(
            [f"{flag}: more than 0 seconds, not {text}"], hint=f"for example {flag} 30s"
        )
    return seconds


def misused(sentence: str) -> CycloptsError:
    """Flags that are each right and together are not: told like a wrong one."""
    return CycloptsError(msg=sentence)


def _console() -> Console:
    """As wide as the terminal is now: cyclopts keeps the first one it made."""
    from rich.console import Console

    return Console()


@Parameter(name="*")
@dataclass(frozen=True)
class ConfigFlags:
    """The flags that every verb with settings has."""

    config: Annotated[Path | None, Parameter(help="the homing.toml to read")] = None
    set: Annotated[
        tuple[str, ...],
        Parameter(help="any one setting: section.key=value", show_default=False),
    ] = ()

    def load(self, given: Mapping[str, Any] | None = None) -> Config:
        """The effective settings; `given` maps `section.key` to a flag's value or None."""
        from homing import config

        return config.load(self.config, flags=given or {}, assignments=self.set)


NO_FLAGS = ConfigFlags()
