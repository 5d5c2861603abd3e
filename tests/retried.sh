#!/bin/sh
# Fails if a test needs its retry in two runs in a row.
#   sh tests/retried.sh FILE <NAMES
# NAMES: the tests that this run has retried, one a line; none clears FILE, which has those of the run before.
set -eu
names=$(sed '/^$/d' | sort -u)
again=""
if [ -n "$names" ] && [ -s "$1" ]; then
    again=$(printf '%s\n' "$names" | grep -Fxf "$1" || true)
fi
mkdir -p "$(dirname "$1")"
printf '%s' "${names:+$names
}" >"$1"
[ -n "$again" ] || exit 0
printf '%s\n' "$again" | sed 's/^/retried in two runs in a row, fix this test: /'
exit 1
