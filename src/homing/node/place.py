"""The directory that a node keeps its journal, ids and keys in."""

from __future__ import annotations

import tempfile
from pathlib import Path

from homing.config import Config
from homing.errors import ConfigError


def claim_data(config: Config) -> Path:
    """Make the data directory; ConfigError says, before anything is started, why it cannot be used."""
    path = Path(config.node.data)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        why = "it is a file" if path.is_file() else error.strerror or error
        problem = f"node.data: cannot keep anything in {path}: {why}"
        raise ConfigError([problem], hint="choose a directory of yours: --data DIR") from error
