"""Conditions of a recording, from `run.json`, that its figures depend on."""

from __future__ import annotations

from otel_memwatch.record.run_info_schema import RunInfo
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple
from otel_memwatch.truth.cgroup_windows import charge_error
from otel_memwatch.truth.process import sum_error

if TYPE_CHECKING:
    from collections.abc import Mapping

_HUGE_PAGE = 2 << 20
_LARGEST_PAGE = 64 << 10
"""Bytes of the largest base page of any machine."""
_CLOCK_TICK = 0.01
"""Seconds to which the kernel rounds the start of a process down."""
_READING_SECONDS = 0.01
"""Assumed limit for reading a sample in older records, which do not state it."""


class RunConditions(NamedTuple):
    """Conditions under which a run was recorded."""

    started: float
    """Monotonic seconds."""
    interval: float
    """Seconds between samples."""
    root: int | None
    """Pid of the target."""
    joined: bool
    """True if the target is older than the run."""
    own_cgroup: bool
    """True if the cgroup in the samples holds the run and nothing else: from its first moment on, or, if the run has joined
    it, for as long as it was sampled."""
    own_from_start: bool
    """True if that cgroup began with the run, or during it: its high-water mark has nothing else."""
    unbroken_watermark: bool
    """True if that cgroup's high-water mark covers its whole life, even if it was reset for the windows between samples."""
    floor: int
    """Bytes up to which wait4's maximum may be the launcher's, which the target inherits."""
    faults_before: int | None
    """Page faults of the command before it entered its cgroup; `None`: not counted, as in old records."""
    rss_error: int
    """Bytes by which the kernel's counters of one process may be off."""
    sum_error: int
    """Bytes by which the reading of a living process may be off."""
    fault_bytes: int
    """Bytes that one page fault can bring at most."""
    page_bytes: int
    """Bytes of a base page: a page fault brings at least one."""
    reading_seconds: float
    """Seconds that reading a sample took at most, unless the sample states it."""
    faults_carried: bool
    """True if the upper bound of a sample includes page faults that may have occurred before the previous sample."""
    processors: int
    """Processors of the machine. In older records, those that the monitor could use."""
    usable_cpus: int
    """Processors that the monitor could use."""
    disk_rate: int | None
    """Bytes that the disk of the working directory moved in each second of its activity before the run; `None`: unknown."""
    machine_bytes: int | None
    """Bytes of the machine's memory and swap; `None`: not recorded, as in old records."""
    portable: bool
    """True if the figures come from a system without high-water marks."""
    blind: bool
    """True if processes could not be watched: only processes that we waited for are known."""
    exact: bool
    """True if the high-water marks were reset at every sample."""
    torch_history: bool
    """True if PyTorch recorded its allocations for snapshots, in memory of the program."""

    def read_until(self, time: float, reading: float | None) -> float:
        """Return the monotonic seconds by which all readings of a sample were taken.

        The monitor may have waited for a processor in between.

        Args:
            time: of the sample, in monotonic seconds.
            reading: seconds that the sample states; `None`: it states none.
        """
        return time + (reading or self.reading_seconds)

    @property
    def charge_error(self) -> int:
        """Bytes by which a cgroup's high-water mark may be off."""
        return charge_error(self.processors)

    def is_older(self, start: float) -> bool:
        """Return whether a process with this start is certainly older than the run."""
        return self.joined and start + _CLOCK_TICK <= self.started

    def since_start(self, time: float | None) -> float | None:
        """Return the seconds from the start of the run to a moment in monotonic seconds."""
        return None if time is None else round(max(0.0, time - self.started), 4)

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> RunConditions:
        """Read the fields of `run.json`; a missing field takes its most careful value."""
        fields = RunInfo.of(info)
        host, target = fields.host, fields.target
        memory, swap = host.memory_bytes, host.swap_bytes
        rss_error = fields.rss_error_bytes or 0
        joined = fields.monitor.mode in ("attach", "watch")
        return cls(
            started=fields.started.monotonic or 0.0,
            interval=fields.interval or 0.0,
            root=target.pid,
            joined=joined,
            own_cgroup=bool(fields.own_cgroup),
            own_from_start=bool(fields.own_cgroup) and (not joined or fields.target_group.born),
            unbroken_watermark=fields.cgroup_version == 2,
            floor=target.floor or 0,
            faults_before=target.faults_before,
            rss_error=rss_error,
            sum_error=sum_error(rss_error, exact=fields.exact_sums),
            fault_bytes=fields.fault_bytes or _HUGE_PAGE,
            page_bytes=fields.page_bytes or _LARGEST_PAGE,
            reading_seconds=fields.reading_seconds or _READING_SECONDS,
            faults_carried=fields.faults_carried,
            processors=max(1, fields.processors or host.cpus or 1),
            usable_cpus=max(1, host.cpus or 1),
            disk_rate=host.disk_rate,
            machine_bytes=None if memory is None or swap is None else memory + swap,
            portable=fields.portable,
            blind=fields.blind,
            exact=fields.settings.get("exact") is True,
            torch_history=fields.settings.get("torch_snapshot") is True,
        )
