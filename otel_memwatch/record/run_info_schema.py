"""Types of `run.json`: each field is declared and checked once, and readers use its name.

A field of another type than declared is `None` (or empty), and loses none of the others: a reader trusts no file. Sizes
are bytes. `None` means unknown. Fields that one report only passes on are read from the file as they are.

`_CHECKS` has a check for each type that is declared here, by the text of the declaration.
"""

from __future__ import annotations

from otel_memwatch.record.fields import mapping, moment, number, period, text, texts, trace_ids, whole
from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    _Fields = TypeVar("_Fields", bound=NamedTuple)

    Seconds = float
    """Moment of a clock."""
    Interval = float
    """Seconds between samples."""
    SpanIds = Mapping[str, Any]
    Outages = Mapping[str, tuple[float, str]]
    Codes = tuple[str, ...]
    Verdict = str


class ClockReading(NamedTuple):
    """One moment by two clocks."""

    wall: Seconds | None
    """Unix seconds."""
    monotonic: Seconds | None
    """Monotonic seconds of the recording machine."""


class TargetFields(NamedTuple):
    """The main process of the command."""

    pid: int | None
    start: Seconds | None
    """Monotonic seconds."""
    floor: int | None
    """Bytes; at or below this, wait4's maximum belongs to the launcher."""
    faults_before: int | None
    """Page faults before it entered the run's cgroup; `None`: not counted."""


class TargetGroupFields(NamedTuple):
    """The cgroup that `attach` recorded; all `None` if it recorded a process and its descendants."""

    kind: str | None
    """"cgroup", "unit", "container", "pod" or "job"."""
    name: str | None
    born: bool
    """True if the group began during the run."""


class HostFields(NamedTuple):
    """The recording machine."""

    name: str | None
    system: str | None
    release: str | None
    machine: str | None
    cpus: int | None
    """Processors that the run could use."""
    memory_bytes: int | None
    swap_bytes: int | None
    disk_rate: int | None
    """Bytes that the disk of the working directory moved in each second of its activity before the run."""


class MonitorFields(NamedTuple):
    """The process that recorded."""

    version: str | None
    pid: int | None
    pid_namespace: int | None
    python: str | None
    mode: str | None
    """"wrap", "attach" or "watch"."""


class ExitFields(NamedTuple):
    """The end of the command."""

    exit_code: int | None
    signal: int | None
    oom_kills: int | None
    """Processes of the run that the OOM killer has killed."""
    reason: str | None
    """A sentence."""


class GroupFields(NamedTuple):
    """Position of the run among the runs of one job; all `None` if it belongs to no job."""

    group: str | None
    """Name of the group."""
    launcher: str | None
    rank: int | None
    local_rank: int | None
    size: int | None
    """Number of ranks."""
    first: int | None
    """Lowest rank."""
    step: int | None
    """Difference of two successive ranks."""
    attempt: int | None


class HolderFields(NamedTuple):
    """A process that held memory when the run exceeded its limit."""

    pid: int | None
    command: str | None
    bytes: int | None


class LimitFields(NamedTuple):
    """The limit of `--limit`; all `None` without one."""

    bytes: int | None
    by: str | None
    """"control group", or "process": each process has the limit."""
    breached: bool
    """True if the run was killed for exceeding the limit."""
    operation: str | None
    """Innermost operation that was open then."""
    largest: tuple[HolderFields, ...]
    """The largest processes then, the largest first."""


class AskedFields(NamedTuple):
    """Request of the batch job around the run (`record.request`); all `None` without one."""

    by: str | None
    """Name of the scheduler."""
    memory_bytes: int | None
    cores: int | None
    gpus: int | None
    seconds: int | None


class VerdictFields(NamedTuple):
    """Verdict of the guard that ended the run; all `None` if it did not."""

    kind: Verdict | None
    """"limit", "stalled", "machine" or "timeout"."""
    at: float | None
    """Seconds since the start of the run."""
    largest: tuple[HolderFields, ...]
    """The largest processes then, the largest first."""


class FileFields(NamedTuple):
    """One file."""

    path: str | None
    bytes: int | None
    """Its size."""
    mapped: int | None
    """Most bytes that one process mapped of it; 0: it was only read."""
    resident: int | None
    """Most bytes of that in memory; `None`: not read within the budget."""


class FilesFields(NamedTuple):
    """Files that the tree used, as far as samples saw them; all `None` if none was seen."""

    number: int | None
    bytes: int | None
    """Sum of their sizes."""
    mapped: int | None
    """Sum of their mapped bytes."""
    largest: tuple[FileFields, ...]
    """Some of them, the largest first."""


class GpuFields(NamedTuple):
    """One GPU of the machine."""

    id: str
    """UUID, or another identity."""
    name: str | None
    pci: str | None
    recorded: bool
    """True if the record has samples of it."""
    processes: str | None
    """"by process" if it reports memory by process, otherwise the reason why not."""
    trouble: str | None
    unknown: Outages
    """Seconds for which the driver did not answer a question, and its first error, by question."""
    held: Mapping[str, int]
    """Largest sample of each process of the tree, by pid."""
    accounted: Mapping[str, int]
    """Exact peak of each process of the tree by the driver's accounting, by pid."""
    xid: Codes
    """Codes of errors that the driver reported."""


class ClockFields(NamedTuple):
    """The clock of the monotonic seconds."""

    boot_id: str | None
    """Start of the machine."""
    monotonic_offset: float | None
    """Seconds by which a time namespace has moved the clock."""


class Mark(NamedTuple):
    """A problem of the recording."""

    time: Seconds | None
    """Monotonic seconds."""
    text: str


class RunInfo(NamedTuple):
    """`run.json`, written atomically at the start, on a change and at the end."""

    schema: int | None
    id: str | None
    """Unique."""
    name: str | None
    """Given by the user; several runs may share it."""
    tags: Mapping[str, str]
    """Tags from the user, or from the workflow engine around the run."""
    state: str | None
    """"running", then "finished". "running" left behind: the monitor died."""
    command: tuple[str, ...]
    """Arguments of the command, verbatim."""
    cwd: str | None
    """Working directory of the command."""
    input_bytes: int | None
    """Size of the files among the arguments at the start, except scripts; `None`: no such files."""
    target: TargetFields
    host: HostFields
    monitor: MonitorFields
    started: ClockReading
    """Start of the command."""
    ended: ClockReading
    interval: Interval | None
    """Seconds between samples, as requested."""
    own_cgroup: str | None
    """Path of the cgroup that held the run and nothing else: made for it, or recorded by `attach`."""
    target_group: TargetGroupFields
    cgroup_version: int | None
    """1 or 2. The peak of version 2 covers the whole life of the cgroup at every sample."""
    cgroup_hint: str | None
    """Hint: a way to give the run a cgroup."""
    processors: int | None
    """Processors of the machine, on which the errors of the kernel's counters depend; `None` in older records."""
    rss_error_bytes: int | None
    """Error of this kernel's counters of resident memory, per process."""
    exact_sums: bool
    """True if readings of a living process (VmRSS, statm) were exact. Its high-water mark has the error all the same."""
    fault_bytes: int | None
    """Largest memory that one page fault brings."""
    page_bytes: int | None
    """Size of a base page, the least that a page fault brings."""
    reading_seconds: Interval | None
    """Seconds that reading a sample took at most, unless the sample states it."""
    faults_carried: bool
    """True if a sample's upper bound already covers page faults that may be older than the previous sample."""
    portable: bool
    """True if the figures come from psutil; none is exact then."""
    blind: bool
    """True if processes could not be watched. Those that were waited for are recorded at their end."""
    allocator: Mapping[str, str]
    """Environment variables for the memory allocator of the command."""
    limits: Mapping[str, int | None]
    """"cgroup_bytes", "host_bytes", "rlimit_as_bytes"; absent or `None`: no limit known."""
    quirks: tuple[str, ...]
    """Sentences about this kernel that lower a certainty."""
    sources: Mapping[str, Mapping[str, Any]]
    """Health of each source: "state" ("ok", "unavailable", "failed"), "hint", "reads", "failures", "seconds"; "silent" if a
    driver was asked and never answered."""
    settings: Mapping[str, Any]
    """Options in force."""
    trace: SpanIds
    """Ids of the run's span, in hexadecimal digits; empty unless they name a span."""
    exit: ExitFields
    file_bytes: int | None
    """Most file pages (RssFile) that a sample found in one process."""
    files_beside_peak: int | None
    """Files in use beside the peak: the largest sum over time of needed memory and files in use, less the peak; only with a
    cgroup of the run."""
    processes_high: int | None
    """Likely most memory of the processes together, plus memory files and kernel memory at samples; only with a cgroup of
    the run."""
    files: FilesFields
    """Files of 1 MiB and more that the tree mapped, or had open for reading."""
    recorded_until: Seconds | None
    """Monotonic seconds of the last sample, if the recording stopped before the run did."""
    marks: tuple[Mark, ...]
    group: GroupFields
    limit: LimitFields
    asked: AskedFields
    verdict: VerdictFields
    gpus: tuple[GpuFields, ...]
    clock: ClockFields
    resource: Mapping[str, Any]
    """Attributes of the run as an OpenTelemetry resource."""
    measured_by: str | None
    """Name of the tool, if another one measured; the run has no samples then."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> RunInfo:
        """Read the fields of `run.json`."""
        return _read(cls, info)


def _read(kind: type[_Fields], fields: Mapping[str, Any]) -> _Fields:
    """Return an object of the file as `kind`, each field checked by its declared type."""
    absent, checks = _plan(kind)
    values = absent.copy()
    for name, value in fields.items():
        if value is not None and (found := checks.get(name)) is not None:
            at, check = found
            values[at] = check(value)
    return tuple.__new__(kind, values)


@lru_cache(None)
def _plan(kind: type[NamedTuple]) -> tuple[list[Any], dict[str, tuple[int, Callable[[Any], Any]]]]:
    """Return the absent values, and place and check of each field: most files lack most fields, and an index reads thousands."""
    checks = [_CHECKS[declared] for declared in kind.__annotations__.values()]
    return [check(None) for check in checks], dict(zip(kind._fields, enumerate(checks), strict=True))


def _section(kind: type[_Fields]) -> Callable[[Any], _Fields]:
    return lambda value: _read(kind, mapping(value))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _outages(value: Any) -> Outages:
    found = {}
    for question, outage in mapping(value).items():
        fields = mapping(outage)
        seconds = number(fields.get("seconds"))
        if seconds is not None:
            found[question] = seconds, text(fields.get("error")) or ""
    return found


VERDICTS = ("limit", "stalled", "machine", "timeout")
"""Verdicts by which the guard ends a run."""

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "bool": lambda value: value is True,
    "str": str,
    "str | None": text,
    "int | None": whole,
    "float | None": number,
    "Seconds | None": moment,
    "Interval | None": period,
    "tuple[str, ...]": texts,
    "Codes": lambda value: tuple(str(event.get("code")) for event in _objects(value)),
    "Mapping[str, str]": lambda value: {k: v for k, v in mapping(value).items() if isinstance(v, str)},
    "Mapping[str, int]": lambda value: {
        k: n for k, v in mapping(value).items() if (n := whole(v)) is not None
    },
    "Mapping[str, int | None]": lambda value: {k: whole(v) for k, v in mapping(value).items()},
    "Mapping[str, Mapping[str, Any]]": lambda value: {k: mapping(v) for k, v in mapping(value).items()},
    "Mapping[str, Any]": mapping,
    "SpanIds": lambda value: trace_ids(mapping(value)),
    "Outages": _outages,
    "Verdict | None": lambda value: value if value in VERDICTS else None,
    "VerdictFields": _section(VerdictFields),
    "ClockReading": _section(ClockReading),
    "TargetFields": _section(TargetFields),
    "TargetGroupFields": _section(TargetGroupFields),
    "HostFields": _section(HostFields),
    "MonitorFields": _section(MonitorFields),
    "ExitFields": _section(ExitFields),
    "GroupFields": _section(GroupFields),
    "LimitFields": _section(LimitFields),
    "AskedFields": _section(AskedFields),
    "FilesFields": _section(FilesFields),
    "tuple[FileFields, ...]": lambda value: tuple(_read(FileFields, one) for one in _objects(value)),
    "ClockFields": _section(ClockFields),
    "tuple[Mark, ...]": lambda value: tuple(
        Mark(moment(one.get("time")), text(one.get("text")) or "")
        for one in (map(mapping, value) if isinstance(value, list) else ())
    ),
    "tuple[HolderFields, ...]": lambda value: tuple(
        _read(HolderFields, one) for one in _objects(value) if one
    ),
    "tuple[GpuFields, ...]": lambda value: tuple(_read(GpuFields, one) for one in _objects(value)),
}


def written_figures(
    info: Mapping[str, Any], section: str, keys: tuple[str, ...]
) -> dict[str, float | None] | None:
    """Return the numbers of `totals` or `quality`; `None` if the section is missing."""
    written = info.get(section)
    if not isinstance(written, dict):
        return None
    return {key: value if number(value := written.get(key)) is not None else None for key in keys}
