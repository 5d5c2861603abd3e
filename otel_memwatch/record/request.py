"""Request of a batch job, from the scheduler's environment variables. Stdlib only.

| field | Slurm |
| --- | --- |
| memory of the host | `SLURM_MEM_PER_NODE`, or `SLURM_MEM_PER_CPU` times the processors, in MiB |
| processors of the host | `SLURM_CPUS_ON_NODE` |
| GPUs of the host | `SLURM_GPUS_ON_NODE` |
| time | `SLURM_JOB_END_TIME` less `SLURM_JOB_START_TIME`, Unix seconds (Slurm 23.02) |

A step with several tasks on a host shares the request. Only processors and memory per processor belong to one task then:
`SLURM_CPUS_PER_TASK`.

Kubernetes and other schedulers set no such variables. The limits that they set on a cgroup are in the samples.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIB = 1 << 20
_LONGEST = 15
"""Digits of the largest number that is believed."""


class Request(NamedTuple):
    """Resources that a scheduler reserved for the run; `None`: unknown."""

    by: str
    """Name of the scheduler."""
    memory_bytes: int | None = None
    cores: int | None = None
    gpus: int | None = None
    seconds: int | None = None


def request_of(environ: Mapping[str, str]) -> Request | None:
    """Return the request of the surrounding batch job; `None`: no job, or it names no resource."""
    if not environ.get("SLURM_JOB_ID"):
        return None
    each = _number(environ, "SLURM_MEM_PER_CPU")
    if (_number(environ, "SLURM_STEP_NUM_TASKS") or 1) > 1:
        cores, memory, gpus = _number(environ, "SLURM_CPUS_PER_TASK"), None, None
    else:
        cores = _number(environ, "SLURM_CPUS_ON_NODE")
        memory, gpus = _number(environ, "SLURM_MEM_PER_NODE"), _number(environ, "SLURM_GPUS_ON_NODE")
    if memory is None and each is not None and cores is not None:
        memory = each * cores
    begin, end = _number(environ, "SLURM_JOB_START_TIME"), _number(environ, "SLURM_JOB_END_TIME")
    seconds = end - begin if begin is not None and end is not None and end > begin else None
    found = Request("Slurm", None if memory is None else memory * _MIB, cores, gpus, seconds)
    return found if any(value is not None for value in found[1:]) else None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    """Return a positive whole number; Slurm writes 0 for "all of it"."""
    text = environ.get(name, "")
    return int(text) or None if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None
