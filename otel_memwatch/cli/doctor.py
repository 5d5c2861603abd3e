"""`doctor`: what works on this machine, how exactly, and what would improve it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import time
from collections.abc import Iterator

import click

from otel_memwatch._version import __version__
from otel_memwatch.config import OPTIONS, misspelt, settings
from otel_memwatch.errors import MemwatchError, Unavailable, describe
from otel_memwatch.runtime.typed import Any, NamedTuple


class Finding(NamedTuple):
    """One line of the diagnosis."""

    subject: str
    state: str
    """"ok", "limited" or "absent"."""
    text: str
    hint: str = ""
    """What would improve it."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(*, as_json: bool) -> None:
    """Tell, source by source, what works here, how exact it will be, and what would improve it."""
    findings = [*_peaks(), *_sources(), *_exporters(), *_engines()]
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
        return
    click.echo(f"otel-memwatch {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        click.echo(f"{finding.subject:<{width}}  {finding.state:<7}  {finding.text}")
        if finding.hint:
            click.echo(f"{'':<{width}}           -> {finding.hint}")
    told = list(_settings())
    if told:
        click.echo("\nSettings from the environment")
        for line in told:
            click.echo(f"  {line}")


def _peaks() -> Iterator[Finding]:
    """How exactly each sort of peak will be known."""
    from otel_memwatch.monitor.sampling.sources.quirks import quirks
    from otel_memwatch.runtime.kernel import rss_error
    from otel_memwatch.runtime.procfs.mounted import shows_others

    error = rss_error()
    if shows_others():
        yield Finding(
            "peak of a process",
            "limited",
            "a lower end, told when it has ended: /proc is that of another pid namespace",
            "unshare --mount-proc, or mount -t proc proc /proc",
        )
    else:
        yield Finding("peak of a process", "ok", f"exact from the kernel's watermark, to {error // 1024} KiB")
    for quirk in quirks():
        yield Finding("kernel", "limited", quirk)
    yield _tree_peak()
    yield _reset()
    yield _compiled()


def _tree_peak() -> Finding:
    from otel_memwatch.monitor.run_cgroup.own_cgroup import OwnCgroup, systemd_runs

    subject = "peak of the tree"
    try:
        group = OwnCgroup.create()
    except Unavailable as why:
        reason = why
    else:
        group.remove()
        return Finding(subject, "ok", f"exact from a control group of the run's own ({group.path.parent})")
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
                where = f"a group that systemd gives, in {1e3 * seconds:.0f} ms ({folder.parent})"
                return Finding(subject, "ok", f"exact from {where}")
            late = f"systemd gives one only after {seconds:.1f} s."
            reason = Unavailable(late, "--cgroup require waits for it")
    return Finding(subject, "limited", "a certified interval", f"exact with a control group: {reason}")


def _reset() -> Finding:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError as error:
        return Finding(
            "peak of an operation",
            "limited",
            f"an interval: the watermark cannot be reset ({error.strerror})",
            "Linux with CONFIG_PROC_PAGE_MONITOR and a writable /proc",
        )
    return Finding("peak of an operation", "ok", "exact: a process may reset its own watermark")


def _compiled() -> Finding:
    from otel_memwatch.in_target.operations.native import COMPILED

    if COMPILED:
        return Finding("cost of an operation", "ok", "about 10 us, in compiled code")
    return Finding(
        "cost of an operation",
        "limited",
        "about 22 us in Python code, and milliseconds beside threads that compute in Python",
        "a wheel for this machine, or an installation where a C compiler and Python's headers are found",
    )


def _sources() -> Iterator[Finding]:
    """Every source, opened on this very process."""
    from otel_memwatch.monitor.sampling.sources import GPU_SOURCES, Context, open_sources

    sources, absent = open_sources(Context(root=os.getpid(), interval=1.0))
    for source in sources:
        try:
            values = source.read(0.0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what the user wants to know
            yield Finding(source.name, "absent", f"fails: {describe(error)}")
        else:
            known = sum(value is not None for value in values)
            now = "all of them" if known == len(source.columns) else str(known) if known else "none"
            later = "" if known == len(source.columns) else "; the others need time, or what is not here"
            yield Finding(source.name, "ok", f"{len(source.columns)} series, {now} with a value now{later}")
        if source.name in GPU_SOURCES:
            yield from _devices(source)
    for name, why in absent.items():
        yield Finding(name, "absent", why.message, why.hint or "")
    yield _cost(sources)


_TICKS = 5
_RATE = 10.0
"""Ticks a second by default."""


def _cost(sources: list[Any]) -> Finding:
    """What watching takes from this machine: measured on this process, which stands for a command of one process."""
    import psutil

    took = []
    for number in range(_TICKS):
        begin = time.process_time()
        for source in sources:
            with contextlib.suppress(Exception):
                source.read(1.0 + number)
        took.append(time.process_time() - begin)
    tick = sorted(took)[_TICKS // 2]
    resident = psutil.Process().memory_info().rss
    return Finding(
        "cost of watching",
        "ok",
        f"a tick takes {1e3 * tick:.1f} ms: {100 * tick * _RATE:.1f} % of one core for one process at {_RATE:.0f} Hz; up to "
        f"{resident >> 20} MiB of memory beside the command, in none of its figures, but below the same limit in a container",
    )


def _devices(source: Any) -> Iterator[Finding]:
    """The GPUs of a source, each with what keeps its figures from being whole."""
    for device in source.info():
        seen = {True: "", False: ", hidden from programs started here", None: ", perhaps not CUDA's"}
        visible = seen[device["visible"]] if device["vendor"] == "NVIDIA" else ""
        accounting = ", accounting on" if device.get("accounting") else ""
        words = (
            f"{device['id']}, driver {device['driver']}, memory {device['processes']}{accounting}{visible}"
        )
        absent = device.get("absent")
        hint = device.get("trouble") or (f"it does not tell {', '.join(absent)}" if absent else "")
        yield Finding(device["name"], "ok" if not device.get("trouble") else "absent", words, hint)


_EXPORTERS = (
    ("prometheus", "opentelemetry.exporter.prometheus", "otel-memwatch"),
    ("otlp over http", "opentelemetry.exporter.otlp.proto.http", "otel-memwatch"),
    ("otlp over grpc", "opentelemetry.exporter.otlp.proto.grpc", "'otel-memwatch[grpc]'"),
    ("export to parquet", "pyarrow", "'otel-memwatch[parquet]'"),
    ("pictures", "matplotlib", "otel-memwatch"),
)


def _exporters() -> Iterator[Finding]:
    for name, module, package in _EXPORTERS:
        if _installed(module):
            yield Finding(name, "ok", f"{module} is installed")
        else:
            yield Finding(name, "absent", f"{module} is not installed", f"pip install {package}")


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
    ("Airflow", "airflow", "each task is a run in OTEL_MEMWATCH_RUNS, where that is set for the workers"),
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
"""Engines that load us: a name, what there is where the engine is, how it is told."""


def _engines() -> Iterator[Finding]:
    """The engines and trackers beside which we are installed, and in one line those that are not here."""
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
            "engines, trackers", "absent", f"not in {where}: {', '.join(missing)}", "pip install them there"
        )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _settings() -> Iterator[str]:
    """The settings of `wrap` that somebody has made, and what is wrong with them."""
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
