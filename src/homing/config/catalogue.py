"""The settings as data: name, type, range, default and reason of each. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from homing.config import units
from homing.config.settings import ANY_COUNT, ANY_SIZE, SECTIONS


class Setting(NamedTuple):
    """What is known of one `section.key`."""

    section: str
    key: str
    type: Any  # the annotation, with its Meta
    default: Any
    meta: msgspec.Meta

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"HOMING_{self.section}_{self.key}".upper()

    @property
    def reason(self) -> str:
        return self.meta.description or ""

    @property
    def unit(self) -> str:
        return str((self.meta.extra or {}).get("unit", ""))

    @property
    def secret(self) -> bool:
        return bool((self.meta.extra or {}).get("secret"))

    @property
    def endpoint(self) -> bool:
        return bool((self.meta.extra or {}).get("endpoint"))

    @property
    def bare_type(self) -> Any:
        return get_args(self.type)[0]

    @property
    def is_list(self) -> bool:
        return get_origin(self.bare_type) is tuple

    def takes(self) -> str:
        """What values it takes, in words."""
        if get_origin(self.bare_type) is Literal:
            return " | ".join(get_args(self.bare_type))
        if self.unit == "seconds":
            return f"duration, {self._range(units.show_seconds)}"
        if self.unit == "bytes":
            return f"size, {self._range(units.show_bytes)}"
        if self.bare_type is int:
            return f"integer, {self._range(str)}"
        if self.bare_type is bool:
            return "true | false"
        if self.endpoint:
            return "list of endpoints" if self.is_list else "endpoint"
        return "list of strings" if self.is_list else "string"

    def endpoints(self, value: Any) -> tuple[str, ...]:
        """Where a plug with this value listens: at several, if it is a list."""
        return tuple(value) if self.is_list else (value,)

    def _range(self, show: Any) -> str:
        if self.meta.le in (ANY_COUNT, ANY_SIZE):
            return f"{show(self.meta.ge)} or more"
        return f"{show(self.meta.ge)} to {show(self.meta.le)}"

    def show(self, value: Any) -> str:
        """A value as it could stand in homing.toml; secrets are masked."""
        if self.secret and value:
            return '"(hidden)"'
        if self.unit == "seconds":
            return f'"{units.show_seconds(value)}"'
        if self.unit == "bytes":
            return f'"{units.show_bytes(value)}"'
        return msgspec.json.encode(value).decode()


def _settings() -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for section, kind in SECTIONS.items():
        for info in msgspec.structs.fields(kind):
            assert get_origin(info.type) is Annotated, f"{section}.{info.name} has no reason"
            meta = get_args(info.type)[1]
            setting = Setting(section, info.name, info.type, info.default, meta)
            found[setting.name] = setting
    return found


SETTINGS: dict[str, Setting] = _settings()
