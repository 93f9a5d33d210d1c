"""Check that this machine can run homing, and say how to mend what is not in order.

Required parts are printed bold; only a broken one of them gives exit code 1. The rest is what
some verbs need: they say so themselves when you use them.

Examples:
  homing doctor
  homing doctor --json
  homing doctor --port-offset 100             # are those ports free?
"""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from homing.cli.checkup import Finding, examine
from homing.cli.outcome import FAILED, OK
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("doctor", __doc__)

_MARKS = {"ok": ("✓", "green"), "lacking": ("–", "yellow"), "broken": ("✗", "red")}


@app.default
def doctor(
    *,
    json: Annotated[bool, Parameter(help="as JSON, for programs")] = False,
    port_offset: Annotated[int | None, Parameter(help="added to every default port")] = None,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Check this machine."""
    findings = examine(flags.load({"node.port_offset": port_offset}))
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(findings)).decode())
    else:
        _print(findings)
    return FAILED if any(finding.stops_homing for finding in findings) else OK


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.state]
        line = Text(f"{mark} ", colour)
        line.append(f"{finding.name:<{width}}  ", "bold" if finding.required else "")
        line.append(finding.found, "")
        console.print(line, soft_wrap=True)
        if finding.fix:
            console.print(Text(f"  {'':<{width}}  fix: {finding.fix}", "dim"), soft_wrap=True)
    broken = sum(finding.stops_homing for finding in findings)
    lacking = ", ".join(finding.name for finding in findings if finding.state == "lacking")
    console.print(
        f"\n{broken} to mend before homing can run" if broken else "\nhoming can run here",
        f" (lacking, and optional: {lacking})" if lacking else "",
        sep="",
        soft_wrap=True,
    )
