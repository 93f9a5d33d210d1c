#!/bin/sh
# Make $VENV from the lock. Needs nothing but Python 3.11+ with venv.
set -eu
PYTHON=${PYTHON:-python3}
VENV=${VENV:-.venv}
UV_VERSION=0.13.7

command -v "$PYTHON" >/dev/null 2>&1 || {
  echo "homing: no '$PYTHON' found; install Python 3.11 or newer, or run: make PYTHON=/path/to/python" >&2
  exit 69
}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "homing: $("$PYTHON" --version 2>&1) is too old; homing needs Python 3.11+ (make PYTHON=python3.11)" >&2
  exit 69
}
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || {
  echo "homing: could not make a virtual environment; on Debian: apt-get install python3-venv" >&2
  exit 69
}
echo "homing: installing the locked environment into $VENV (about a minute the first time)"
"$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
export VIRTUAL_ENV="$VENV"
"$VENV/bin/uv" pip install --quiet --require-hashes -r requirements/dev.lock
"$VENV/bin/uv" pip install --quiet --no-deps --no-build-isolation -e .
