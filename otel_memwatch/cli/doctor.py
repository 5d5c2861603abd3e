"""`doctor`: check which sources work on this machine, how exact they are, and how to improve them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence

import click

from otel_memwatch._version import __version__
from otel_memwatch.config import OPTIONS, misspelt, settings
from otel_memwatch.errors import MemwatchError, Unavailable, describe
from otel_memwatch.runtime.kernel import has_thread_counters, read_once, rss_error
from otel_memwatch.runtime.procfs.control_group import parse_mounts
from otel_memwatch.runtime.terminal import display_of
from otel_memwatch.runtime.typed import Any, NamedTuple


class Finding(NamedTuple):
    """One line of the diagnosis."""

    subject: str
    state: str
    """"ok", "limited" or "absent"."""
    text: str
    hint: str = ""
    """A way to improve it."""


_LEAST_TEXT = 30
"""Smallest width of a text beside its subject, in columns."""


def _table(findings: Sequence[Finding], columns: int | None) -> list[str]:
    """Return the lines of the findings. `columns`: of the terminal; `None`: nothing is wrapped."""
    import textwrap

    width = max(len(finding.subject) for finding in findings)
    indent = width + 2 + 7 + 2
    beside = columns is None or columns - indent >= _LEAST_TEXT
    left = " " * (indent if beside else 4)
    lines = []
    for finding in findings:
        head = f"{finding.subject:<{width}}  {finding.state:<7}"
        texts = [finding.text, *([f"-> {finding.hint}"] if finding.hint else [])]
        if columns is not None:
            room = max(_LEAST_TEXT, columns - len(left))
            texts = [line for text in texts for line in textwrap.wrap(text, room, break_long_words=False)]
        if beside:
            lines.append(f"{head}  {texts.pop(0)}")
        else:
            lines.append(head.rstrip())
        lines += [left + text for text in texts]
    return lines


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(*, as_json: bool) -> None:
    """Check each source: whether it works here, how exact it is, and how to improve it."""
    exporters = [
        Finding(name, "ok", f"{module} is installed")
        if _installed(module)
        else Finding(name, "absent", f"{module} is not installed", f"pip install {package}")
        for name, module, package in _EXPORTERS
    ]
    findings = [*_peaks(), *_sources(), *_stacks(), *exporters, *_engines()]
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
        return
    click.echo(f"otel-memwatch {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
    for line in _table(findings, display_of(1).width):
        click.echo(line)
    lines = list(_settings())
    if lines:
        click.echo("\nSettings from the environment")
        for line in lines:
            click.echo(f"  {line}")


def _by_counter(exact: str) -> tuple[str, str]:
    """Return state and text of a figure from a process's peak counter. `exact`: the text if its error is small."""
    from otel_memwatch.runtime.exactness import EXACT_BYTES, EXACT_PARTS
    from otel_memwatch.text import size

    if has_thread_counters(os.uname().release):
        return "limited", "a range: the error of the peak counter grows with the number of threads"
    error = rss_error()
    if error <= EXACT_BYTES:
        return "ok", exact
    least = size(error * EXACT_PARTS)
    return "limited", f"a range: the peak counter is off by up to {size(error)}; exact from {least} on"


def _peaks() -> Iterator[Finding]:
    """Report the certainty of each kind of peak."""
    from otel_memwatch.in_target.operations.native import COMPILED
    from otel_memwatch.runtime.procfs.mounted import shows_others
    from otel_memwatch.runtime.procfs.sums import quirks

    if shows_others():
        yield Finding(
            "peak of a process",
            "limited",
            "only a lower bound after its end: /proc belongs to another pid namespace",
            "unshare --mount-proc, or mount -t proc proc /proc",
        )
    else:
        yield Finding("peak of a process", *_by_counter("exact: from the kernel's peak counter"))
    for quirk in quirks():
        yield Finding("kernel", "limited", quirk)
    yield _tree_peak()
    yield from _groups()
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError as error:
        text = f"a range: the peak counter cannot be reset ({error.strerror})"
        hint = "Linux with CONFIG_PROC_PAGE_MONITOR and a writable /proc"
        yield Finding("peak of an operation", "limited", text, hint)
    else:
        yield Finding("peak of an operation", *_by_counter("exact: a process can reset its own peak counter"))
    if COMPILED:
        yield Finding("cost of an operation", "ok", "about 10 us (compiled code)")
    else:
        text = "about 22 us (Python code); milliseconds if other threads run Python"
        hint = "install a wheel for this machine, or install with a C compiler and Python's headers"
        yield Finding("cost of an operation", "limited", text, hint)


def _groups() -> Iterator[Finding]:
    """Report the rights for `attach` to units, containers, pods and jobs."""
    subject = "attach to a cgroup"
    try:
        mounts = parse_mounts(read_once("/proc/self/mountinfo"))
    except OSError as error:
        yield Finding(subject, "absent", f"/proc/self/mountinfo is unreadable ({error.strerror})")
        return
    counted = [mount for mount in mounts if mount.version == 2 or "memory" in mount.controllers]
    if not counted:
        yield Finding(subject, "absent", "no memory cgroup is mounted", "mount cgroup2 on /sys/fs/cgroup")
        return
    where = f"units, containers, pods and jobs below {counted[0].point}"
    if os.geteuid() == 0:
        yield Finding(subject, "ok", f"{where}, of all users")
        return
    yield Finding(
        subject,
        "limited",
        f"{where}; a range for those of other users, because their I/O is unreadable",
        "run as their user, as root, or with CAP_SYS_PTRACE",
    )


def _tree_peak() -> Finding:
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup, systemd_runs

    subject = "peak of the tree"
    try:
        group = OwnCgroup.create()
    except Unavailable as why:
        reason = why
    else:
        group.remove()
        return Finding(
            subject, "ok", f"exact, from a cgroup of the run's own ({os.path.dirname(group.path)})"
        )
    if systemd_runs():
        from otel_memwatch.monitor.run_cgroup import service_manager

        try:
            asked = service_manager.find()
            trial = service_manager.trial(asked) if asked is not None else None
        except Unavailable as why:
            trial, reason = None, why
        if trial is not None:
            folder, seconds = trial
            if seconds <= service_manager.PATIENCE:
                where = f"a systemd scope, created in {1e3 * seconds:.0f} ms ({os.path.dirname(folder)})"
                return Finding(subject, "ok", f"exact, from {where}")
            late = f"systemd creates one only after {seconds:.1f} s."
            reason = Unavailable(late, "--cgroup require waits for it")
    return Finding(subject, "limited", "a range with a best estimate", f"exact with a cgroup: {reason}")


_TICKS = 5
_RATE = 10.0
"""Samples a second by default."""


def _sources() -> Iterator[Finding]:
    """Open every source on this process, and report the GPUs of each and the cost of a sample."""
    import psutil

    from otel_memwatch.monitor.sampling.sources import GPU_SOURCES, Context, open_sources

    sources, absent = open_sources(Context(root=os.getpid(), interval=1.0))
    for source in sources:
        try:
            values = source.read(0.0)
        except Exception as error:  # noqa: BLE001 - any failure is a finding for the user
            yield Finding(source.name, "absent", f"fails: {describe(error)}")
        else:
            known = sum(value is not None for value in values)
            number = len(source.columns)
            now = f", {known} with values" if known else ", no values yet"
            later = "" if known == number else f"{now} (some need time or unavailable hardware)"
            yield Finding(source.name, "ok", f"{number} series{later}")
        gpus: Any = source if source.name in GPU_SOURCES else None
        for device in gpus.info() if gpus else ():
            seen = {True: "", False: ", hidden from programs started here", None: ", perhaps not CUDA's"}
            visible = seen[device["visible"]] if device["vendor"] == "NVIDIA" else ""
            accounting = ", accounting on" if device.get("accounting") else ""
            words = f"{device['id']}, driver {device['driver']}, memory {device['processes']}{accounting}{visible}"
            missing, trouble = device.get("absent"), device.get("trouble")
            hint = trouble or (f"it does not report {', '.join(missing)}" if missing else "")
            yield Finding(device["name"], "absent" if trouble else "ok", words, hint)
    for name, why in absent.items():
        yield Finding(name, "absent", why.message, why.hint or "")
    # Measure the cost of watching one process, with this process as the example.
    took = []
    for number in range(_TICKS):
        begin = time.process_time()
        for source in sources:
            with contextlib.suppress(Exception):
                source.read(1.0 + number)
        took.append(time.process_time() - begin)
    tick = sorted(took)[_TICKS // 2]
    resident = psutil.Process().memory_info().rss
    yield Finding(
        "cost of watching",
        "ok",
        f"a sample takes {1e3 * tick:.1f} ms: {100 * tick * _RATE:.1f} % of one core for one process at {_RATE:.0f} Hz; uses up to "
        f"{resident >> 20} MiB itself, not included in the results, but counted toward a container's limit",
    )


def _stacks() -> Iterator[Finding]:
    """Report the tools for --stacks in the order of their use, and whether they may read processes."""
    from otel_memwatch.monitor.sampling.stacks.means import MEANS, permission

    yield Finding("stacks: Python 3.11 to 3.15", "ok", "read from the program's memory, without stopping it")
    words = {
        "python": "other Python programs",
        "jvm": "Java programs",
        "native": "native programs with symbols",
    }
    for means in MEANS:
        path = means.executable()
        subject = f"stacks: {words[means.programs]}"
        if path is None:
            yield Finding(subject, "absent", f"{means.name} is not installed", means.install)
        else:
            limit = "; JavaScript functions have no symbols" if means.programs == "native" else ""
            yield Finding(subject, "ok", f"{means.name} ({path}){limit}")
    allowed, remedy = permission()
    if not allowed:
        yield Finding("stacks: permission", "absent", "processes of this user may not be read", remedy)
    elif remedy:
        yield Finding("stacks: permission", "ok", remedy)


_EXPORTERS = (
    ("prometheus", "opentelemetry.exporter.prometheus", "otel-memwatch"),
    ("otlp over http", "opentelemetry.exporter.otlp.proto.http", "otel-memwatch"),
    ("otlp over grpc", "opentelemetry.exporter.otlp.proto.grpc", "'otel-memwatch[grpc]'"),
    ("export to parquet", "pyarrow", "'otel-memwatch[parquet]'"),
    ("pictures", "matplotlib", "otel-memwatch"),
)


_ENGINES = (
    ("pytest", "pytest", "pytest --memwatch"),
    (
        "Dask",
        "distributed",
        "DASK_DISTRIBUTED__WORKER__PRELOAD=otel_memwatch.plugins.dask, the same with SCHEDULER",
    ),
    ("Ray", "ray", 'runtime_env={"worker_process_setup_hook": "otel_memwatch.plugins.ray.setup"}'),
    (
        "Snakemake",
        "snakemake",
        'otel-memwatch shell --install shells; PATH="$PWD/shells:$PATH" snakemake',
    ),
    ("stores", "fsspec", "wrap --upload s3://..., and report s3://..."),
    ("Airflow", "airflow", "each task is a run in OTEL_MEMWATCH_RUNS, if that is set for the workers"),
    (
        "Galaxy",
        "galaxy.job_metrics",
        "default_job_shell: what otel-memwatch shell --install wrote; otel_memwatch.plugins.galaxy among its job metrics",
    ),
    (
        "cwltool",
        "cwltool",
        'otel-memwatch shell --install shells --name TOOL; PATH="$PWD/shells:$PATH" cwltool',
    ),
)
"""Engines that load this package: name, module, and how to enable it."""


def _engines() -> Iterator[Finding]:
    """Report engines and trackers in this Python, and in one line those that are missing."""
    from otel_memwatch.wings.trackers import TRACKERS

    missing = []
    for name, module, way in _ENGINES:
        if _installed(module):
            yield Finding(name, "ok", way)
        else:
            missing.append(module)
    for tracker in TRACKERS.values():
        if _installed(tracker.module):
            yield Finding(tracker.name, "ok", f"--tracker auto, or export --to {tracker.name}")
        else:
            missing.append(tracker.package)
    if missing:
        where = "the Python that otel-memwatch is installed in"
        yield Finding(
            "engines, trackers",
            "absent",
            f"not in {where}: {', '.join(missing)}",
            "install them there with pip",
        )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _settings() -> Iterator[str]:
    """Report the settings of `wrap` from the environment, and mistakes in them."""
    yield from misspelt(os.environ)
    try:
        values = settings("wrap", {})
    except MemwatchError as error:
        yield str(error)
        return
    for name, value in values.items():
        option = OPTIONS[name]
        if option.variable in os.environ:
            yield f"{option.flag:<20} {value!s} ({option.variable})"
