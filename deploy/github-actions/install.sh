#!/bin/bash
# Installs what $PACKAGE says, else the checkout that this action is part of, with the extra $EXTRA, for the steps after it.
set -eu
package="${PACKAGE:-}"
if [ -z "$package" ]; then
    package="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
    if ! grep -q '^name = "otel-memwatch"' "$package/pyproject.toml" 2>/dev/null; then
        # Not a name of an index: nobody has published one yet, so anybody could.
        echo "::error::This copy of the action lies outside of otel-memwatch's own tree: say in 'package' what pip installs, as a wheel's URL or git+https://...@COMMIT."
        exit 2
    fi
    package="$package${EXTRA:+[$EXTRA]}"
fi
python3 -m venv "$RUNNER_TEMP/otel-memwatch"
"$RUNNER_TEMP/otel-memwatch/bin/python" -m pip install --quiet "$package"
