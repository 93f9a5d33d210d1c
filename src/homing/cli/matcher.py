"""Run a matcher: takes publications and finds the subscribers each is for.

Prints one line that begins with `ready` and names its endpoints once they are open.

Examples:
  homing matcher
  homing matcher --port-offset 100 --data /var/lib/homing
  homing matcher --join dispatcher:00000000000000d1@nodes=10.0.0.2:7003
"""

from __future__ import annotations

from homing.cli.push_node import NO_NODE_FLAGS, NodeFlags
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("matcher", __doc__)


@app.default
def matcher(*, node: NodeFlags = NO_NODE_FLAGS, flags: ConfigFlags = NO_FLAGS) -> int:
    """Run a matcher until it is told to stop."""
    return node.serve("matcher", flags)
