#!/bin/sh
# For TaskProlog in slurm.conf: each printed "export NAME=value" becomes part of each task's environment.
# Jobs that call otel-memwatch wrap then push without naming an endpoint.
endpoint="${MEMWATCH_OTLP_ENDPOINT:-http://localhost:4318}"
if [ -z "${OTEL_EXPORTER_OTLP_ENDPOINT:-}" ]; then
    echo "export OTEL_EXPORTER_OTLP_ENDPOINT=$endpoint"
fi
if [ -z "${OTEL_SERVICE_NAME:-}" ] && [ -n "${SLURM_JOB_NAME:-}" ]; then
    echo "export OTEL_SERVICE_NAME=$SLURM_JOB_NAME"
fi
exit 0
