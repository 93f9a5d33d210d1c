"""Run a connector: holds the subscribers' connections and sessions.

Prints one line that begins with `ready` and names its endpoints once they are open.

Examples:
  homing connector
  homing connector --data /var/lib/homing --set push.subscribers=0.0.0.0:7005
"""

from __future__ import annotations

from homing.cli.push_node import NO_NODE_FLAGS, NodeFlags
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("connector", __doc__)


@app.default
def connector(*, node: NodeFlags = NO_NODE_FLAGS, flags: ConfigFlags = NO_FLAGS) -> int:
    """Run a connector until it is told to stop."""
    return node.serve("connector", flags)
