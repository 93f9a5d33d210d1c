"""How a command ends: one line that says what happened, a hint, and an exit code.

The codes are those of sysexits.h where one fits, so that a supervisor can tell a wrong
setting (do not restart) from a missing peer (try again).
"""

from __future__ import annotations

import errno
import os
import sys

from homing import errors
from homing.cli.parts import extra_of

OK = 0  # done
FAILED = 1  # the command ran; what it checked is not in order
USAGE = 64  # EX_USAGE: wrong flags or arguments
DATA = 65  # EX_DATAERR: input that has no meaning, or is corrupt
NO_INPUT = 66  # EX_NOINPUT: a file that is not there
UNAVAILABLE = 69  # EX_UNAVAILABLE: nobody answers, a port is taken, a part is missing
INTERNAL = 70  # EX_SOFTWARE: a bug in homing
IO = 74  # EX_IOERR: the disk or the network failed
TRY_AGAIN = 75  # EX_TEMPFAIL: refused for now
PROTOCOL = 76  # EX_PROTOCOL: the other side broke the protocol
NOT_ALLOWED = 77  # EX_NOPERM: key, token or file permission
CONFIG = 78  # EX_CONFIG: a setting is wrong
INTERRUPTED = 130  # 128 + SIGINT
PIPE = 141  # 128 + SIGPIPE: the reader of our output went away

# First match wins, so the particular comes before the general.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.ConfigError, CONFIG),
    (errors.HandshakeRefused, NOT_ALLOWED),
    (errors.LinkError, UNAVAILABLE),
    (errors.WireError, PROTOCOL),
    (errors.NoService, UNAVAILABLE),
    (errors.Denied, NOT_ALLOWED),
    (errors.TooLarge, DATA),
    (errors.Malformed, DATA),
    (errors.Refused, TRY_AGAIN),
    (errors.SubscriptionError, DATA),
    (errors.CorruptSegment, DATA),
    (errors.JournalError, IO),
    (errors.NoSpark, UNAVAILABLE),
    (errors.PipelineError, FAILED),
    (errors.HomingError, FAILED),
    (FileNotFoundError, NO_INPUT),
    (PermissionError, NOT_ALLOWED),
    (ConnectionError, UNAVAILABLE),
    (OSError, IO),
)

_NAMED_HINTS = {
    errno.EADDRINUSE: "another process has the port: `homing doctor` names the ports, "
    "--port-offset moves all of them",
    errno.EADDRNOTAVAIL: "this machine has no such address: bind to 127.0.0.1, 0.0.0.0 or one of its own",
    errno.EMFILE: "too many open files: raise `ulimit -n`, see `homing doctor`",
    errno.ENOSPC: "the disk is full",
}

# What Py4J says before the error that Java raised, and Java before what caused one.
_CALLING, _CAUSE = "An error occurred while calling", "Caused by: "


def say(message: str, hint: str = "") -> None:
    """`homing: what happened` on stderr, and below it what to do."""
    print(f"homing: {message}", file=sys.stderr)
    if hint:
        print(f"  hint: {hint}", file=sys.stderr)


def report(error: BaseException, *, debug: bool) -> int:
    """Tell the user what ended the command; the exit code for it."""
    # A table's printer turns a broken pipe into an exit of its own.
    told = error.__context__ if isinstance(error, SystemExit) else error
    if isinstance(told, BrokenPipeError):
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE
    if isinstance(error, SystemExit):
        return _system_exit(error)
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        return _missing(error.name)
    code = _exit_code_of(error)
    if code == INTERNAL:
        say(
            f"internal error: {type(error).__name__}: {error}",
            "this is a bug in homing; run it again with --debug and report what it prints",
        )
    else:
        say(_line(error), _hint(error))
    return code


def _exit_code_of(error: BaseException) -> int:
    if _is_spark_s(error):
        return FAILED
    taken = isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
    return UNAVAILABLE if taken else exit_code(type(error))


def _is_spark_s(error: BaseException) -> bool:
    """Whether Spark raised it: a condition that it does not understand, a disk that is full."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def exit_code(kind: type[BaseException]) -> int:
    """The exit code for an error of this class; what homing does not raise itself is a bug."""
    return next((code for known, code in _EXIT_CODES if issubclass(kind, known)), INTERNAL)


def _system_exit(error: SystemExit) -> int:
    if isinstance(error.code, str):
        say(error.code)
        return FAILED
    return error.code if isinstance(error.code, int) else OK


def _missing(module: str) -> int:
    package = module.partition(".")[0]
    extra = extra_of(package)
    if extra is None:
        say(
            f"internal error: no module named {module}",
            "is homing installed whole? `pip install homing`",
        )
        return INTERNAL
    say(f"this needs the package {package}", f"pip install 'homing[{extra}]'")
    return UNAVAILABLE


def _line(error: BaseException) -> str:
    if isinstance(error, errors.ConfigError) and len(error.problems) > 1:
        return "\n  ".join([f"{len(error.problems)} settings are wrong", *error.problems])
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    if _is_spark_s(error):
        return _told_by_spark(str(error))
    return str(error)


def _told_by_spark(text: str) -> str:
    """Of a message with a plan or stacks of Java behind it: what was wrong, and what caused that in the end."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [text]
    if lines[0].startswith(_CALLING) and len(lines) > 1:
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return "; ".join([lines[0], *causes[-1:]])


def _hint(error: BaseException) -> str:
    if isinstance(error, errors.HomingError):
        return error.hint
    return _NAMED_HINTS.get(getattr(error, "errno", None) or 0, "")
