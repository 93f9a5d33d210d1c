"""defaults < homing.toml < HOMING_* < flags, and every mistake in them at once. Pure."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from homing.config import units
from homing.config.catalogue import SETTINGS, Setting
from homing.config.lines import key_lines, line_of
from homing.config.settings import SECTIONS, Config
from homing.errors import ConfigError

# HOMING_* variables that are no settings: the file to read, and what the tools go by.
OTHER_VARIABLES = ("HOMING_CONFIG", "HOMING_DEBUG", "HOMING_CACHE_DIR", "HOMING_CI")
OTHER_PREFIXES = ("HOMING_TEST_", "HOMING_SIM_", "HOMING_BENCH_")
# Flags that are not called as their settings are.
FLAGS = {
    "node.drain_timeout": "--drain",
    "service.peers": "--peer",
    "cluster.members": "--join",
}


class Given(NamedTuple):
    """One value that somebody set: its name, itself, and where it stands."""

    name: str
    value: Any
    origin: str


def from_toml(text: str, path: str, problems: list[str]) -> Iterator[Given]:
    """Every value of a homing.toml."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(_toml_problem(str(error), path))
        return
    except (ValueError, RecursionError):  # of Python's own int() and stack: they name no line
        problems.append(f"{path}: a number of thousands of digits, or brackets nested as deep")
        return
    lines = key_lines(text)
    for section, body in tables.items():
        where = f"{path}:{line_of(lines, (section,))}"
        if not isinstance(body, dict) or section not in SECTIONS:
            yield Given(section, body, where)
        else:
            for key, value in body.items():
                yield Given(f"{section}.{key}", value, f"{path}:{line_of(lines, (section, key))}")


def _toml_problem(message: str, path: str) -> str:
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message)
    if found is None:
        return f"{path}: {message[:1].lower()}{message[1:]}"
    return f"{path}:{found[2]}: {found[1][:1].lower()}{found[1][1:]} (column {found[3]})"


def from_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    """Every HOMING_SECTION_KEY."""
    by_variable = {setting.variable: name for name, setting in SETTINGS.items()}
    for variable, value in sorted(environment.items()):
        if variable.startswith("HOMING_") and not _is_other(variable):
            yield Given(by_variable.get(variable, variable), value, variable)


def _is_other(variable: str) -> bool:
    return variable in OTHER_VARIABLES or variable.startswith(OTHER_PREFIXES)


def from_flags(
    flags: Mapping[str, Any], assignments: Iterable[str], problems: list[str]
) -> Iterator[Given]:
    """Flags that were given (not None), then every `--set section.key=value`."""
    for name, value in flags.items():
        if value is not None:
            named = f"--{name.partition('.')[2].replace('_', '-')}"
            yield Given(name, value, FLAGS.get(name, named))
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if equals:
            yield Given(name.strip(), value.strip(), f"--set {name.strip()}")
        else:
            problems.append(f"--set {assignment}: expected section.key=value")


def merge(givens: Iterable[Given], problems: Iterable[str] = ()) -> Config:
    """The settings that hold when later values go before earlier ones.

    Raises ConfigError with one line for every value that is wrong, overridden or not, after
    the `problems` that its sources had already.
    """
    problems = list(problems)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for given in givens:
        setting = SETTINGS.get(given.name)
        if setting is None:
            problems.append(f"{given.origin}: {_unknown(given)}")
            continue
        try:
            values[given.name] = _convert(setting, given.value)
            origins[given.name] = given.origin
        except (ValueError, msgspec.ValidationError) as error:
            problems.append(f"{given.origin}: {given.name}: {_plain(setting, str(error))}")
    _shift_defaults(values, origins, problems)
    config = _build(values, origins)
    problems += contradictions(config)
    if problems:
        raise ConfigError(problems)
    return config


def _unknown(given: Given) -> str:
    if given.name in SECTIONS:
        return f"{given.name} is a section: write [{given.name}]"
    if given.origin == given.name:  # an environment variable
        known = [setting.variable for setting in SETTINGS.values()]
    else:
        known = [*SETTINGS, *SECTIONS]
    close = difflib.get_close_matches(given.name, known, 1)
    what = "unknown section" if isinstance(given.value, dict) else "unknown setting"
    return f"{what} {given.name}" + (f"; did you mean {close[0]}?" if close else "")


def _parts(text: str) -> Any:
    """A list as text: with commas between, or as JSON where items have commas themselves."""
    if text.lstrip().startswith('["'):
        return msgspec.json.decode(text)
    return [part.strip() for part in text.split(",") if part.strip()]


def _convert(setting: Setting, value: Any) -> Any:
    """`value` in the setting's type; text is read as its unit, list or number."""
    if isinstance(value, str):
        if setting.unit == "seconds":
            value = units.parse_seconds(value)
        elif setting.unit == "bytes":
            value = units.parse_bytes(value)
        elif setting.is_list:
            value = _parts(value)
        elif setting.bare_type in (int, bool):
            return msgspec.convert(value, setting.type, strict=False)
    if isinstance(value, tuple):
        value = list(value)
    value = msgspec.convert(value, setting.type)
    if setting.endpoint:
        for where in setting.endpoints(value):
            units.check_endpoint(where)
    return value


def _plain(setting: Setting, message: str) -> str:
    """msgspec's message in the words of the settings' reference."""
    if message.startswith(("Expected", "Invalid")):
        message = f"{message[:1].lower()}{message[1:]}".replace("`", "")
        return f"{message}; it takes: {setting.takes()}"
    return message


def _shift_defaults(values: dict[str, Any], origins: dict[str, str], problems: list[str]) -> None:
    """Move every endpoint that nobody set by node.port_offset."""
    offset = values.get("node.port_offset", 0)
    if not offset:
        return
    for name, setting in SETTINGS.items():
        if setting.endpoint and name not in values:
            try:
                moved = [
                    units.shift_port(one, offset) for one in setting.endpoints(setting.default)
                ]
                values[name] = tuple(moved) if setting.is_list else moved[0]
                origins[name] = "default + node.port_offset"
            except ValueError as error:
                problems.append(f"{origins['node.port_offset']}: {error}")


def _build(values: dict[str, Any], origins: dict[str, str]) -> Config:
    by_section: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in values.items():
        section, _, key = name.partition(".")
        by_section[section][key] = value
    built: dict[str, Any] = {name: SECTIONS[name](**keys) for name, keys in by_section.items()}
    return Config(**built, origins=origins)


def contradictions(config: Config) -> Iterator[str]:
    """Settings that are fine alone and not together."""
    if config.node.low_water >= config.node.high_water:
        yield _both(config, "node.low_water", "node.high_water", "must be below")
    if config.node.reconnect_first > config.node.reconnect_last:
        yield _both(config, "node.reconnect_first", "node.reconnect_last", "must not be above")
    if bool(config.security.tls_cert) != bool(config.security.tls_key):
        yield _both(config, "security.tls_cert", "security.tls_key", "must be given together with")
    needed = {"plain": "security.users_file", "curve": "security.key_file"}
    file = needed.get(config.security.mechanism)
    if file is not None and not config.value(file):
        yield _both(config, "security.mechanism", file, "needs")
    taken: dict[str, str] = {}
    for name, where in listening(config):
        address = where.removeprefix("tcp://")
        if address in taken and not address.endswith(":0"):
            yield _both(config, name, taken[address], "listens at the same address as")
        taken.setdefault(address, name)


def listening(config: Config) -> Iterator[tuple[str, str]]:
    """Every endpoint that these settings have a node listen at, with its setting's name."""
    for name, setting in SETTINGS.items():
        if setting.endpoint:
            for where in setting.endpoints(config.value(name)):
                yield name, where


def _both(config: Config, one: str, other: str, relation: str) -> str:
    origins = {config.origin(one), config.origin(other)} - {"default"}
    shown = [f"{name} ({SETTINGS[name].show(config.value(name))})" for name in (one, other)]
    return f"{', '.join(sorted(origins)) or 'default'}: {shown[0]} {relation} {shown[1]}"
