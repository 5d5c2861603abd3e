"""Row of the run index for one run, and the properties that follow from it. `run_row` makes it."""

from __future__ import annotations

from otel_memwatch.model import Certainty
from otel_memwatch.runtime.fast_json import loads
from otel_memwatch.runtime.light import MappingProxyType, lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.truth.refaults import faulted_again
from otel_memwatch.truth.stalls import is_worth_naming
from otel_memwatch.truth.working_set import mapped_by_several

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOUNDED = (None, Certainty.EXACT.value, Certainty.CENSORED.value)
"""Certainties of figures that are also their upper bound; None: a figure without a certainty."""
_AT_LIMIT = 0.98
"""Share of its limit that a cgroup can charge only by reclaiming: the kernel charges in batches and reads ahead."""

_BRIEF_SECONDS = 0.01
"""Duration below which a run counts as one of one processor at most: its CPU time includes up to 1 ms before exec."""

_DIRTY_EXPIRE = 30.0
"""Seconds after which the kernel writes a page to storage (`vm.dirty_expire_centisecs`)."""


class IndexedRun(NamedTuple):
    """Row of one run. Sizes are bytes, times seconds; `None`: unknown."""

    path: str
    """Run directory, below the path that the caller named."""
    id: str
    state: str
    """"finished", "running", "incomplete" (the monitor died) or "broken"."""
    error: str | None = None
    """Reason that a broken run cannot be read, in a sentence."""
    name: str | None = None
    tags_json: str = "{}"
    command_json: str = "[]"
    key: str = ""
    """The command without its arguments."""
    cwd: str | None = None
    host: str | None = None
    system: str = ""
    """Kernel and machine, as "Linux 6.18 x86_64"; memory is comparable only between equal ones."""
    cpus: int | None = None
    host_memory: int | None = None
    host_swap: int | None = None
    mode: str = "wrap"
    by: str | None = None
    """Name of the tool that measured; `None`: otel-memwatch."""
    started: float = 0.0
    """Unix seconds; for a broken run the modification time of its directory."""
    seconds: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom_kills: int | None = None
    reason: str = ""
    verdict: str | None = None
    """`RecordedRun.verdict`; `None`: the run goes on, or its monitor died."""
    memory: int | None = None
    """Peak memory of the whole tree."""
    low: int | None = None
    high: int | None = None
    certainty: str | None = None
    how: str | None = None
    """Evidence for the figure, as "cgroup watermark"."""
    charged: int = 0
    """1 if the memory is a cgroup's charge, which includes kernel memory of the processes."""
    excluded: int = 0
    """Limit of the files in memory that `high` excludes."""
    process: int | None = None
    """The largest process."""
    process_low: int | None = None
    process_high: int | None = None
    main: int | None = None
    gpu: int | None = None
    """Largest figure of any GPU."""
    cgroup: int | None = None
    """High-water mark of the cgroup, page cache included."""
    own_cgroup: int = 0
    """1 if the cgroup was created for the run; 0 if other processes may be charged to it too."""
    swap: int | None = None
    """Most memory of the run in swap at a sample; `None`: none was seen."""
    file_bytes: int | None = None
    """Largest sampled file pages of one process: program, libraries, mapped files."""
    files_beside_peak: int | None = None
    """Files in use beside the peak, of which samples show the time; `None`: not recorded, or without a cgroup of the run."""
    processes_high: int | None = None
    """Likely most memory of the processes together, with memory files and kernel memory at samples."""
    files: int | None = None
    """Bytes of the files that the run mapped or had open for reading, as far as samples saw them."""
    limit: int | None = None
    """Memory limit of the run's cgroup."""
    input_bytes: int | None = None
    cpu: float | None = None
    """CPU seconds."""
    read: int | None = None
    """Bytes read from disks."""
    written: int | None = None
    read_chars: int | None = None
    """Bytes passed to read calls: of files, whether cached or not, pipes and sockets."""
    write_chars: int | None = None
    major_faults: int | None = None
    processes: int | None = None
    stalled: float | None = None
    """Share of the time for which the run waited for memory or was stopped by a CPU limit."""
    starved: float | None = None
    """Share of the time for which the run read files again for lack of memory."""
    short: int | None = None
    """Memory that was missing to keep these files; `None`: unknown."""
    unwritten: int | None = None
    """Most page cache that waited to be written to storage at a sample; `None`: not recorded."""
    asked: int | None = None
    """Memory of the scheduler's request, of `--limit` or of the cgroup."""
    asked_cores: float | None = None
    """Processors, likewise."""
    predicted: int | None = None
    """Memory of `--predicted`."""
    group: str | None = None
    """Group of the run: the runs of one job on several ranks or hosts."""
    rank: int | None = None
    span: str | None = None
    """ID of its span."""
    parent: str | None = None
    """ID of the enclosing span, perhaps another run's."""
    commit: str | None = None
    """Commit of the working directory's repository."""

    @property
    def command(self) -> tuple[str, ...]:
        """Command with its arguments."""
        return tuple(loads(self.command_json))

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of the run."""
        return _tags_of(self.tags_json)

    @property
    def cores(self) -> float | None:
        """Processors used on average. If the monitor died, the CPU time ends with the last sample."""
        if self.cpu is None or not self.seconds or self.state == "incomplete":
            return None
        cores = self.cpu / self.seconds
        return min(cores, 1.0) if self.seconds < _BRIEF_SECONDS else cores

    @property
    def unused_gib_hours(self) -> float | None:
        """GiB-hours of memory that the run asked for and certainly did not use."""
        high = self.upper_bound
        if self.asked is None or high is None or self.seconds is None:
            return None
        return max(0, self.asked - high) / (1 << 30) * self.seconds / 3600

    @property
    def unused_core_hours(self) -> float | None:
        """Core-hours that the run asked for and did not use."""
        if self.asked_cores is None or self.cpu is None or self.seconds is None or self.state == "incomplete":
            return None
        return max(0.0, self.asked_cores * self.seconds - self.cpu) / 3600

    @property
    def ratio(self) -> float | None:
        """Memory as a multiple of the prediction."""
        return self.memory / self.predicted if self.memory is not None and self.predicted else None

    @property
    def machine_bytes(self) -> int | None:
        """Memory and swap of the machine; `None`: unknown."""
        return None if self.host_memory is None else self.host_memory + (self.host_swap or 0)

    @property
    def upper_bound(self) -> int | None:
        """Upper bound of the run's peak, limited by the machine's memory; `None`: unknown."""
        high, machine = self.high, self.machine_bytes
        if high is None and (self.by is not None or self.certainty in _BOUNDED):
            high = self.memory
        return high if high is None or machine is None else max(self.low or 0, min(high, machine))

    @property
    def likely_high(self) -> int | None:
        """Upper bound of the run's peak, without memory files and kernel memory that came and went between two samples.

        Page cache that moves makes the range of `upper_bound` wide: a copy of 256 MiB needs between 8 and 507 MiB.
        """
        high = self.upper_bound
        if high is None or self.processes_high is None or self.is_exact:
            return high
        return min(high, max(self.low or 0, self.memory or 0, self.processes_high))

    @property
    def library_bytes(self) -> int:
        """Largest file pages of one process: at a sample, or what its size had beyond all memory that the run needed."""
        high = self.likely_high
        beyond = self.process_low - high if self.process_low is not None and high is not None else 0
        return max(0, self.file_bytes or 0, beyond)

    @property
    def files_for_speed(self) -> int:
        """File pages that full speed needs beside the needed memory.

        Without `files_beside_peak`, files count as if they were in use at the peak. So do those that no sample saw: the size of a
        process shows that it mapped them.
        """
        mapped = self.library_bytes
        if self.files_beside_peak is not None and mapped <= (self.file_bytes or 0):
            return self.files_beside_peak
        mapped = mapped_by_several(mapped, self.processes)
        return max(mapped, self.faulted_bytes) + self.reread_bytes + self.unwritten_bytes

    @property
    def faulted_bytes(self) -> int:
        """Page cache that page faults read from storage, at most; 0 if unknown, or if the files were in memory before.

        The kernel reads ahead up to 8 MiB, so programs have more of their files in memory than they map. With less memory these
        reads displace each other: ffmpeg maps 41 MiB, and needs 160 for its speed.
        """
        if not self.own_cgroup or None in (self.cgroup, self.memory, self.read_chars, self.read):
            return 0
        cache, read = (self.cgroup or 0) - (self.memory or 0), (self.read or 0) - (self.read_chars or 0)
        return max(0, min(cache, faulted_again(read, self.major_faults or 0, 0)))

    @property
    def unwritten_bytes(self) -> int:
        """Page cache that waits to be written to storage, for full speed; 0 if unknown.

        With less memory, the program waits for the disk. The kernel writes pages when they are 30 s old. So a shorter run may
        have all that it wrote in memory, and samples may miss it. A longer one has what samples saw.
        """
        if not self.own_cgroup or self.unwritten is None or self.cgroup is None or self.seconds is None:
            return 0
        most = min(self.written or 0, max(0, self.cgroup - (self.memory or 0)))
        return most if self.seconds <= _DIRTY_EXPIRE else min(most, self.unwritten)

    @property
    def reread_bytes(self) -> int:
        """Page cache beside mapped files that read calls used more than once; 0 if unknown.

        A scan or a copy reads each byte once, from storage. Of further bytes, as many may come from pipes as calls wrote.
        """
        if not self.own_cgroup or None in (self.cgroup, self.memory, self.read_chars, self.read):
            return 0
        cache = (self.cgroup or 0) - (self.memory or 0) - self.library_bytes
        again = (self.read_chars or 0) - (self.read or 0) - (self.write_chars or 0)
        return max(0, min(cache, again))

    @property
    def at_limit(self) -> bool:
        """True if the cgroup's charge reached its limit: its high-water mark and page cache show the limit, not the job."""
        return self.limit is not None and self.cgroup is not None and self.cgroup >= _AT_LIMIT * self.limit

    @property
    def bounded_by_limit(self) -> bool:
        """True if the upper bound of the memory is the limit that page cache filled, not the job's need."""
        high = self.upper_bound
        return (
            self.at_limit and high is not None and high >= _AT_LIMIT * (self.limit or 0) and not self.is_exact
        )

    @property
    def ended_well(self) -> bool:
        """True if the run succeeded, so its peak is the memory that the job needs."""
        return (
            self.state == "finished"
            and not self.exit_code
            and self.signal is None
            and not self.oom_kills
            and self.verdict in (None, "finished")
            and bool(self.memory or self.high)
        )

    @property
    def is_exact(self) -> bool:
        """True if the memory is exact."""
        return self.certainty == Certainty.EXACT.value

    @property
    def short_of_memory(self) -> bool:
        """True if the run was slow because it read files again: its figures do not show the memory for full speed."""
        return is_worth_naming(self.starved, self.seconds)

    @property
    def killed_for_memory(self) -> bool:
        """True if the kernel's OOM killer killed a process of the run: it needed more memory than it got."""
        return bool(self.oom_kills)


@lru_cache(1000)
def _tags_of(document: str) -> Mapping[str, str]:
    """Return the tags of a row; many runs have the same ones, and a condition asks each run."""
    tags: dict[str, str] = loads(document)
    return MappingProxyType(tags)
