#!/bin/bash
# Runs $MEMWATCH_COMMAND and compares its memory with the baseline, or saves it as the baseline ($MEMWATCH_SAVE).
# otel-memwatch adds the table and each regression to the job's page.
set -eu
place="$RUNNER_TEMP/memwatch-gate/$MEMWATCH_NAME-$$"
mkdir -p "${place%/*}"
tool="$RUNNER_TEMP/otel-memwatch/bin/otel-memwatch"
command="$MEMWATCH_COMMAND" runs="$MEMWATCH_RUNS" save="$MEMWATCH_SAVE" baseline="$MEMWATCH_BASELINE"
read -r -a options <<<"${MEMWATCH_OPTIONS:-}"
read -r -a comparing <<<"${MEMWATCH_COMPARE_OPTIONS:-}"
# Keep these variables out of the command's environment.
unset MEMWATCH_COMMAND MEMWATCH_NAME MEMWATCH_RUNS MEMWATCH_OPTIONS MEMWATCH_COMPARE_OPTIONS MEMWATCH_SAVE MEMWATCH_BASELINE

"$tool" wrap --quiet --no-plot --no-step-summary --repeat "$runs" --out "$place" "${options[@]}" -- \
    bash --noprofile --norc -eo pipefail -c "$command"

if [ "$save" = true ]; then
    exec "$tool" check "$place" --save-baseline "$baseline"
fi
if [ ! -f "$baseline" ]; then
    echo "::notice title=otel-memwatch::There is no baseline yet. The next push to the main branch creates one."
    exit 0
fi
echo "markdown=$place.md" >>"$GITHUB_OUTPUT"
echo "junit=$place.xml" >>"$GITHUB_OUTPUT"
exec "$tool" compare --baseline "$baseline" "$place" "${comparing[@]}" --also "markdown=$place.md" --also "junit=$place.xml"
