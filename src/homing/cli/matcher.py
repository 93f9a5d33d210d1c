"""Run a matcher: takes publications and finds the subscribers each is for.

Prints one line that begins with `ready` and names its endpoints once they are open. A placement
plan is read again when its file changes, or on SIGHUP, and passed on to all other matchers.

Examples:
  homing matcher
  homing matcher --port-offset 100 --data /var/lib/homing
  homing matcher --join dispatcher:00000000000000d1@nodes=10.0.0.2:7003
  homing matcher --plan plan.json
  homing matcher --set cluster.membership=serf --set cluster.serf=127.0.0.1:7373
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from homing.cli.push_node import NO_NODE_FLAGS, NodeFlags
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("matcher", __doc__)


@app.default
def matcher(
    *,
    plan: Annotated[Path | None, Parameter(help="placement plan to follow, JSON")] = None,
    node: NodeFlags = NO_NODE_FLAGS,
    flags: ConfigFlags = NO_FLAGS,
) -> int:
    """Run a matcher until it is told to stop."""
    return node.serve("matcher", flags, {"push.plan": str(plan) if plan is not None else None})
