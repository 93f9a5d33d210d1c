#!/bin/sh
# debian.sh PACKAGE…: programs beside Python, and headers, that tests talk to; a package has its program's name. Root on
# Debian gets what is missing; everybody else is told, and what needs it is left out (in CI that is an error).
set -eu

missing=""
for package in "$@"; do
  command -v "$package" >/dev/null 2>&1 || dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  reason="there is no apt-get here"
elif [ "$(id -u)" -ne 0 ]; then
  reason="not root"
else
  echo "homing: installing$missing with apt-get"
  # In runlevel 1 a server that is installed is not started: tests start their own.
  export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
  # shellcheck disable=SC2086
  if apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null; }; then
    exit 0
  fi
  reason="apt-get failed"
fi
echo "homing: without$missing ($reason): what needs them is left out" >&2
[ -z "${HOMING_CI:-}" ] || { echo "homing: CI may leave nothing out" >&2; exit 69; }
