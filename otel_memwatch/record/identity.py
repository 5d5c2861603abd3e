"""Group and rank of a run, from the launcher's environment variables. Stdlib only.

A **group** consists of the runs of one job on several ranks or hosts. They need no coordination: launchers set variables
for each process, and runs with the same group belong together. The rank comes from the innermost launcher:

==================  =============================================  =======================================================
launcher            group                                          rank, local rank, size
==================  =============================================  =======================================================
torchrun            `TORCHELASTIC_RUN_ID`, if it is an id          `RANK`, `LOCAL_RANK`, `WORLD_SIZE`
Open MPI            `PMIX_NAMESPACE`, `OMPI_MCA_ess_base_jobid`    `OMPI_COMM_WORLD_RANK`, `_LOCAL_RANK`, `_SIZE`
MPICH, Intel MPI    `PMI_JOBID`, `PMI_KVSNAME`                     `PMI_RANK`, `MPI_LOCALRANKID`, `PMI_SIZE`
PMIx                `PMIX_NAMESPACE`                               `PMIX_RANK`
Flux                `FLUX_JOB_ID`                                  `FLUX_TASK_RANK`, `FLUX_TASK_LOCAL_ID`, `FLUX_JOB_SIZE`
only RANK           `MASTER_ADDR`, `MASTER_PORT`                   `RANK`, `LOCAL_RANK`, `WORLD_SIZE`
Slurm step          `SLURM_JOB_ID`, `SLURM_STEP_ID`                `SLURM_PROCID`, `SLURM_LOCALID`, `SLURM_STEP_NUM_TASKS`
Slurm array         `SLURM_ARRAY_JOB_ID`                           `SLURM_ARRAY_TASK_ID`, its size from the array's limits
Kubernetes Job      the Job's name                                 `JOB_COMPLETION_INDEX`
Ray                 `RAY_JOB_ID`                                   none, except Ray Train's `RANK`
==================  =============================================  =======================================================

If the launcher does not name the group, the job of the enclosing batch system does (Slurm, PBS, LSF, Flux). `--group`
and `--rank` take precedence.
"""

from __future__ import annotations

from otel_memwatch.runtime.light import suppress
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    Environment = Mapping[str, str]

_NO_IDS = frozenset(("", "none", "static", "0"))
"""Values that launchers set without an id: `torchrun` without --rdzv-id sets "none"."""
STARTED_ONE_BY_ONE = frozenset(("slurm array", "kubernetes", "ray"))
"""Launchers that start and restart ranks one by one. For all others, an attempt restarts all ranks."""
_BATCH_JOBS = {"SLURM_JOB_ID": "slurm", "PBS_JOBID": "pbs", "LSB_JOBID": "lsf", "FLUX_JOB_ID": "flux"}
_LONGEST = 200
"""Maximum number of characters of a group's id, the same as for a run's name."""
_POD_OF_JOB = r"(?P<job>.+?)-(?P<index>[0-9]+)(?:-[a-z0-9]{5})?\Z"
"""Pod of an indexed Job: its name, the index and five random characters. The host name lacks the latter."""


class GroupIdentity(NamedTuple):
    """Position of a run in its group; `None` is unknown."""

    group: str
    launcher: str
    """"torchrun", "openmpi", "mpi", "pmix", "flux", "env", "slurm", "slurm array", "kubernetes", "ray" or "given"."""
    rank: int | None = None
    local_rank: int | None = None
    size: int | None = None
    """Number of ranks in the group."""
    first: int = 0
    """Lowest rank; a Slurm array may begin with any number."""
    step: int = 1
    """Difference between two ranks, for a Slurm array."""
    node: int | None = None
    """Number of the host in the group."""
    attempt: int = 0
    """Number of earlier starts by the launcher."""


def identity(
    environ: Environment, resource: Mapping[str, object], group: str | None = None, rank: int | None = None
) -> GroupIdentity | None:
    """Return group and rank of a process from its environment; `None` if it belongs to no group.

    Args:
        environ: environment of the target at its start.
        resource: the run's resource, for the name of a Kubernetes Job.
        group: value of `--group`.
        rank: value of `--rank`.

    """
    found = _from_launcher(environ, resource)
    if group is not None:
        found = (found or GroupIdentity(group, "given"))._replace(group=group)
    if rank is not None and found is not None:
        found = found._replace(rank=rank)
    if found is None or not found.group:
        return None
    # One line without slashes, because the command line accepts it next to paths.
    printable = "".join(c if c.isprintable() and c != "/" else "_" for c in found.group.strip())
    return found._replace(group=printable[:_LONGEST])


def group_attributes(own: GroupIdentity) -> dict[str, str | int]:
    """Return the identity as resource attributes, by which live series are added up."""
    numbers = {"rank": own.rank, "local_rank": own.local_rank, "size": own.size}
    return {
        "memwatch.group.id": own.group,
        **{f"memwatch.group.{name}": number for name, number in numbers.items() if number is not None},
    }


def _from_launcher(environ: Environment, resource: Mapping[str, object]) -> GroupIdentity | None:
    for launcher in (_torchrun, _open_mpi, _mpich, _flux, _plain_ranks, _slurm):
        found = launcher(environ)
        if found is not None:
            # Without a group name, use that of the enclosing job. Without either, only the rank identifies the run.
            jobs = (f"{kind}-{environ[name]}" for name, kind in _BATCH_JOBS.items() if environ.get(name))
            # All ranks of a job share PyTorch's rendezvous, but a later job may reuse it.
            address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
            rendezvous = f"{address}:{port}" if address and port else address
            return found._replace(group=found.group or next(jobs, "") or rendezvous)
    found, job = _kubernetes(environ, resource), _id(environ, "RAY_JOB_ID")
    return GroupIdentity(f"ray-{job}", "ray") if found is None and job else found


def _torchrun(environ: Environment) -> GroupIdentity | None:
    if "TORCHELASTIC_RUN_ID" not in environ:
        return None
    return GroupIdentity(
        _id(environ, "TORCHELASTIC_RUN_ID"),
        "torchrun",
        _number(environ, "RANK"),
        _number(environ, "LOCAL_RANK"),
        _number(environ, "WORLD_SIZE"),
        node=_number(environ, "GROUP_RANK"),
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT") or 0,
    )


def _open_mpi(environ: Environment) -> GroupIdentity | None:
    rank = _number(environ, "OMPI_COMM_WORLD_RANK")
    if rank is None:
        return None
    job = _id(environ, "PMIX_NAMESPACE") or _id(environ, "OMPI_MCA_ess_base_jobid")
    return GroupIdentity(
        f"mpi-{job}" if job else "",
        "openmpi",
        rank,
        _number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        _number(environ, "OMPI_COMM_WORLD_SIZE"),
    )


def _mpich(environ: Environment) -> GroupIdentity | None:
    for variable, launcher in (("PMI_RANK", "mpi"), ("PMIX_RANK", "pmix")):
        rank = _number(environ, variable)
        if rank is None or ("SLURM_STEP_ID" in environ and "SLURM_PROCID" in environ):
            continue  # Slurm's step says the same, with its name
        names = ("PMI_JOBID", "PMI_KVSNAME", "PMIX_NAMESPACE")
        job = next((known for known in (_id(environ, name) for name in names) if known), "")
        local, size = _number(environ, "MPI_LOCALRANKID"), _number(environ, "PMI_SIZE")
        return GroupIdentity(f"mpi-{job}" if job else "", launcher, rank, local, size)
    return None


def _flux(environ: Environment) -> GroupIdentity | None:
    rank = _number(environ, "FLUX_TASK_RANK")
    if rank is None:
        return None
    local, size = _number(environ, "FLUX_TASK_LOCAL_ID"), _number(environ, "FLUX_JOB_SIZE")
    return GroupIdentity("", "flux", rank, local, size)


def _plain_ranks(environ: Environment) -> GroupIdentity | None:
    """RANK, WORLD_SIZE and MASTER_ADDR, as Kubeflow, DeepSpeed and Ray Train set them."""
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    if rank is None or size is None or not environ.get("MASTER_ADDR"):
        return None
    return GroupIdentity("", "env", rank, _number(environ, "LOCAL_RANK"), size)


def _slurm(environ: Environment) -> GroupIdentity | None:
    job, array = environ.get("SLURM_JOB_ID", ""), environ.get("SLURM_ARRAY_JOB_ID", "")
    attempt = _number(environ, "SLURM_RESTART_COUNT") or 0
    # In a batch script SLURM_PROCID is 0 too; only srun makes steps.
    rank = _number(environ, "SLURM_PROCID") if environ.get("SLURM_STEP_ID") else None
    size = _number(environ, "SLURM_STEP_NUM_TASKS") or _number(environ, "SLURM_NTASKS")
    if job and rank is not None and ((size or 1) > 1 or not array):
        local, node = _number(environ, "SLURM_LOCALID"), _number(environ, "SLURM_NODEID")
        step = environ["SLURM_STEP_ID"]
        return GroupIdentity(f"slurm-{job}.{step}", "slurm", rank, local, size, node=node, attempt=attempt)
    task = _number(environ, "SLURM_ARRAY_TASK_ID")
    if not array or task is None:
        return None
    first, step_of = _number(environ, "SLURM_ARRAY_TASK_MIN"), _number(environ, "SLURM_ARRAY_TASK_STEP")
    return GroupIdentity(
        f"slurm-array-{array}", "slurm array", task, None, _number(environ, "SLURM_ARRAY_TASK_COUNT"),
        first or 0, max(1, step_of or 1), attempt=attempt,
    )  # fmt: skip


def _kubernetes(environ: Environment, resource: Mapping[str, object]) -> GroupIdentity | None:
    index = _number(environ, "JOB_COMPLETION_INDEX")
    if index is None:
        return None
    job = str(resource.get("k8s.job.name") or "")
    if not job:
        import re

        for pod in (str(resource.get("k8s.pod.name") or ""), environ.get("HOSTNAME", "")):
            found = re.match(_POD_OF_JOB, pod)
            if found and int(found["index"]) == index:
                job = found["job"]
                break
    if not job:
        return None
    namespace = str(resource.get("k8s.namespace.name") or "")
    return GroupIdentity(f"{namespace}.{job}" if namespace else job, "kubernetes", index)


def _id(environ: Environment, variable: str) -> str:
    """Return an id; empty if the value means "none"."""
    value = environ.get(variable, "").strip()
    return "" if value.lower() in _NO_IDS else value


def _number(environ: Environment, variable: str) -> int | None:
    """Return a non-negative number; `None` if missing or invalid."""
    text = environ.get(variable, "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def boot_id(proc: str = "/proc") -> str | None:
    """Return the id of this start of the machine, or `None` if it is unknown."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read(64).strip() or None
    except (OSError, ValueError):
        return None


def monotonic_offset(proc: str = "/proc") -> float:
    """Return the seconds by which a time namespace has moved this process's monotonic clock."""
    with (
        suppress(OSError, ValueError, IndexError),
        open(f"{proc}/self/timens_offsets", encoding="utf-8") as file,
    ):
        for line in file:
            words = line.split()
            if words and words[0] == "monotonic":
                return int(words[1]) + int(words[2]) / 1e9
    return 0.0


def clock_fields() -> dict[str, Any]:
    """Return the field "clock" of `run.json`: runs with one boot id are on one host and share its monotonic clock."""
    return {"boot_id": boot_id(), "monotonic_offset": monotonic_offset()}
