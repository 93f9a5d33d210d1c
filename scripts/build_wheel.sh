#!/bin/sh
# A wheel whose hot path is compiled by mypyc. Built in a copy: mypyc leaves its extension
# modules beside the sources, where the editable install would find them.
set -eu
PYTHON=$(pwd)/${VENV:-.venv}/bin/python
OUT=$(pwd)/dist
TREE=build/tree

rm -rf "$TREE" && mkdir -p "$TREE" "$OUT"
cp -R src pyproject.toml README.md LICENSE "$TREE"
cd "$TREE"
HATCH_BUILD_HOOK_ENABLE_MYPYC=1 "$PYTHON" -m build --no-isolation --wheel --outdir "$OUT"
