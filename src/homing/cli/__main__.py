"""`python -m homing.cli` is `homing`."""

from __future__ import annotations

import sys

from homing.cli import main

if __name__ == "__main__":
    sys.exit(main())
