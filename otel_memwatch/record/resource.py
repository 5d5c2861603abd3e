"""OpenTelemetry resource of a run: service, process, host, container, Kubernetes, Slurm, CI. Stdlib only.

OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME take precedence. The attributes never contain arguments of the command.
Reading a few small files once costs about a millisecond.
"""

from __future__ import annotations

import os
import time

from otel_memwatch.runtime.light import Mapping
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Attributes = dict[str, str | int]

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm32", "ppc64le": "ppc64", "i686": "x86"}

_SLURM = {
    "SLURM_JOB_ID": "memwatch.slurm.job.id",
    "SLURM_JOB_NAME": "memwatch.slurm.job.name",
    "SLURM_ARRAY_JOB_ID": "memwatch.slurm.array.job.id",
    "SLURM_ARRAY_TASK_ID": "memwatch.slurm.array.task.id",
    "SLURM_STEP_ID": "memwatch.slurm.step.id",
    "SLURM_PROCID": "memwatch.slurm.process.id",
    "SLURMD_NODENAME": "memwatch.slurm.node.name",
    "SLURM_CLUSTER_NAME": "memwatch.slurm.cluster.name",
    "SLURM_JOB_PARTITION": "memwatch.slurm.partition.name",
}

_KUBERNETES: dict[str, tuple[str, ...]] = {
    "k8s.pod.name": ("K8S_POD_NAME", "OTEL_RESOURCE_ATTRIBUTES_POD_NAME", "POD_NAME"),
    "k8s.pod.uid": ("K8S_POD_UID", "OTEL_RESOURCE_ATTRIBUTES_POD_UID", "POD_UID"),
    "k8s.namespace.name": ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE", "K8S_POD_NAMESPACE", "POD_NAMESPACE"),
    "k8s.node.name": ("K8S_NODE_NAME", "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME", "NODE_NAME"),
    "k8s.container.name": ("K8S_CONTAINER_NAME", "CONTAINER_NAME"),
    "k8s.job.name": ("K8S_JOB_NAME",),
    "k8s.cronjob.name": ("K8S_CRONJOB_NAME",),
    "k8s.cluster.name": ("K8S_CLUSTER_NAME",),
}

KEYS = frozenset(
    ("service.name", "service.instance.id", "memwatch.run.id", "telemetry.distro.name", "process.executable.name",
     "process.pid", "process.creation.time", "host.name", "host.arch", "host.id", "os.type", "os.version",
     "os.description", "container.id", *_SLURM.values(), *_KUBERNETES, "memwatch.group.id", "memwatch.group.rank",
     "memwatch.group.local_rank", "memwatch.group.size")
)  # fmt: skip
"""Names of the attributes that are set here and for groups."""

_ID_LENGTH = 64
_HEXADECIMAL = frozenset("0123456789abcdef")


def resource_attributes(
    run: Mapping[str, object], environ: Mapping[str, str], root: str | os.PathLike[str] = ""
) -> Attributes:
    """Return the resource attributes of all metrics and spans of a run.

    Args:
        run: fields of run.json that are known at the start.
        environ: environment of the target at its start.
        root: directory that contains /proc and /etc; tests pass another one.

    """
    given = parse_attributes(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    surroundings = surroundings_attributes(environ, root)
    identifier = str(run.get("id") or "run")
    trace = run.get("trace")
    unique = str(trace.get("span_id", ""))[:8] if isinstance(trace, Mapping) else ""
    service = {
        "service.name": str(run.get("name") or "") or _program(run) or "unknown_service",
        "service.instance.id": f"{identifier}-{unique}" if unique else identifier,
        "memwatch.run.id": identifier,
        "telemetry.distro.name": "otel-memwatch",
    }
    found = {
        **service,
        **_process(run),
        **_host(run, root, "container.id" in surroundings),
        **surroundings,
    }
    name = environ.get("OTEL_SERVICE_NAME", "").strip()
    return {**found, **given, **({"service.name": name} if name else {})}


def surroundings_attributes(environ: Mapping[str, str], root: str | os.PathLike[str] = "") -> Attributes:
    """Return attributes of this process's container, pod and Slurm job."""
    container = _container_id(root)
    return {
        **({"container.id": container} if container else {}),
        **_kubernetes(environ, root),
        **{name: environ[variable] for variable, name in _SLURM.items() if environ.get(variable)},
    }


def parse_attributes(text: str) -> dict[str, str]:
    """Parse OTEL_RESOURCE_ATTRIBUTES: "key=value,key=value" with percent-encoded values. Ignores malformed parts."""
    if not text:
        return {}
    from urllib.parse import unquote

    result = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals and key.strip():
            result[key.strip()] = unquote(value.strip())
    return result


def _program(run: Mapping[str, object]) -> str:
    command = run.get("command")
    return os.path.basename(str(command[0])) if isinstance(command, (list, tuple)) and command else ""


def _process(run: Mapping[str, object]) -> Attributes:
    attributes: Attributes = {}
    program, target, started = _program(run), run.get("target"), run.get("started")
    if program:
        attributes["process.executable.name"] = program
    if isinstance(target, Mapping) and isinstance(target.get("pid"), int):
        attributes["process.pid"] = target["pid"]
    if isinstance(started, Mapping) and isinstance(started.get("wall"), (int, float)):
        wall = float(started["wall"])
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall))
        attributes["process.creation.time"] = f"{moment}.{int(wall % 1 * 1000):03d}Z"
    return attributes


def _host(run: Mapping[str, object], root: str | os.PathLike[str], contained: bool) -> Attributes:
    host = run.get("host")
    if not isinstance(host, Mapping):
        return {}
    machine = str(host.get("machine") or "")
    attributes: Attributes = {
        "host.name": str(host.get("name") or ""),
        "host.arch": _ARCHITECTURES.get(machine, machine),
        "os.type": str(host.get("system") or "").lower(),
        "os.version": str(host.get("release") or ""),
    }
    for line in _text(f"{root}/etc/os-release").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            attributes["os.description"] = value.removeprefix('"').partition('"')[0]
    if not contained:
        # All containers of an image have the same machine id.
        attributes["host.id"] = _text(f"{root}/etc/machine-id").strip()
    return {name: value for name, value in attributes.items() if value}


def _container_id(root: str | os.PathLike[str]) -> str | None:
    """Return the id of this process's container, from its cgroup or from the mount of /etc/hostname."""
    places = [line.rpartition("/")[2] for line in _text(f"{root}/proc/self/cgroup").splitlines()]
    places += [
        line
        for line in _text(f"{root}/proc/self/mountinfo").splitlines()
        if " /etc/hostname " in line and "/containers/" in line
    ]
    for place in places:
        # No regular expression: importing `re` takes 3 ms.
        spaced = "".join(letter if letter in _HEXADECIMAL else " " for letter in place)
        for word in spaced.split():
            if len(word) == _ID_LENGTH:
                return word
    return None


def _kubernetes(environ: Mapping[str, str], root: str | os.PathLike[str]) -> Attributes:
    inside = "KUBERNETES_SERVICE_HOST" in environ
    found: Attributes = {}
    for attribute, variables in _KUBERNETES.items():
        for variable in variables:
            # Outside a cluster, a name without a prefix may have any meaning.
            if environ.get(variable) and (inside or variable.startswith(("K8S_", "OTEL_"))):
                found[attribute] = environ[variable]
                break
    if inside:
        namespace = _text(f"{root}/var/run/secrets/kubernetes.io/serviceaccount/namespace").strip()
        for attribute, value in (
            ("k8s.pod.name", environ.get("HOSTNAME")),
            ("k8s.namespace.name", namespace),
        ):
            if value:
                found.setdefault(attribute, value)
    return found


def ci_attributes(environ: Mapping[str, str]) -> Attributes:
    """Return attributes of the CI run for the run's span; empty outside CI.

    They contain ids of single CI runs. On the resource of metrics they would create a series per build, which the
    conventions forbid by default.
    """
    for variable, read in (("GITHUB_ACTIONS", _github), ("GITLAB_CI", _gitlab), ("JENKINS_URL", _jenkins)):
        if environ.get(variable):
            return {name: value for name, value in read(environ) if value}
    return {}


def _github(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    get = environ.get
    server, repository, run = (
        get("GITHUB_SERVER_URL", ""),
        get("GITHUB_REPOSITORY", ""),
        get("GITHUB_RUN_ID", ""),
    )
    attempt = get("GITHUB_RUN_ATTEMPT", "")
    url = f"{server}/{repository}" if server and repository else ""
    yield "cicd.pipeline.name", get("GITHUB_WORKFLOW", "")
    yield "cicd.pipeline.run.id", f"{run}-{attempt}" if run and attempt else run
    yield "cicd.pipeline.run.url.full", f"{url}/actions/runs/{run}" if url and run else ""
    yield "cicd.pipeline.task.name", get("GITHUB_JOB", "")
    yield "cicd.worker.name", get("RUNNER_NAME", "")
    yield "vcs.provider.name", "github"
    yield "vcs.repository.url.full", url
    yield "vcs.ref.head.name", get("GITHUB_HEAD_REF") or get("GITHUB_REF_NAME", "")
    yield "vcs.ref.head.revision", get("GITHUB_SHA", "")


def _gitlab(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    get = environ.get
    yield "cicd.pipeline.name", get("CI_PIPELINE_NAME") or get("CI_PROJECT_PATH", "")
    yield "cicd.pipeline.run.id", get("CI_PIPELINE_ID", "")
    yield "cicd.pipeline.run.url.full", get("CI_PIPELINE_URL", "")
    yield "cicd.pipeline.task.name", get("CI_JOB_NAME", "")
    yield "cicd.pipeline.task.run.id", get("CI_JOB_ID", "")
    yield "cicd.pipeline.task.run.url.full", get("CI_JOB_URL", "")
    yield "cicd.worker.id", get("CI_RUNNER_ID", "")
    yield "cicd.worker.name", get("CI_RUNNER_DESCRIPTION", "")
    yield "vcs.provider.name", "gitlab"
    yield "vcs.repository.url.full", get("CI_PROJECT_URL", "")
    yield "vcs.ref.head.name", get("CI_COMMIT_REF_NAME", "")
    yield "vcs.ref.head.revision", get("CI_COMMIT_SHA", "")


def _jenkins(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    import re

    get = environ.get
    yield "cicd.pipeline.name", get("JOB_NAME", "")
    yield "cicd.pipeline.run.id", get("BUILD_NUMBER", "")
    yield "cicd.pipeline.run.url.full", get("BUILD_URL", "")
    yield "cicd.pipeline.task.name", get("STAGE_NAME", "")
    yield "cicd.worker.name", get("NODE_NAME", "")
    yield "vcs.repository.url.full", re.sub(r"(?<=://)[^/@]*@", "", get("GIT_URL", ""))
    yield "vcs.ref.head.name", get("GIT_BRANCH", "")
    yield "vcs.ref.head.revision", get("GIT_COMMIT", "")


def _text(path: str) -> str:
    """Return the content of a small file; empty if not readable."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""
