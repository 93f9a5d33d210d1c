"""Make CURVE key pairs: who has the secret half can prove to be who the public half names.

`new` writes both halves to a file that only you can read, for security.key_file, and prints the
public one: it goes into the users file of the nodes that shall know this one.

Examples:
  homing keys new paris.key
  homing keys show paris.key       # the public half again
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from homing.cli.verb import verb
from homing.errors import ConfigError

app = verb("keys", __doc__)

Where = Annotated[Path, Parameter(help="the key file")]


@app.command
def new(file: Where, /) -> None:
    """Make a key pair; an existing file is never overwritten."""
    from homing.node.keys import key_text
    from homing.wire.curve import new_keys
    from homing.wire.z85 import z85

    keys = new_keys()
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "move it away, or choose another name: it may be somebody's only copy"
        raise ConfigError([f"{file} exists already"], hint=hint) from None
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(key_text(keys))
    print(z85(keys[0]))


@app.command
def show(file: Where, /) -> None:
    """Print the public half of a key file."""
    from homing.node.keys import read_keys
    from homing.wire.z85 import z85

    print(z85(read_keys(file)[0]))
