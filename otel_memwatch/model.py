"""The values that the layers exchange: columns, snapshots, processes, operations, peaks.

All sizes are bytes and all durations seconds. All `time` values are seconds of `time.monotonic()`, the clock that every
process of one machine shares. `None` means "unknown", never zero.
"""

from __future__ import annotations

from otel_memwatch.errors import shell_code
from otel_memwatch.runtime.exactness import is_exact
from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, Enum, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Attributes = tuple[tuple[str, str], ...]
"""Attribute names and values of one series, sorted by name."""

Value = float | int | None


class Column(NamedTuple):
    """One series that a source delivers: a metric of the catalogue with fixed attributes."""

    metric: str
    """Name of the metric, a row of `catalog.METRICS`."""
    attributes: Attributes = ()
    period: float = 0.0
    """Seconds between two values; 0 stands for every tick. In between the value is `None`."""

    @property
    def series(self) -> str:
        """Metric and attributes: `memwatch.tree.disk.io{disk.io.direction=read}`."""
        attributes = ",".join(f"{name}={value}" for name, value in self.attributes)
        return self.metric + (f"{{{attributes}}}" if attributes else "")


class Snapshot(NamedTuple):
    """All values of one tick, of one moment."""

    time: float
    """Monotonic seconds at which the tick began."""
    wall: float
    """Unix seconds of the same moment."""
    values: tuple[Value, ...]
    """One value for each column of the sampler, in its order."""
    missed: int = 0
    """Deadlines that passed without a tick since the one before."""


if TYPE_CHECKING:

    class Source(Protocol):
        """A readable source of values. A failing `read` publishes nothing for that sample; it never ends the run.

        `columns` is fixed when the source has been constructed. A constructor raises
        `otel_memwatch.errors.Unavailable` if the machine lacks the source.
        """

        name: str
        columns: Sequence[Column]

        def read(self, now: float) -> Sequence[Value]:
            """Return one value for each column (`None`: unknown or not due); `now` is monotonic seconds."""


class Certainty(str, Enum):
    """Certainty of a peak."""

    EXACT = "exact"
    """A watermark covered the whole time; the truth lies between `low` and `high`, which differ little (`runtime.exactness`)."""
    INTERVAL = "interval"
    """The truth lies between `low` and `high`, certified; `bytes` is the lower end."""
    CENSORED = "censored"
    """The counter only says "no more than": the truth is at most `high`."""
    SAMPLED = "sampled"
    """The largest value of the samples; the truth may be larger."""


class Evidence(str, Enum):
    """A reading from which a peak follows. Records contain the value, and `Peak.how` the words."""

    words: str

    def __new__(cls, value: str, words: str) -> Evidence:  # noqa: PYI034 - an enumeration has no subclasses
        """Make a member of its value in records and its words for users."""
        made = str.__new__(cls, value)
        made._value_, made.words = value, words
        return made

    PROCESS_PEAK = "process_peak", "VmHWM"
    PROCESS_PEAK_WINDOWS = "process_peak_windows", "windows of VmHWM"
    PROCESS_PEAK_SUM = "process_peak_sum", "sum of VmHWM"
    READ_BEFORE_END = "read_before_end", "last read before its end"
    LAST_BOUNDARY = "last_boundary", "VmHWM up to its last boundary"
    WAIT4 = "wait4", "wait4"
    WITH_DESCENDANTS = "with_descendants", "its descendants included"
    LAUNCHER_FLOOR = "launcher_floor", "not above the launcher's own"
    LARGEST_PROCESS = "largest_process", "largest process"
    LARGEST_PROCESS_OR_PSS = "largest_process_or_pss", "largest process or sum of PSS"
    RSS_SAMPLES = "rss_samples", "resident size at samples"
    RSS_SUM = "rss_sum", "sum of resident sizes at samples"
    PSS_SUM = "pss_sum", "sum of PSS"
    SAMPLES = "samples", "at samples"
    SAMPLES_BETWEEN = "samples_between", "samples"
    ONE_SAMPLE = "one_sample", "at one sample"
    UP_TO_LAST_SAMPLE = "up_to_last_sample", "up to the last sample"
    PAGE_FAULTS = "page_faults", "page faults"
    CHILDREN_FAULTS = "children_faults", "page faults of children"
    CGROUP_PEAK = "cgroup_peak", "cgroup watermark"
    CGROUP_PEAK_LESS_CACHE = "cgroup_peak_less_cache", "cgroup watermark less page cache"
    CGROUP_PEAK_WHILE_READ = "cgroup_peak_while_read", "cgroup watermark while it was read"
    CGROUP_LATE_RESET = "cgroup_late_reset", "reset late once"
    CGROUP_LESS_CACHE = "cgroup_less_cache", "cgroup less page cache"
    CGROUP_OR_PROCESS = "cgroup_or_process", "cgroup or largest process"
    LEFT_CGROUP = "left_cgroup", "not all were in the cgroup"
    AROUND_PEAK = "around_peak", "watermark of the cgroup around it"
    AROUND_ROSE = "around_rose", "rose during the run"
    AROUND_NOT_REACHED = "around_not_reached", "not reached"
    SHARED_CGROUP_PEAK = "shared_cgroup_peak", "the cgroup's watermark"
    SHARED_CGROUP_LIMIT = "shared_cgroup_limit", "the cgroup's limit"
    MACHINE = "machine", "the machine's memory"
    HUGETLB_SUM = "hugetlb_sum", "sum of HugetlbPages at samples"
    DEVICE_SAMPLES = "device_samples", "device memory in use"
    RANKS = "ranks", "sum of what each run needed at one instant"
    HOSTS = "hosts", "sum of the hosts' own peaks"
    OTLP = "otlp", "OTLP"


_OLD_PHRASES = {evidence.words: evidence for evidence in Evidence} | {
    "the control group's watermark": Evidence.SHARED_CGROUP_PEAK,
    "the control group's limit": Evidence.SHARED_CGROUP_LIMIT,
    "resident size at ticks": Evidence.RSS_SAMPLES,
    "sum of resident sizes at ticks": Evidence.RSS_SUM,
    "at ticks": Evidence.SAMPLES,
    "ticks": Evidence.SAMPLES_BETWEEN,
    "at one tick": Evidence.ONE_SAMPLE,
    "up to the last tick": Evidence.UP_TO_LAST_SAMPLE,
    "sum of HugetlbPages at ticks": Evidence.HUGETLB_SUM,
}
"""Phrases of `Peak.how` in records that have no `evidence`: never remove one."""


@lru_cache(256)
def evidence_of(how: str) -> tuple[Evidence, ...]:
    """Return the evidence that an old record states in words; empty if a phrase of it is unknown.

    Example: "VmHWM, wait4" is (PROCESS_PEAK, WAIT4).
    """
    found = [_OLD_PHRASES.get(phrase) for phrase in how.replace("; ", ", ").split(", ")]
    return () if None in found else tuple(one for one in found if one is not None)


class Peak(NamedTuple):
    """A largest value with its certainty."""

    bytes: int
    certainty: Certainty
    low: int | None = None
    """Lower bound in bytes; `None`: unknown."""
    high: int | None = None
    """Upper bound in bytes; `None`: unbounded."""
    at: float | None = None
    """Seconds since the start of the run when it first occurred, accurate to one sample; `None`: unknown."""
    pid: int | None = None
    """The process that held it, if it was one process."""
    operation: str | None = None
    """Name of the innermost operation that was open at `at`."""
    source: str = ""
    """The origin of the figure in words, if `evidence` does not name it: "held by torch.cuda", "5 runs"."""
    estimate: int | None = None
    """The most likely value between `low` and `high`, in bytes; `None`: none better than these."""
    operations: tuple[str, ...] = ()
    """Names of up to three operations that may have held it, or of the first four if there are more; `operation` is the first.
    Empty: it was in `operation`."""
    operation_likely: bool = False
    """True if a sample chose `operation` although the range is wide: between samples, the peak may have been in another one."""
    excludes: tuple[str, ...] = ()
    """Memory that may have existed beyond the bounds, in words: ("kernel", "files in memory").

    "kernel": the kernel memory that only a cgroup counts, such as pipes, sockets and dentries."""
    excluded_bytes: int = 0
    """Upper bound of the excluded files in memory: bytes that write calls wrote between two samples and that reached no disk."""
    evidence: tuple[Evidence, ...] = ()
    """The readings from which the figure follows."""
    low_at: float | None = None
    """Moment of the lower bound, if it is another than `at`. It is not in JSON; `operations` is."""

    @property
    def how(self) -> str:
        """The origin of the figure in words: "VmHWM", "wait4", "cgroup watermark" ..."""
        phrases = [self.source] if self.source else []
        return ", ".join([*phrases, *(one.words for one in self.evidence)])

    @classmethod
    def exact(cls, value: int, eps: int = 0, **rest: object) -> Peak:
        """A watermark's value, true to `eps` bytes."""
        return cls(value, Certainty.EXACT, max(0, value - eps), value + eps, **rest)  # type: ignore[arg-type]

    @classmethod
    def interval(cls, low: int, high: int | None, **rest: object) -> Peak:
        """A certified interval; `high` of `None` means that no upper bound is known."""
        return cls(low, Certainty.INTERVAL, low, high, **rest)  # type: ignore[arg-type]

    @classmethod
    def censored(cls, floor: int, low: int | None = None, **rest: object) -> Peak:
        """No more than `floor` bytes."""
        return cls(floor, Certainty.CENSORED, low, floor, **rest)  # type: ignore[arg-type]

    @classmethod
    def sampled(cls, value: int, high: int | None = None, **rest: object) -> Peak:
        """The largest of the samples."""
        return cls(value, Certainty.SAMPLED, value, high, **rest)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, object]:
        """The form of the report's contract (schema 1)."""
        return {
            "bytes": self.bytes,
            "certainty": self.certainty.value,
            "low": self.low,
            "high": self.high,
            "at": self.at,
            "pid": self.pid,
            "operation": self.operation,
            "how": self.how,
            "evidence": [one.value for one in self.evidence],
            **({"source": self.source} if self.source else {}),
            "estimate": self.estimate,
            **({"operations": list(self.operations)} if self.operations else {}),
            **({"operation_likely": True} if self.operation_likely else {}),
            **({"excludes": list(self.excludes)} if self.excludes else {}),
            **({"excluded_bytes": self.excluded_bytes} if self.excluded_bytes else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object] | None) -> Peak | None:
        """The inverse of `to_json`; `None` for `None`. Raises `ValueError` or `KeyError` for anything else."""
        if value is None:
            return None
        fields = {}
        for name, kinds in _PEAK_FIELDS.items():
            if (field := value.get(name)) is not None:
                if type(field) not in kinds:
                    raise ValueError(f"{name} of a peak is {field!r}")
                fields[name] = field
        if "bytes" not in fields:
            raise ValueError("a peak without a size")
        operations, excludes = _texts(value.get("operations")), _texts(value.get("excludes"))
        names = _texts(value.get("evidence"))
        source, how = str(value.get("source") or ""), str(value.get("how") or "")
        evidence = tuple([_EVIDENCE[name] for name in names if name in _EVIDENCE])
        if not isinstance(value.get("evidence"), list):  # of an older version
            evidence = evidence_of(how)
            source = "" if evidence else how
        elif len(evidence) < len(names):  # of a newer version
            evidence, source = (), how
        peak = cls(
            certainty=_CERTAINTY[value["certainty"]],
            source=source,
            operations=operations,
            excludes=excludes,
            evidence=evidence,
            **fields,  # type: ignore[arg-type]
        )
        low = peak.bytes if peak.low is None else peak.low
        high = peak.bytes if peak.high is None else peak.high
        if peak.certainty is Certainty.EXACT and not is_exact(peak.bytes, low, high):
            # An older version recorded it on a machine with many processors.
            return peak._replace(bytes=low, certainty=Certainty.INTERVAL, low=low, estimate=peak.bytes)
        return peak


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


_EVIDENCE = {one.value: one for one in Evidence}
_CERTAINTY: dict[object, Certainty] = {one.value: one for one in Certainty}

_PEAK_FIELDS: dict[str, tuple[type, ...]] = {
    "bytes": (int,),
    "low": (int,),
    "high": (int,),
    "estimate": (int,),
    "at": (int, float),
    "pid": (int,),
    "operation": (str,),
    "operation_likely": (bool,),
    "excluded_bytes": (int,),
}
"""Types of a peak's fields in JSON, unless they are null."""


class ProcessEvent(str, Enum):
    """Kind of a line of `processes.jsonl`."""

    SEEN = "seen"
    FIGURES = "figures"
    EXIT = "exit"


class ProcessNote(str, Enum):
    """Peculiarity of a process, as the text that the record keeps."""

    ZOMBIE = "zombie"
    """It has ended and no process has waited for it yet."""
    DENIED = "denied"
    """The kernel does not show us its I/O: it belongs to another user, or is not dumpable."""
    SHARES_MEMORY = "runs in its parent's memory"
    """It is between vfork and exec: its memory is its parent's."""
    EXEC = "exec"
    """It has executed another program since its last line."""
    IGNORES_CHILDREN = "ignores the end of its children"
    """It ignores SIGCHLD: the use of its unseen children is in no figure."""
    UNREAPED = "nobody waits for it"
    """Its parent ignores SIGCHLD: its last figures come from a sample."""
    NEVER_SEEN = "never seen alive"
    """No sample saw it: it is known by its end alone."""
    HIDDEN = "hidden from us"
    """/proc hides it from us (hidepid), though it lives. Only wait4 reports on it. Its `start` is the moment at which it was
    missed."""
    ALIVE_AT_END = "alive at the end"
    """It lived when the recording ended."""
    OUTSIDE_LEDGER = "got memory without page faults"
    """Pages came, or may have come, into the tree without a page fault of it (userfaultfd, another program).
    Its page faults do not bound its needed memory."""
    PINNED = "has pinned memory"
    """It has pages that a device or io_uring holds, perhaps in no mapping any more. Neither page faults nor resident sizes bound
    its needed memory."""
    UNWRITTEN_FILES = "shared memory rose without its writes"
    """The machine's shared memory rose by more than its tree maps and writes: files in memory may come and go unnoticed."""
    WATERMARK_RESET = "its watermark was reset by others"
    """Another program reset its high-water mark: the value before may be lost."""
    LEFT_CGROUP = "left the run's control group"
    """It was seen outside the run's cgroup and the cgroups below it: its use there is not counted."""

    __str__ = str.__str__


class ChildExit(NamedTuple):
    """The end of the target or of one of its orphaned descendants, with its rusage.

    - `max_rss`, the CPU times, the faults and the bytes of I/O come from wait4. They cover the process and all descendants
      that were waited for; `max_rss` is that of the largest one.
    - `stat`, `io` and `status` are the texts of the zombie's files in /proc. They contain the share of this process alone.
      They also show if it ignored the end of its children.
    - `cgroup` names its cgroup. `None`: /proc is absent or denies them.
    """

    pid: int
    time: float
    """Monotonic seconds at which it was found dead."""
    start: float | None
    """Start of the process in monotonic seconds (to one clock tick); `None`: unknown."""
    exit_code: int | None
    """`None` when a signal ended it."""
    signal: int | None
    max_rss: int
    """Bytes; a value not above `Target.floor` says only that the truth is not above it either."""
    cpu_user: float
    cpu_system: float
    minor_faults: int
    major_faults: int
    stat: bytes | None
    io: bytes | None
    status: bytes | None
    main: bool
    """The target itself."""
    cgroup: bytes | None = None
    read_bytes: int | None = None
    """Fetched from storage; `None`: this system's rusage does not say."""
    write_bytes: int | None = None
    """Caused to be written to storage."""
    sched: bytes | None = None
    """/proc/PID/sched of the target's zombie; `None`: this kernel has none, or it is another process."""
    switches: int | None = None
    """Context switches of the process and all descendants that were waited for."""


class ProcessRecord(NamedTuple):
    """Figures of one process at one moment; totals are since its start.

    CPU time and faults are without its children. Bytes read and written are with those of the children that it has
    waited for, as the kernel keeps them (`/proc/PID/io`).

    A process is identified by `pid` and `start` together: pids are used again.
    """

    event: ProcessEvent
    time: float
    """Monotonic seconds of the observation; for an exit, the latest moment at which it can have happened."""
    pid: int
    start: float
    """Start of the process in monotonic seconds (to one clock tick, 10 ms)."""
    ppid: int | None = None
    command: str | None = None
    """Short name (comm)."""
    argv: tuple[str, ...] | None = None
    rss: int | None = None
    peak: int | None = None
    """VmHWM, or a larger maximum that is known for certain."""
    peak_bound: int | None = None
    """Upper bound of the lifetime peak if `peak` is not final; `None`: unknown."""
    cpu_user: float | None = None
    cpu_system: float | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    read_chars: int | None = None
    write_chars: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    threads: int | None = None
    exit_code: int | None = None
    """Exit code, if it was reported to us (direct and adopted children)."""
    signal: int | None = None
    """Signal that ended it, if it was reported to us."""
    note: str | None = None
    """A `ProcessNote`, if one applies; a record may hold an unknown one."""
    max_rss: int | None = None
    """Maximum from wait4, if we waited for it ourselves: the largest of it and all descendants that it waited for. Each
    counts since the last reset of its high-water mark."""
    childless: bool | None = None
    """True if it never waited for a child, so `max_rss` belongs to it alone; `None`: unknown."""
    file: int | None = None
    """Most file pages that its resident memory was seen with (RssFile): they may be charged to any cgroup."""
    needed: int | None = None
    """Most anonymous and shared memory (RssAnon + RssShmem) of one reading; `None`: not read, as in old records."""
    beside: int | None = None
    """Most memory that the run needed beside its resident size; `None`: unknown, or it had threads or company."""
    max_rss_error: int | None = None
    """Bytes by which `max_rss` may be too low; `None`: as for any process."""
    placements: int | None = None
    """The most times that threads of the run began, or ran again, until this exit, and processors that handled packets;
    `None`: not counted."""


class RecordedOperation(NamedTuple):
    """One named stretch of the target's work."""

    name: str
    pid: int
    id: int
    """Number of the operation within its process."""
    start: float
    """Monotonic seconds."""
    end: float | None
    """Monotonic seconds; `None`: open at the end of the record."""
    status: str
    """"ok", "error", or "open" when it was never closed."""
    trace_id: str
    span_id: str
    parent_span_id: str | None
    peak: Peak | None
    """Peak of the process it ran in, within the operation."""
    start_bytes: int | None = None
    """RSS of its process at its start."""
    end_bytes: int | None = None
    """RSS of its process at its end."""
    error: str | None = None
    """Type of the exception that ended it."""
    thread: int | None = None
    attributes: Mapping[str, object] = {}
    totals: Mapping[str, float] = {}
    """Exact totals of its process inside it: cpu_seconds, minor_faults, major_faults, read_bytes ..."""
    gpu: Mapping[str, object] = {}
    """Allocator peaks inside it, by device; empty without a GPU."""
    exported: bool = False
    """True if the program's own tracer made its span: do not export another one."""


class Ending(NamedTuple):
    """Ending of the target."""

    exit_code: int | None
    """`None` while it runs, and when a signal ended it."""
    signal: int | None
    oom_kills: int | None
    """Processes of the tree's cgroup killed by the kernel's OOM killer during the run; `None`: unknown."""
    reason: str
    """One phrase: "exit code 0", "killed by SIGKILL: the kernel's OOM killer, at 96.0 MiB of 96.0 MiB" ..."""

    @property
    def shell_code(self) -> int | None:
        """The exit code in a shell's form, 128 + the signal for an end by a signal; `None`: not known."""
        return shell_code(self.signal) if self.signal else self.exit_code

    @property
    def bad(self) -> bool:
        """True if the command failed, was killed, or lost a process to the OOM killer."""
        return bool(self.exit_code or self.signal or self.oom_kills)
