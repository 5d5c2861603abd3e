"""Types of `run.json`: each field is declared and checked once, and readers use its name.

A field of another type than declared is `None` (or empty), and loses none of the others: a reader trusts no file. Sizes
are bytes. `None` means unknown. Fields that one report only passes on are read from the file as they are.
"""

from __future__ import annotations

from otel_memwatch.record.fields import mapping, moment, number, period, text, texts, trace_ids, whole
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ClockReading(NamedTuple):
    """One moment by two clocks."""

    wall: float | None
    """Unix seconds."""
    monotonic: float | None
    """Monotonic seconds of the recording machine."""

    @classmethod
    def of(cls, value: Any) -> ClockReading:
        """Read `started` or `ended`."""
        fields = mapping(value)
        return cls(moment(fields.get("wall")), moment(fields.get("monotonic")))


class TargetFields(NamedTuple):
    """The main process of the command."""

    pid: int | None
    start: float | None
    """Monotonic seconds."""
    floor: int | None
    """Bytes; at or below this, wait4's maximum belongs to the launcher."""

    @classmethod
    def of(cls, value: Any) -> TargetFields:
        """Read `target`."""
        fields = mapping(value)
        return cls(whole(fields.get("pid")), moment(fields.get("start")), whole(fields.get("floor")))


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

    @classmethod
    def of(cls, value: Any) -> HostFields:
        """Read `host`."""
        fields = mapping(value)
        return cls(
            name=text(fields.get("name")),
            system=text(fields.get("system")),
            release=text(fields.get("release")),
            machine=text(fields.get("machine")),
            cpus=whole(fields.get("cpus")),
            memory_bytes=whole(fields.get("memory_bytes")),
            swap_bytes=whole(fields.get("swap_bytes")),
        )


class MonitorFields(NamedTuple):
    """The process that recorded."""

    version: str | None
    pid: int | None
    pid_namespace: int | None
    python: str | None
    mode: str | None
    """"wrap", "attach" or "watch"."""

    @classmethod
    def of(cls, value: Any) -> MonitorFields:
        """Read `monitor`."""
        fields = mapping(value)
        return cls(
            version=text(fields.get("version")),
            pid=whole(fields.get("pid")),
            pid_namespace=whole(fields.get("pid_namespace")),
            python=text(fields.get("python")),
            mode=text(fields.get("mode")),
        )


class ExitFields(NamedTuple):
    """The end of the command."""

    exit_code: int | None
    signal: int | None
    oom_kills: int | None
    """Processes of the run that the OOM killer has killed."""
    reason: str | None
    """A sentence."""

    @classmethod
    def of(cls, value: Any) -> ExitFields:
        """Read `exit`."""
        fields = mapping(value)
        return cls(
            whole(fields.get("exit_code")),
            whole(fields.get("signal")),
            whole(fields.get("oom_kills")),
            text(fields.get("reason")),
        )


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

    @classmethod
    def of(cls, value: Any) -> GroupFields:
        """Read `group`."""
        fields = mapping(value)
        numbers = (whole(fields.get(name)) for name in cls._fields[2:])
        return cls(text(fields.get("group")), text(fields.get("launcher")), *numbers)


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

    @classmethod
    def of(cls, value: Any) -> LimitFields:
        """Read `limit`."""
        fields = mapping(value)
        entries = [entry for entry in _objects(fields.get("largest")) if entry]
        largest = [
            HolderFields(whole(entry.get("pid")), text(entry.get("command")), whole(entry.get("bytes")))
            for entry in entries
        ]
        breached = fields.get("breached") is True
        return cls(
            whole(fields.get("bytes")),
            text(fields.get("by")),
            breached,
            text(fields.get("operation")),
            tuple(largest),
        )


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
    unknown: Mapping[str, tuple[float, str]]
    """Seconds for which the driver did not answer a question, and its first error, by question."""
    held: Mapping[str, int]
    """Largest sample of each process of the tree, by pid."""
    accounted: Mapping[str, int]
    """Exact peak of each process of the tree by the driver's accounting, by pid."""
    xid: tuple[str, ...]
    """Codes of errors that the driver reported."""

    @classmethod
    def of(cls, value: Any) -> GpuFields:
        """Read an element of `gpus`."""
        fields = mapping(value)
        return cls(
            id=str(fields.get("id")),
            name=text(fields.get("name")),
            pci=text(fields.get("pci")),
            recorded=bool(fields.get("recorded")),
            processes=text(fields.get("processes")),
            trouble=text(fields.get("trouble")),
            unknown=_outages(fields.get("unknown")),
            held=_bytes_by_pid(fields.get("held")),
            accounted=_bytes_by_pid(fields.get("accounted")),
            xid=tuple(str(event.get("code")) for event in _objects(fields.get("xid"))),
        )


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _bytes_by_pid(value: Any) -> Mapping[str, int]:
    return {pid: size for pid, held in mapping(value).items() if (size := whole(held)) is not None}


def _outages(value: Any) -> Mapping[str, tuple[float, str]]:
    found = {}
    for question, outage in mapping(value).items():
        fields = mapping(outage)
        seconds = number(fields.get("seconds"))
        if seconds is not None:
            found[question] = seconds, text(fields.get("error")) or ""
    return found


class ClockFields(NamedTuple):
    """The clock of the monotonic seconds."""

    boot_id: str | None
    """Start of the machine."""
    monotonic_offset: float | None
    """Seconds by which a time namespace has moved the clock."""

    @classmethod
    def of(cls, value: Any) -> ClockFields:
        """Read `clock`."""
        fields = mapping(value)
        return cls(text(fields.get("boot_id")), number(fields.get("monotonic_offset")))


class Mark(NamedTuple):
    """A problem of the recording."""

    time: float | None
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
    interval: float | None
    """Seconds between samples, as requested."""
    own_cgroup: str | None
    """Path of the cgroup made for the run."""
    cgroup_version: int | None
    """1 or 2. The peak of version 2 covers the whole life of the cgroup at every sample."""
    cgroup_hint: str | None
    """Hint: a way to give the run a cgroup."""
    rss_error_bytes: int | None
    """Error of this kernel's counters of resident memory, per process."""
    fault_bytes: int | None
    """Largest memory that one page fault brings."""
    page_bytes: int | None
    """Size of a base page, the least that a page fault brings."""
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
    trace: Mapping[str, Any]
    """Ids of the run's span, in hexadecimal digits; empty unless they name a span."""
    exit: ExitFields
    file_bytes: int | None
    """Most file pages (RssFile) that a sample found in one process."""
    recorded_until: float | None
    """Monotonic seconds of the last sample, if the recording stopped before the run did."""
    marks: tuple[Mark, ...]
    group: GroupFields
    limit: LimitFields
    gpus: tuple[GpuFields, ...]
    clock: ClockFields
    resource: Mapping[str, Any]
    """Attributes of the run as an OpenTelemetry resource."""
    measured_by: str | None
    """Name of the tool, if another one measured; the run has no samples then."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> RunInfo:
        """Read the fields of `run.json`."""
        get, marks = info.get, info.get("marks")
        entries = [mapping(entry) for entry in marks] if isinstance(marks, list) else []
        return cls(
            schema=whole(get("schema")),
            id=text(get("id")),
            name=text(get("name")),
            tags={key: value for key, value in mapping(get("tags")).items() if isinstance(value, str)},
            state=text(get("state")),
            command=texts(get("command")),
            cwd=text(get("cwd")),
            input_bytes=whole(get("input_bytes")),
            target=TargetFields.of(get("target")),
            host=HostFields.of(get("host")),
            monitor=MonitorFields.of(get("monitor")),
            started=ClockReading.of(get("started")),
            ended=ClockReading.of(get("ended")),
            interval=period(get("interval")),
            own_cgroup=text(get("own_cgroup")),
            cgroup_version=whole(get("cgroup_version")),
            cgroup_hint=text(get("cgroup_hint")),
            rss_error_bytes=whole(get("rss_error_bytes")),
            fault_bytes=whole(get("fault_bytes")),
            page_bytes=whole(get("page_bytes")),
            faults_carried=get("faults_carried") is True,
            portable=get("portable") is True,
            blind=get("blind") is True,
            allocator={k: v for k, v in mapping(get("allocator")).items() if isinstance(v, str)},
            limits={name: whole(value) for name, value in mapping(get("limits")).items()},
            quirks=texts(get("quirks")),
            sources={name: mapping(health) for name, health in mapping(get("sources")).items()},
            settings=mapping(get("settings")),
            trace=trace_ids(mapping(get("trace"))),
            exit=ExitFields.of(get("exit")),
            file_bytes=whole(get("file_bytes")),
            recorded_until=moment(get("recorded_until")),
            marks=tuple(Mark(moment(one.get("time")), text(one.get("text")) or "") for one in entries),
            group=GroupFields.of(get("group")),
            limit=LimitFields.of(get("limit")),
            gpus=tuple(map(GpuFields.of, _objects(get("gpus")))),
            clock=ClockFields.of(get("clock")),
            resource=mapping(get("resource")),
            measured_by=text(get("measured_by")),
        )


def written_figures(
    info: Mapping[str, Any], section: str, keys: tuple[str, ...]
) -> dict[str, float | None] | None:
    """Return the numbers of `totals` or `quality`; `None` if the section is missing."""
    written = info.get(section)
    if not isinstance(written, dict):
        return None
    return {key: value if number(value := written.get(key)) is not None else None for key in keys}
