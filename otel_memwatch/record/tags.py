"""Tags of a run from the workflow engine around it. Stdlib only.

- Snakemake: `rule`, `wildcards`, `attempt`. All executors except the local one start
  `snakemake --target-jobs RULE:WILDCARDS` around a job. The local one starts the job's shell; its log names the outputs
  of each unfinished job. The job whose output the command or its script names is the job of the run.
- Nextflow: `rule` (the process), `nextflow.task`, from the first lines of `.command.run` in the working directory.
- Slurm: `slurm.job`, `slurm.name`, `slurm.array`, `slurm.task`, and `attempt` if requeued.
- GitHub: `github.workflow`, `github.job`, `github.run`, `github.repository`, `branch`, `commit`, `attempt`.
- GitLab: `gitlab.run`, `gitlab.pipeline`, `gitlab.job`, `gitlab.project`, `branch`, `commit`.
- MLflow: `mlflow.run`, `mlflow.name`, `mlflow.experiment`.
- W&B: `wandb.run`, `wandb.name`, `wandb.project`, `wandb.group`, `wandb.sweep`.
- Kubernetes: `k8s.pod`, `k8s.namespace`, `k8s.container`, `k8s.job`, `k8s.index`, from the run's resource and the Job's
  index.
"""

from __future__ import annotations

import os

from otel_memwatch.runtime.kernel import read_once
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Tags = dict[str, str]

_VARIABLES = {
    "SLURM_JOB_ID": "slurm.job",
    "SLURM_JOB_NAME": "slurm.name",
    "SLURM_ARRAY_JOB_ID": "slurm.array",
    "SLURM_ARRAY_TASK_ID": "slurm.task",
    "MLFLOW_RUN_ID": "mlflow.run",
    "MLFLOW_RUN_NAME": "mlflow.name",
    "MLFLOW_EXPERIMENT_ID": "mlflow.experiment",
    "MLFLOW_EXPERIMENT_NAME": "mlflow.experiment",  # the name wins over the id
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

_NEXTFLOW_TASK = r"(?m)^# NEXTFLOW TASK: (.{1,500})$"
_HEAD = 4096
"""Bytes of `.command.run` to read. The task's name is in its second line."""
_JOB = r"^(?:local)?(?:rule|checkpoint) (\S+):$"
_JOB_FIELD = r"^    (output|jobid|wildcards): (.+)$"
_JOB_END = r"^Finished job(?:id:)? (\d+)"
_TAIL = 256 << 10
"""Bytes of Snakemake's log to read: a job that begins is at its end."""
_SCRIPT = 256 << 10
"""Bytes of a script to read. Snakemake puts the names of the job's files before it."""
_GENERATIONS = 6
"""Number of ancestors to search for an engine, which is a shell or two above the command."""
_INPUTS = 1000
"""Number of arguments to check for files."""


def engine_tags(
    environ: Mapping[str, str],
    directory: str | os.PathLike[str] | None,
    resource: Mapping[str, object],
    parent: int,
    *,
    argv: Sequence[str] = (),
    proc: str | os.PathLike[str] = "/proc",
) -> Tags:
    """Return the tags of a run from the engines around it.

    Args:
        environ: environment of the target at its start.
        directory: its working directory; `None` if unknown.
        resource: the run's resource, for attributes of a pod.
        parent: PID of the process that started the run.
        argv: command of the run.
        proc: path of /proc; tests pass another one.

    Cost: 50 us, plus 50 us for each of a few ancestors; 2 ms to read Snakemake's log.

    """
    tags = _named(environ, _VARIABLES)
    if environ.get("SLURM_RESTART_COUNT", "0") not in ("", "0"):
        restarts = environ["SLURM_RESTART_COUNT"]
        is_number = restarts.isascii() and restarts.isdecimal() and len(restarts) < 10
        tags["attempt"] = str(int(restarts) + 1 if is_number else 1)
    if environ.get("GITHUB_ACTIONS"):
        tags |= _named(environ, _GITHUB)
    if environ.get("GITLAB_CI"):
        tags |= _named(environ, _GITLAB)
    tags |= {tag: str(resource[name]) for name, tag in _KUBERNETES.items() if resource.get(name)}
    if environ.get("JOB_COMPLETION_INDEX"):
        tags["k8s.index"] = environ["JOB_COMPLETION_INDEX"]
    tags |= _nextflow(directory)
    if not tags.get("rule"):
        tags |= _snakemake(parent, proc, argv, directory)
    return tags


def input_bytes(argv: Sequence[str], directory: str | os.PathLike[str] | None) -> int | None:
    """Return the size of regular files named in a command's arguments, without programs; `None` if there are none.

    Files that the command will write do not exist yet and do not count. Cost: 2 us per argument.
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
        # A script, or a program that another one runs, is not an input.
        if status.st_mode & 0o170000 == 0o100000 and not name.endswith(
            (".py", ".sh", ".js", ".pl", ".rb", ".R", ".jar")
        ):
            total, found = total + status.st_size, True
    return total if found else None


def _named(environ: Mapping[str, str], names: Mapping[str, str]) -> Tags:
    return {tag: environ[variable] for variable, tag in names.items() if environ.get(variable)}


def _nextflow(directory: str | os.PathLike[str] | None) -> Tags:
    if directory is None:
        return {}
    try:
        head = _text_of(os.path.join(directory, ".command.run"), _HEAD)
    except OSError:
        return {}
    import re

    found = re.search(_NEXTFLOW_TASK, head)
    if not found:
        return {}
    name = found[1].strip()
    # Format: "NFCORE:ALIGN:BWA (sample 1)", with the process and the task's tag.
    return {"rule": name.partition(" (")[0].rpartition(":")[2], "nextflow.task": name}


def _snakemake(
    parent: int,
    proc: str | os.PathLike[str],
    command: Sequence[str],
    directory: str | os.PathLike[str] | None,
) -> Tags:
    for argv in _ancestors(parent, proc):
        if not any("snakemake" in word for word in argv[:4]):
            continue
        if "--target-jobs" not in argv:
            return _local_job(command, directory) if command and directory is not None else {}
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


def _local_job(command: Sequence[str], directory: str | os.PathLike[str]) -> Tags:
    """Return the tags of the unfinished job in Snakemake's log with an output that the command or its script names."""
    place = os.path.join(directory, ".snakemake")
    try:
        logs = [name for name in os.listdir(os.path.join(place, "log")) if name.endswith(".log")]
        jobs = _unfinished(_text_of(os.path.join(place, "log", max(logs)), -_TAIL))
        import re

        made = {output: job for job in jobs for output in job.get("output", "").split(", ") if output}
        named = [name for name in made if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", command[-1])]
        script = re.search(rf"{re.escape(os.path.join(place, 'scripts'))}/[^\s'\"/]+", command[-1])
        if not named and script:
            content = _text_of(script[0], _SCRIPT)
            named = [name for name in made if name in content]
    except (OSError, ValueError):
        return {}
    if not named:
        return {}
    job = made[max(named, key=len)]  # "1.txt" is also a part of "11.txt"
    tags = {"rule": job["rule"]}
    if "wildcards" in job:
        tags["wildcards"] = job["wildcards"].replace(", ", ",")
    return tags


def _unfinished(log: str) -> list[dict[str, str]]:
    """Return rule, output, jobid and wildcards of the jobs in a log of Snakemake that have not finished."""
    import re

    jobs: list[dict[str, str]] = []
    finished = set()
    for line in log.splitlines():
        if job := re.match(_JOB, line):
            jobs.append({"rule": job[1]})
        elif field := re.match(_JOB_FIELD, line):
            if jobs:
                jobs[-1].setdefault(field[1], field[2])
        elif end := re.match(_JOB_END, line):
            finished.add(end[1])
    return [job for job in jobs if job.get("jobid") not in finished]


def _text_of(path: str, size: int) -> str:
    """Return the first bytes of a regular file as text, or the last ones if `size` is negative."""
    from otel_memwatch.record.jsonl import open_regular

    with os.fdopen(open_regular(path), "rb") as file:
        if size < 0:
            file.seek(max(0, os.fstat(file.fileno()).st_size + size))
        return file.read(abs(size)).decode(errors="replace")


def _ancestors(pid: int, proc: str | os.PathLike[str]) -> Iterator[list[str]]:
    """Yield the arguments of a process and of its ancestors, as far as they are readable."""
    for _ in range(_GENERATIONS):
        if pid <= 1:
            return
        try:
            arguments, status = (read_once(f"{proc}/{pid}/{name}") for name in ("cmdline", "stat"))
            pid = int(status[status.rindex(b")") + 1 :].split()[1])
        except (OSError, ValueError, IndexError):
            return
        yield arguments.decode(errors="replace").split("\0")
