"""Run a dispatcher: carries matched publications from matchers to connectors.

Prints one line that begins with `ready` and names its endpoints once they are open.

Examples:
  homing dispatcher
  homing dispatcher --join connector:00000000000000c1@dispatchers=10.0.0.3:7004
"""

from __future__ import annotations

from homing.cli.push_node import NO_NODE_FLAGS, NodeFlags
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("dispatcher", __doc__)


@app.default
def dispatcher(*, node: NodeFlags = NO_NODE_FLAGS, flags: ConfigFlags = NO_FLAGS) -> int:
    """Run a dispatcher until it is told to stop."""
    return node.serve("dispatcher", flags)
