"""Show or check the settings, and where each one comes from.

Later goes before earlier: defaults, homing.toml, HOMING_SECTION_KEY, flags.

Examples:
  homing config show                          # every setting, as a homing.toml
  homing config show service --why            # one section, with its reasons
  homing config show --changed                # only what is not a default
  HOMING_NODE_LOG_LEVEL=debug homing config show node
  homing config check --config prod.toml      # every mistake at once
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from homing.cli.outcome import OK
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb
from homing.config import Config
from homing.config.catalogue import SETTINGS, Setting

app = verb("config", __doc__)

Section = Literal[
    "service", "push", "journal", "node", "cluster", "pipeline", "dashboard", "security"
]


@app.command
def show(
    *sections: Annotated[Section, Parameter(help="these sections only")],
    why: Annotated[bool, Parameter(help="the reason for each setting")] = False,
    changed: Annotated[bool, Parameter(help="only what is not a default")] = False,
    json: Annotated[bool, Parameter(help="as JSON, for programs")] = False,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Print the effective settings and where each one comes from."""
    config = flags.load()
    chosen = [
        setting
        for setting in SETTINGS.values()
        if (not sections or setting.section in sections)
        and (not changed or setting.name in config.origins)
    ]
    if json:
        print(_as_json(config, chosen))
    elif chosen:
        print("\n".join(_as_toml(config, chosen, why)))
    else:
        print("# all of it is as the defaults are")
    return OK


@app.command
def check(*, flags: ConfigFlags = NO_FLAGS) -> int:
    """Report every mistake in the settings at once; exit code 78 if there is one."""
    config = flags.load()
    print(f"the settings are in order; {len(config.origins)} of {len(SETTINGS)} are not defaults")
    return OK


def _as_toml(config: Config, chosen: list[Setting], why: bool) -> Iterator[str]:
    """Lines of a homing.toml; origins and reasons are comments."""
    values = {setting.name: setting.show(config.value(setting.name)) for setting in chosen}
    left = [f"{setting.key} = {values[setting.name]}" for setting in chosen]
    width = min(48, max(map(len, left), default=0))
    section = ""
    for setting, line in zip(chosen, left, strict=True):
        if setting.section != section:
            yield from [""] * bool(section)
            section = setting.section
            yield f"[{section}]"
        if why:
            yield f"# {setting.reason}"
        yield f"{line:<{width}}  # {config.origin(setting.name)}"


def _shown(config: Config, setting: Setting) -> Any:
    value = config.value(setting.name)
    return "(hidden)" if setting.secret and value else value


def _as_json(config: Config, chosen: list[Setting]) -> str:
    import msgspec

    rows = {
        setting.name: {
            "value": _shown(config, setting),
            "origin": config.origin(setting.name),
            "default": setting.default,
            "unit": setting.unit,
            "why": setting.reason,
        }
        for setting in chosen
    }
    return msgspec.json.format(msgspec.json.encode(rows)).decode()
