"""Request of a batch job from its environment."""

from __future__ import annotations

import pytest

from otel_memwatch.record.request import Request, request_of

JOB = {"SLURM_JOB_ID": "77"}
GIB = 1 << 30

CASES = [
    ({"SLURM_MEM_PER_NODE": "1024"}, None),
    (JOB, None),
    (JOB | {"SLURM_MEM_PER_NODE": "65536", "SLURM_CPUS_ON_NODE": "16", "SLURM_GPUS_ON_NODE": "2"}, Request("Slurm", 64 * GIB, 16, 2)),
    (JOB | {"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "4"}, Request("Slurm", 8 * GIB, 4)),
    # --mem=0 asks for all of the host, which is no request.
    (JOB | {"SLURM_MEM_PER_NODE": "0", "SLURM_CPUS_ON_NODE": "4"}, Request("Slurm", None, 4)),
    (JOB | {"SLURM_JOB_START_TIME": "100", "SLURM_JOB_END_TIME": "3700"}, Request("Slurm", seconds=3600)),
    (JOB | {"SLURM_JOB_START_TIME": "100", "SLURM_JOB_END_TIME": "50"}, None),
    # Four tasks share the memory and the processors of the host.
    (JOB | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_MEM_PER_NODE": "65536", "SLURM_CPUS_ON_NODE": "16"}, None),
    (JOB | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_PER_TASK": "3"}, Request("Slurm", 6 * GIB, 3)),
    (JOB | {"SLURM_MEM_PER_NODE": "64G", "SLURM_CPUS_ON_NODE": "\u0664", "SLURM_GPUS_ON_NODE": "9" * 99}, None),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "request_"), CASES)
def test_the_request_is_read_from_the_environment(environ: dict[str, str], request_: Request | None) -> None:
    assert request_of(environ) == request_
