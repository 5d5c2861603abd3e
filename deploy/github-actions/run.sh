#!/bin/bash
# Runs $MEMWATCH_COMMAND under otel-memwatch and returns its exit code. otel-memwatch adds the summary to the job's page.
set -eu
directory="$RUNNER_TEMP/memwatch-runs/$MEMWATCH_NAME-$$"
mkdir -p "${directory%/*}"
echo "directory=$directory" >>"$GITHUB_OUTPUT"

export OTEL_SERVICE_NAME="${OTEL_SERVICE_NAME:-$MEMWATCH_NAME}"
attributes="service.version=${MEMWATCH_VERSION:-},vcs.ref.head.name=${MEMWATCH_BRANCH:-}"
export OTEL_RESOURCE_ATTRIBUTES="${OTEL_RESOURCE_ATTRIBUTES:+$OTEL_RESOURCE_ATTRIBUTES,}$attributes"
if [ -n "${MEMWATCH_ENDPOINT:-}" ]; then
    export OTEL_EXPORTER_OTLP_ENDPOINT="$MEMWATCH_ENDPOINT"
    [ -z "${MEMWATCH_HEADERS:-}" ] || export OTEL_EXPORTER_OTLP_HEADERS="$MEMWATCH_HEADERS"
fi
read -r -a options <<<"${MEMWATCH_OPTIONS:-}"
tool="$RUNNER_TEMP/otel-memwatch/bin/otel-memwatch"
command="$MEMWATCH_COMMAND"
# Keep these variables out of the command's environment.
unset MEMWATCH_COMMAND MEMWATCH_NAME MEMWATCH_OPTIONS MEMWATCH_ENDPOINT MEMWATCH_HEADERS MEMWATCH_VERSION MEMWATCH_BRANCH
exec "$tool" wrap --out "$directory" "${options[@]}" -- bash --noprofile --norc -eo pipefail -c "$command"
