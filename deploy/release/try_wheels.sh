#!/bin/sh
# try_wheels.sh WHEEL...: install each wheel in a fresh environment, record the demo and read the record.
set -eu
for wheel in "$@"; do
    place=$(mktemp -d)
    python3 -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet "$wheel"
    (
        cd "$place"
        PATH="$place/venv/bin:$PATH"
        otel-memwatch wrap --strict --quiet --out run -- otel-memwatch demo --seconds 1 --scale 0.1
        otel-memwatch report run --json | python -c 'import json, sys; peak = json.load(sys.stdin)["peaks"]["tree"]; print(peak["certainty"], peak["bytes"])'
        python -c 'from otel_memwatch.in_target.operations.native import COMPILED; print("compiled" if COMPILED else "plain")' >kind
    )
    case "$wheel" in *-none-any.whl) wanted=plain ;; *) wanted=compiled ;; esac
    [ "$(cat "$place/kind")" = "$wanted" ] || { echo "$wheel: operations are $(cat "$place/kind"), not $wanted" >&2; exit 1; }
    rm -rf "$place"
    echo "$wheel: tried, operations $wanted"
done
