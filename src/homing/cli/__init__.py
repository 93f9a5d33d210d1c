"""The `homing` command: one verb a file, found in the table below.

Only the chosen verb's module is imported, and `homing --help` imports none: it is printed
from the table. To add a verb, write `cli/<verb>.py` (see homing.cli.verb) and add its row.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NamedTuple

from homing.cli.outcome import USAGE, report, say

TYPE_CHECKING = False  # typing costs 5 ms here; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Sequence


class Verb(NamedTuple):
    """A row of the table: the verb, and what it is for in one line."""

    name: str
    purpose: str

    @property
    def module(self) -> str:
        return f"homing.cli.{self.name.replace('-', '_')}"


PLANES: dict[str, tuple[Verb, ...]] = {
    "The whole fabric": (
        Verb("up", "run a whole fabric here: both planes, journal and dashboard"),
        Verb("demo", "run the main job here: load, a kill, an audit, measured figures"),
    ),
    "Service plane": (
        Verb("broker", "run a broker: clients, workers, peers and tasks meet there"),
        Verb("request", "ask a service for something and print the report"),
        Verb("worker", "serve a service from the shell, by a command or an echo"),
        Verb("services", "list a broker's services: workers, free places, what waits"),
        Verb("task-worker", "serve tasks with a JSON header, by a command or an echo"),
    ),
    "Push plane": (
        Verb("matcher", "run a matcher: finds the subscribers that a publication is for"),
        Verb("dispatcher", "run a dispatcher: carries publications to connectors"),
        Verb("connector", "run a connector: holds the subscribers' connections"),
        Verb("authority", "run the authority: subscribers' tokens, over HTTP"),
        Verb("publish", "publish something, or many things from a file"),
        Verb("subscribe", "print the publications that a filter asks for"),
    ),
    "Journal and pipeline": (
        Verb("journal", "look into journals: what a node did, and whether it is whole"),
        Verb("pipeline", "run the Spark jobs: tables, audits and figures from the journal"),
    ),
    "This machine": (
        Verb("keys", "make CURVE key pairs, so that nodes know each other"),
        Verb("config", "show or check the settings, and where each one comes from"),
        Verb("doctor", "check that this machine can run homing, and say how to mend it"),
        Verb("completion", "print what a shell needs to complete the command"),
        Verb("version", "print the version of homing and of what it stands on"),
    ),
}

VERBS: dict[str, Verb] = {verb.name: verb for plane in PLANES.values() for verb in plane}

_EPILOGUE = """\
`homing VERB --help` shows a verb's options and examples. --debug (or HOMING_DEBUG=1)
prints tracebacks. Exit codes: 0 done, 1 a check failed, 64 wrong usage, 69 nobody there,
70 a bug, 75 try again, 77 not allowed, 78 wrong settings, 130 interrupted.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; everything that goes wrong ends here, as one line and an exit code."""
    if argv is None:
        _stand_in_for_closed_files()
    words = list(sys.argv[1:] if argv is None else argv)
    debug = _take_debug(words) or bool(os.environ.get("HOMING_DEBUG"))
    try:
        code = _run(words)
    except BaseException as error:
        code = report(error, debug=debug)
    if argv is None:
        _leave_the_compiler(code)
    return code


def _stand_in_for_closed_files() -> None:
    """/dev/null for each standard file that is closed: the next socket would have its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # in their order: each gets the lowest number that is free
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)  # for the commands we run, too
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _leave_the_compiler(code: int) -> None:
    """End without tidying up under a compiler that is at work in its thread: it would crash."""
    kernels = sys.modules.get("homing.push.index.kernels")
    if kernels is not None and kernels.loading():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_debug(words: list[str]) -> bool:
    """Remove --debug, wherever it stands before a lone `--`."""
    end = words.index("--") if "--" in words else len(words)
    if "--debug" not in words[:end]:
        return False
    words.remove("--debug")
    return True


def _run(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h", "help"):
        return _help(words[1:])
    if words[0] == "--version":
        words[0] = "version"
    verb = VERBS.get(words[0])
    if verb is None:
        return _unknown(words[0])
    from homing.cli.verb import invoke

    return invoke(import_module(verb.module).app, words[1:])


def _help(words: list[str]) -> int:
    """`homing help VERB` is `homing VERB --help`; without a verb, the table."""
    if words and words[0] in VERBS:
        return _run([words[0], "--help"])
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    width = max(map(len, VERBS))
    lines = [f"{bold}Usage:{plain} homing VERB [OPTIONS]", ""]
    for plane, verbs in PLANES.items():
        lines.append(f"{bold}{plane}{plain}")
        lines += [f"  {verb.name:<{width}}  {verb.purpose}" for verb in verbs]
        lines.append("")
    print("\n".join(lines) + "\n" + _EPILOGUE, end="")
    return 0


def _unknown(word: str) -> int:
    import difflib

    close = difflib.get_close_matches(word, VERBS, 1)
    hint = f"did you mean `homing {close[0]}`?" if close else "`homing --help` lists the verbs"
    say(f"there is no verb {word!r}", hint)
    return USAGE
