#!/bin/sh
# For TaskEpilog in slurm.conf: puts a line about the run of each task into the job's output and keeps its record.
# It must never fail. Slurm drains the node if a Prolog or Epilog fails, and logs it if a TaskEpilog fails.
# It finds runs by the numbers of job and task, as job.sbatch names them.
runs="${SLURM_SUBMIT_DIR:-}/memwatch-runs"
run="$runs/${SLURM_JOB_ID:-0}-${SLURM_RESTART_COUNT:-0}-${SLURM_PROCID:-0}"
if [ -d "$run" ] && command -v otel-memwatch >/dev/null 2>&1; then
    otel-memwatch report "$run" --format summary 2>/dev/null || true
fi
exit 0
