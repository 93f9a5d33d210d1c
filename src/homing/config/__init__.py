"""The settings: defaults < homing.toml < HOMING_* < flags.

`settings` holds every one of them with its reason, `sources` says which value wins and what
is wrong, `lines` finds the line of a TOML key, `units` reads "30s" and "1MiB".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from homing.config.settings import Config
from homing.config.sources import Given, from_environment, from_flags, from_toml, merge

__all__ = ["Config", "load"]

DEFAULT_FILE = "homing.toml"

# A config is read whole; one beyond this is a wrong file, not a long config.
MAX_FILE_BYTES = 1 << 20


def load(
    path: Path | str | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    assignments: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The effective settings of this process; ConfigError names everything that is wrong.

    The file is `path`, or $HOMING_CONFIG, or ./homing.toml if there is one. `flags` maps
    `section.key` to a value (None: not given); `assignments` are `section.key=value` texts.
    """
    variables = os.environ if environment is None else environment
    problems: list[str] = []
    givens = [
        *_from_file(path, variables, problems),
        *from_environment(variables),
        *from_flags(flags or {}, assignments, problems),
    ]
    return merge(givens, problems)


def _from_file(
    path: Path | str | None, variables: Mapping[str, str], problems: list[str]
) -> Iterable[Given]:
    asked = path or variables.get("HOMING_CONFIG")
    file = Path(asked or DEFAULT_FILE)
    if not asked and not file.exists():
        return ()
    text = _read(file, problems)
    return from_toml(text, str(file), problems)


def _read(file: Path, problems: list[str]) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
        if len(content) <= MAX_FILE_BYTES:
            return content.decode()
        problems.append(f"{file}: larger than {MAX_FILE_BYTES} bytes: is it the right file?")
    except OSError as error:
        problems.append(f"{file}: {(error.strerror or str(error)).lower()}")
    except UnicodeDecodeError as error:
        problems.append(f"{file}: not UTF-8 (at byte {error.start})")
    return ""
