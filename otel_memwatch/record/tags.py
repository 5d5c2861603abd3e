"""The tags of a run: what the person gave, and what the engine that runs it says of it. Stdlib only.

=============  ===========================================================================================================
from           tags
=============  ===========================================================================================================
Snakemake      `rule`, `wildcards`, `attempt`: its executors other than the local one start `snakemake --target-jobs RULE:WILDCARDS`
               around a job. The local one tells a job nothing: `--tag rule={rule}` in the shell command does.
Nextflow       `rule` (the process), `nextflow.task`: the first lines of `.command.run` in the working directory
Slurm          `slurm.job`, `slurm.name`, `slurm.array`, `slurm.task`, `attempt` where it was requeued
GitHub         `github.workflow`, `github.job`, `github.run`, `github.repository`, `branch`, `commit`, `attempt`
GitLab         `gitlab.run`, `gitlab.pipeline`, `gitlab.job`, `gitlab.project`, `branch`, `commit`
MLflow         `mlflow.run`, `mlflow.name`, `mlflow.experiment`
W&B            `wandb.run`, `wandb.name`, `wandb.project`, `wandb.group`, `wandb.sweep`
Kubernetes     `k8s.pod`, `k8s.namespace`, `k8s.container`, `k8s.job`, `k8s.index`: from the run's resource and the Job's index
=============  ===========================================================================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

Tags = dict[str, str]

_VARIABLES = {
    "SLURM_JOB_ID": "slurm.job",
    "SLURM_JOB_NAME": "slurm.name",
    "SLURM_ARRAY_JOB_ID": "slurm.array",
    "SLURM_ARRAY_TASK_ID": "slurm.task",
    "MLFLOW_RUN_ID": "mlflow.run",
    "MLFLOW_RUN_NAME": "mlflow.name",
    "MLFLOW_EXPERIMENT_ID": "mlflow.experiment",
    "MLFLOW_EXPERIMENT_NAME": "mlflow.experiment",  # where both are there it is the name
    "WANDB_RUN_ID": "wandb.run",
    "WANDB_NAME": "wandb.name",
    "WANDB_PROJECT": "wandb.project",
    "WANDB_RUN_GROUP": "wandb.group",
    "WANDB_SWEEP_ID": "wandb.sweep",
}
_GITHUB = {
    "GITHUB_WORKFLOW": "github.workflow",
    "GITHUB_JOB": "github.job",
    "GITHUB_RUN_ID": "github.run",
    "GITHUB_REPOSITORY": "github.repository",
    "GITHUB_REF_NAME": "branch",
    "GITHUB_SHA": "commit",
    "GITHUB_RUN_ATTEMPT": "attempt",
}
_GITLAB = {
    "CI_PIPELINE_ID": "gitlab.run",
    "CI_PIPELINE_NAME": "gitlab.pipeline",
    "CI_JOB_NAME": "gitlab.job",
    "CI_PROJECT_PATH": "gitlab.project",
    "CI_COMMIT_REF_NAME": "branch",
    "CI_COMMIT_SHA": "commit",
}
_KUBERNETES = {
    "k8s.pod.name": "k8s.pod",
    "k8s.namespace.name": "k8s.namespace",
    "k8s.container.name": "k8s.container",
    "k8s.job.name": "k8s.job",
}

_NEXTFLOW_TASK = re.compile(r"^# NEXTFLOW TASK: (.{1,500})$", re.MULTILINE)
_HEAD = 4096
"""Bytes of `.command.run` that are read: the task's name stands in its second line."""
_GENERATIONS = 6
"""Ancestors that are looked at for an engine: it stands a shell or two above the command."""
_INPUTS = 1000
"""Arguments that are looked at for files."""


def engine_tags(
    environ: Mapping[str, str],
    directory: str | os.PathLike[str] | None,
    resource: Mapping[str, object],
    parent: int,
    proc: Path = Path("/proc"),
) -> Tags:
    """What the engines around a run say of it.

    Args:
        environ: environment that the target was started with.
        directory: its working directory; `None`: not known.
        resource: the run's resource, for what a pod tells.
        parent: pid of the process that asked for the run.
        proc: where /proc is; tests put their own here.

    Cost: 50 us, and 50 us more for each of a few ancestors.

    """
    tags = _named(environ, _VARIABLES)
    if environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0"):
        tags["attempt"] = str(_number(environ["SLURM_RESTART_COUNT"]) + 1)
    if environ.get("GITHUB_ACTIONS"):
        tags |= _named(environ, _GITHUB)
    if environ.get("GITLAB_CI"):
        tags |= _named(environ, _GITLAB)
    tags |= {tag: str(resource[name]) for name, tag in _KUBERNETES.items() if resource.get(name)}
    if environ.get("JOB_COMPLETION_INDEX"):
        tags["k8s.index"] = environ["JOB_COMPLETION_INDEX"]
    tags |= _nextflow(directory)
    if not tags.get("rule"):
        tags |= _snakemake(parent, proc)
    return tags


def input_bytes(argv: Sequence[str], directory: str | os.PathLike[str] | None) -> int | None:
    """Size of the regular files that the arguments of a command name, programs left out; `None`: they name none.

    Said of the moment at which it is called: a file that the command itself will write is not there yet. Cost: 2 us an argument.
    """
    total, found = 0, False
    for word in argv[1 : _INPUTS + 1]:
        name = word.partition("=")[2] if word.startswith("-") else word
        if not name or len(name) > 4096:
            continue
        try:
            status = os.stat(os.path.join(directory or ".", name))
        except (OSError, ValueError):
            continue
        # A script, or a program that is run by another one, is no input.
        if status.st_mode & 0o170000 == 0o100000 and not name.endswith(
            (".py", ".sh", ".js", ".pl", ".rb", ".R", ".jar")
        ):
            total, found = total + status.st_size, True
    return total if found else None


def _named(environ: Mapping[str, str], names: Mapping[str, str]) -> Tags:
    return {tag: environ[variable] for variable, tag in names.items() if environ.get(variable)}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _nextflow(directory: str | os.PathLike[str] | None) -> Tags:
    if directory is None:
        return {}
    from otel_memwatch.record.jsonl import open_regular

    try:
        with os.fdopen(open_regular(os.path.join(directory, ".command.run")), "rb") as file:
            head = file.read(_HEAD).decode(errors="replace")
    except OSError:
        return {}
    found = _NEXTFLOW_TASK.search(head)
    if not found:
        return {}
    name = found[1].strip()
    # "NFCORE:ALIGN:BWA (sample 1)": the process, then the task's tag.
    return {"rule": name.partition(" (")[0].rpartition(":")[2], "nextflow.task": name}


def _snakemake(parent: int, proc: Path) -> Tags:
    for argv in _ancestors(parent, proc):
        if not any("snakemake" in word for word in argv[:4]) or "--target-jobs" not in argv:
            continue
        index = argv.index("--target-jobs")
        job = argv[index + 1] if index + 1 < len(argv) else ""
        rule, _, wildcards = job.partition(":")
        tags = {"rule": rule} if rule else {}
        if wildcards:
            tags["wildcards"] = wildcards
        if "--attempt" in argv[:-1]:
            tags["attempt"] = argv[argv.index("--attempt") + 1]
        return tags
    return {}


def _ancestors(pid: int, proc: Path) -> Iterator[list[str]]:
    """The arguments of a process and of those above it, as far as they can be read."""
    for _ in range(_GENERATIONS):
        if pid <= 1:
            return
        try:
            arguments = (proc / str(pid) / "cmdline").read_bytes()
            status = (proc / str(pid) / "stat").read_bytes()
            pid = int(status[status.rindex(b")") + 1 :].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield arguments.decode(errors="replace").split("\0")
