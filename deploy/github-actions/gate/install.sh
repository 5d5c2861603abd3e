#!/bin/bash
# Installs $PACKAGE with the extra $EXTRA for the steps that follow. Default: the otel-memwatch tree that contains this file.
# Each action has a copy of this file, because either can be copied alone.
set -eu
package="${PACKAGE:-}"
if [ -z "$package" ]; then
    package="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
    while [ "$package" != / ] && [ ! -f "$package/pyproject.toml" ]; do package="$(dirname "$package")"; done
    if ! grep -q '^name = "otel-memwatch"' "$package/pyproject.toml" 2>/dev/null; then
        # The name is on no index yet, so anyone could publish it there.
        echo "::error::This copy of the action is outside the otel-memwatch repository. Set 'package' to git+https://...@COMMIT or a wheel's URL."
        exit 2
    fi
fi
if [ -n "${EXTRA:-}" ]; then
    case "$package" in
        *" @ "* | *"["*) ;; # a requirement that names its extras
        *://*) package="otel-memwatch[$EXTRA] @ $package" ;; # a URL
        *) package="${package}[$EXTRA]" ;; # a path, or a name of an index of yours
    esac
fi
python3 -m venv "$RUNNER_TEMP/otel-memwatch"
"$RUNNER_TEMP/otel-memwatch/bin/python" -m pip install --quiet "$package"
