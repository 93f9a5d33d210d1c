"""docs/reference/config.md, written from the settings themselves: `make reference`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from homing.config.catalogue import SETTINGS
from homing.config.settings import SECTIONS

_HEAD = """\
# Settings

Every setting of homing with its default, what it takes and why. Values are taken from, later
before earlier: the defaults below, `homing.toml` (in the working directory, at
`$HOMING_CONFIG`, or where `--config` says), environment variables `HOMING_SECTION_KEY`, and
flags (`--set section.key=value` sets anything).

```toml
[service]
name = "paris"
heartbeat = "2500ms"
peers = ["tcp://london.example:5557"]
```

Durations take `us`, `ms`, `s`, `min`, `h`, `d`; sizes take `KiB`, `MiB`, `GiB` and their decimal
cousins; lists in environment variables are separated by commas. A wrong config is refused whole, with
every mistake in it, its file and its line. `homing config show` prints what is in effect and
where it came from.

This page is generated from `homing.config.settings`.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for section, kind in SECTIONS.items():
        yield f"## {section}\n\n{(kind.__doc__ or '').strip()}\n"
        yield "| setting | default | takes | why |\n|---|---|---|---|"
        for setting in SETTINGS.values():
            if setting.section == section:
                takes = setting.takes().replace("|", "\\|")
                reason = setting.reason.replace("|", "\\|")
                yield f"| `{setting.key}` | `{setting.show(setting.default)}` | {takes} | {reason} |"
        yield ""


if __name__ == "__main__":
    print(reference(), end="")
