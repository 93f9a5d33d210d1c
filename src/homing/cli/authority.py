"""Run the authority: issues subscribers' tokens over HTTP and names the connector to use.

It must have the connectors' token key: the same --data on one machine, or
security.token_key set alike everywhere.

Examples:
  homing authority
  homing authority --set security.api_keys=key1,key2 --port-offset 100
  curl -d '{"client_id": "0123456789abcdef01234567"}' localhost:7006/v1/token
"""

from __future__ import annotations

from homing.cli.push_node import NO_NODE_FLAGS, NodeFlags
from homing.cli.verb import NO_FLAGS, ConfigFlags, verb

app = verb("authority", __doc__)


@app.default
def authority(*, node: NodeFlags = NO_NODE_FLAGS, flags: ConfigFlags = NO_FLAGS) -> int:
    """Run the authority until it is told to stop."""
    return node.serve("authority", flags)
