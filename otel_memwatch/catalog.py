"""THE metric table: every metric once, with all that is said about it anywhere.

Instruments, the reference table in the manual, dashboards, alerts and tests come from `METRICS`. Names are those of
OpenTelemetry's semantic conventions where one exists (`stability` tells which), `memwatch.*` otherwise.
"""

from __future__ import annotations

import enum
import re

from otel_memwatch.runtime.typed import Any, NamedTuple


class Instrument(str, enum.Enum):
    """Kind of OpenTelemetry instrument. Memory usage and limits are up-down counters, as the conventions demand."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "updowncounter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Stability(str, enum.Enum):
    """State of the name: of OpenTelemetry's conventions, or our own promise."""

    RELEASE_CANDIDATE = "release candidate"
    DEVELOPMENT = "development"
    MEMWATCH = "memwatch"


class Profile(str, enum.Enum):
    """The smallest choice of metrics (`--metrics`) that one belongs to: each holds those before it."""

    MINIMAL = "minimal"
    DEFAULT = "default"
    ALL = "all"


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    instrument: Instrument
    unit: str
    """UCUM unit: "By", "s", "{process}" ..."""
    description: str
    attributes: tuple[str, ...] = ()
    source: str = ""
    """Name of the source that reads it, or of the part of the monitor that makes it."""
    stability: Stability = Stability.MEMWATCH
    note: str = ""
    """When it misleads."""
    integer: bool = True
    profile: Profile = Profile.DEFAULT


_C, _U, _G, _H = Instrument.COUNTER, Instrument.UP_DOWN_COUNTER, Instrument.GAUGE, Instrument.HISTOGRAM
_RC, _DEV = Stability.RELEASE_CANDIDATE, Stability.DEVELOPMENT
_MIN, _ALL = Profile.MINIMAL, Profile.ALL

_CPU_MODE = ("cpu.mode",)
_IO = ("disk.io.direction",)
_FAULT = ("system.paging.fault.type",)
_SWITCH = ("process.context_switch.type",)
_GPU = ("hw.id", "hw.name", "hw.parent")
_PRESSURE = ("memwatch.pressure.resource", "memwatch.pressure.stall_type")

METRICS: dict[str, Metric] = {}
"""Every metric by its name."""


def _row(name: str, *columns: Any, **more: Any) -> str:
    """Enters a row into the table and gives its name, so that a metric's name is written here and nowhere else."""
    METRICS[name] = Metric(name, *columns, **more)
    return name


# fmt: off
# the target's own process
PROCESS_MEMORY_USAGE = _row(
    "process.memory.usage", _U, "By", "Resident memory of the target's own process.", (), "process_tree", _RC,
    "Counts pages shared with other processes in full.")
PROCESS_MEMORY_VIRTUAL = _row(
    "process.memory.virtual", _U, "By", "Virtual memory of the target's own process.", (), "process_tree", _RC,
    "Address space, not memory: allocators and GPU drivers reserve far more than they use.", profile=_ALL)
PROCESS_CPU_TIME = _row(
    "process.cpu.time", _C, "s", "CPU time of the target's own process, its reaped children not included.",
    _CPU_MODE, "process_tree", _RC, integer=False, profile=_ALL)
PROCESS_DISK_IO = _row(
    "process.disk.io", _C, "By", "Bytes that the target's own process and its reaped children caused to be read "
    "from or written to storage.", _IO, "process_tree", _RC,
    "Written bytes count when a page becomes dirty, also if the file is deleted before it reaches the disk.", profile=_ALL)
PROCESS_PAGING_FAULTS = _row(
    "process.paging.faults", _C, "{fault}", "Page faults of the target's own process.", _FAULT, "process_tree", _RC,
    profile=_ALL)
PROCESS_CONTEXT_SWITCHES = _row(
    "process.context_switches", _C, "{context_switch}", "Context switches of the target's main thread.",
    _SWITCH, "process_tree", _RC, profile=_ALL)
PROCESS_THREAD_COUNT = _row(
    "process.thread.count", _U, "{thread}", "Threads of the target's own process.", (), "process_tree", _RC, profile=_ALL)
PROCESS_UNIX_FILE_DESCRIPTOR_COUNT = _row(
    "process.unix.file_descriptor.count", _U, "{file_descriptor}", "Open file descriptors of the target's own "
    "process.", (), "process_tree", _RC, profile=_ALL)
PROCESS_UPTIME = _row(
    "process.uptime", _G, "s", "Time since the start of the target.", (), "process_tree", _RC, integer=False, profile=_ALL)
MEMWATCH_PROCESS_MEMORY_PEAK = _row(
    "memwatch.process.memory.peak", _G, "By", "Largest resident memory so far of the target's own process (VmHWM).",
    (), "process_tree", note="With operations or --exact, the largest of all segments between resets.")
MEMWATCH_PROCESS_MEMORY_LINUX_ANON = _row(
    "memwatch.process.memory.linux.anon", _U, "By", "Anonymous resident memory (heap, stacks) of the target's own "
    "process.", (), "process_tree", profile=_ALL)
MEMWATCH_PROCESS_MEMORY_LINUX_FILE = _row(
    "memwatch.process.memory.linux.file", _U, "By", "File-backed resident memory of the target's own process.",
    (), "process_tree", profile=_ALL)
MEMWATCH_PROCESS_MEMORY_LINUX_SHMEM = _row(
    "memwatch.process.memory.linux.shmem", _U, "By", "Shared resident memory of the target's own process.",
    (), "process_tree", profile=_ALL)
# the tree
MEMWATCH_TREE_MEMORY_USAGE = _row(
    "memwatch.tree.memory.usage", _U, "By", "Resident memory of the target and all its descendants, summed.",
    (), "process_tree", note="Pages shared between processes count once for each: see memwatch.tree.memory.pss.",
    profile=_MIN)
MEMWATCH_TREE_MEMORY_VIRTUAL = _row(
    "memwatch.tree.memory.virtual", _U, "By", "Virtual memory of the tree, summed.", (), "process_tree", profile=_ALL)
MEMWATCH_TREE_MEMORY_PEAK = _row(
    "memwatch.tree.memory.peak", _G, "By", "Memory that the tree needed at its worst so far: the lower end of what "
    "is certain.", (), "analysis", profile=_MIN)
MEMWATCH_TREE_MEMORY_PEAK_HIGH = _row(
    "memwatch.tree.memory.peak.high", _G, "By", "The upper end of what is certain of memwatch.tree.memory.peak.", (),
    "analysis", note="Equal to it, but for a stated error of some MiB, where the peak is exact; absent where nothing bounds "
    "it yet: as a rule while the run goes on.", profile=_MIN)
MEMWATCH_TREE_MEMORY_BOUND = _row(
    "memwatch.tree.memory.bound", _G, "By", "Upper bound of the tree's resident memory since the tick before, from "
    "windowed watermarks.", (), "process_tree", note="Only with --exact.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED = _row(
    "memwatch.tree.memory.needed", _U, "By", "Private and shared memory of the tree, each page once, without pages of files: "
    "the best estimate.", (), "process_tree", note="Only where the run has no control group of its own, which tells better.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_LOW = _row(
    "memwatch.tree.memory.needed.low", _G, "By", "What of it was certainly there at one moment of the tick.", (), "process_tree",
    note="Only where the run has no control group of its own.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_HIGH = _row(
    "memwatch.tree.memory.needed.high", _G, "By", "Upper bound of it since the tick before, from page faults.", (),
    "process_tree", note="Without what processes gained that no tick saw afterwards: one page for each of "
    "memwatch.tree.unobserved.faults. Only where the run has no control group of its own.", profile=_ALL)
MEMWATCH_TREE_MEMORY_PSS = _row(
    "memwatch.tree.memory.pss", _U, "By", "Proportional set size of the tree: shared pages divided among those who "
    "share them.", (), "memory_detail", note="Read seldom: reading it stalls the target's mmap calls.")
MEMWATCH_TREE_MEMORY_PSS_NEEDED = _row(
    "memwatch.tree.memory.pss.needed", _U, "By", "What of the proportional set size is no page of a file, and was certainly "
    "there at once.", (), "memory_detail", note="Only where the run has no control group of its own.", profile=_ALL)
MEMWATCH_TREE_MEMORY_HUGETLB = _row(
    "memwatch.tree.memory.hugetlb", _U, "By", "Huge pages of hugetlbfs (MAP_HUGETLB) in the processes of the tree, summed.",
    (), "process_tree", note="In no resident size, and as a rule in no control group's memory; those shared between "
    "processes count once for each.", profile=_ALL)
MEMWATCH_TREE_MEMORY_SHMEM = _row(
    "memwatch.tree.memory.shmem", _U, "By", "Shared resident memory (tmpfs, shared mappings) of the tree, summed.",
    (), "process_tree", note="Shared pages count once for each process; the processes may not be those charged for it.",
    profile=_ALL)
MEMWATCH_TREE_MEMORY_USS = _row(
    "memwatch.tree.memory.uss", _U, "By", "Memory private to the processes of the tree, summed.", (), "memory_detail",
    profile=_ALL)
MEMWATCH_TREE_MEMORY_SWAP = _row(
    "memwatch.tree.memory.swap", _U, "By", "Swapped-out memory of the tree.", (), "memory_detail", profile=_ALL)
MEMWATCH_TREE_CPU_TIME = _row(
    "memwatch.tree.cpu.time", _C, "s", "CPU time of the tree, reaped children included.", _CPU_MODE, "process_tree",
    note="Begins with the run, also where the tree was there before it (attach, watch); process.cpu.time begins with "
    "the process. Children of a parent that ignores SIGCHLD are lost to the kernel's accounting when they exit.",
    integer=False, profile=_MIN)
MEMWATCH_TREE_DISK_IO = _row(
    "memwatch.tree.disk.io", _C, "By", "Bytes that the tree caused to be read from or written to storage, reaped "
    "children included.", _IO, "process_tree", note="Reads served from the page cache are not in it.", profile=_MIN)
MEMWATCH_TREE_SYSCALL_IO = _row(
    "memwatch.tree.syscall.io", _C, "By", "Bytes that the tree passed to read and write calls, reaped children "
    "included.", _IO, "process_tree", note="Counts pipes, terminals and cached files; mapped files are not in it.",
    profile=_ALL)
MEMWATCH_TREE_PAGING_FAULTS = _row(
    "memwatch.tree.paging.faults", _C, "{fault}", "Page faults of the tree, reaped children included.", _FAULT,
    "process_tree", profile=_ALL)
MEMWATCH_TREE_CONTEXT_SWITCHES = _row(
    "memwatch.tree.context_switches", _C, "{context_switch}", "Context switches of the tree's living main threads.",
    _SWITCH, "process_tree", profile=_ALL)
MEMWATCH_TREE_PROCESS_COUNT = _row(
    "memwatch.tree.process.count", _U, "{process}", "Living processes of the tree.", (), "process_tree")
MEMWATCH_TREE_THREAD_COUNT = _row(
    "memwatch.tree.thread.count", _U, "{thread}", "Threads of the tree.", (), "process_tree", profile=_ALL)
MEMWATCH_TREE_FILE_DESCRIPTOR_COUNT = _row(
    "memwatch.tree.file_descriptor.count", _U, "{file_descriptor}", "Open file descriptors of the tree.",
    (), "process_tree", profile=_ALL)
MEMWATCH_TREE_UNOBSERVED = _row(
    "memwatch.tree.unobserved", _C, "{process}", "Upper bound of the processes of the tree that began and ended "
    "between two ticks.", (), "process_tree", profile=_ALL)
MEMWATCH_TREE_UNOBSERVED_FAULTS = _row(
    "memwatch.tree.unobserved.faults", _C, "{fault}", "Page faults of these: what they can have had at most.",
    (), "process_tree", note="Those of known processes after they were last read are in it.", profile=_ALL)
# control group
MEMWATCH_CGROUP_MEMORY_USAGE = _row(
    "memwatch.cgroup.memory.usage", _U, "By", "Memory charged to the control group, page cache included.",
    (), "cgroup", note="What the OOM killer compares with the limit, after reclaiming cache.")
MEMWATCH_CGROUP_MEMORY_WORKING_SET = _row(
    "memwatch.cgroup.memory.working_set", _U, "By", "Charged memory less inactive file cache.", (), "cgroup", profile=_MIN)
MEMWATCH_CGROUP_MEMORY_ANON = _row(
    "memwatch.cgroup.memory.anon", _U, "By", "Anonymous memory charged to the control group.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_FILE = _row(
    "memwatch.cgroup.memory.file", _U, "By", "Page cache charged to the control group, shared memory excluded.",
    (), "cgroup")
MEMWATCH_CGROUP_MEMORY_UNEVICTABLE = _row(
    "memwatch.cgroup.memory.unevictable", _U, "By", "Charged memory that cannot be reclaimed (mlock, memfd_secret).",
    (), "cgroup", note="Only of a group of the run's own: what of the page cache is needed all the same.")
MEMWATCH_CGROUP_MEMORY_SHMEM = _row(
    "memwatch.cgroup.memory.shmem", _U, "By", "Shared memory (tmpfs) charged to the control group.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_KERNEL = _row(
    "memwatch.cgroup.memory.kernel", _U, "By", "Kernel memory charged to the control group.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_PEAK = _row(
    "memwatch.cgroup.memory.peak", _G, "By", "Watermark of the control group's charged memory.", (), "cgroup",
    note="Covers the group's whole life and all its processes unless the group is the run's own.")
MEMWATCH_CGROUP_MEMORY_WINDOW = _row(
    "memwatch.cgroup.memory.window", _G, "By", "Watermark of the control group's charged memory since the tick "
    "before.", (), "cgroup", note="Only of a group of the run's own: reading it resets the group's watermark.",
    profile=_ALL)
MEMWATCH_CGROUP_MEMORY_WINDOW_GAP = _row(
    "memwatch.cgroup.memory.window.gap", _G, "s", "Time between reading that watermark and resetting it, where it was "
    "long enough to miss something; else 0.", (), "cgroup", integer=False, profile=_ALL)
MEMWATCH_CGROUP_PAGING_FAULTS = _row(
    "memwatch.cgroup.paging.faults", _C, "{fault}", "Page faults in the memory of the control group's processes.",
    (), "cgroup", note="Only of a group of the run's own: fewer than the tree's tell that a process was elsewhere.",
    profile=_ALL)
MEMWATCH_CGROUP_OUTSIDE = _row(
    "memwatch.cgroup.outside", _C, "{process}", "Processes of the tree that were seen outside of the control group.",
    (), "cgroup", note="What these need is not in the group's figures. Not counted for a group of the run's own.",
    profile=_ALL)
MEMWATCH_CGROUP_MEMORY_LIMIT = _row(
    "memwatch.cgroup.memory.limit", _U, "By", "Smallest memory limit that applies to the control group.",
    ("memwatch.cgroup.limit.type",), "cgroup", note="Absent when there is no limit.", profile=_MIN)
MEMWATCH_CGROUP_MEMORY_SWAP = _row(
    "memwatch.cgroup.memory.swap", _U, "By", "Swap charged to the control group.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_EVENTS = _row(
    "memwatch.cgroup.memory.events", _C, "{event}", "Memory events of the control group.",
    ("memwatch.cgroup.memory.event.type",), "cgroup", profile=_MIN)
MEMWATCH_CGROUP_CPU_THROTTLED = _row(
    "memwatch.cgroup.cpu.throttled", _C, "s", "Time for which the control group was stopped by its CPU limit.",
    (), "cgroup", integer=False, profile=_ALL)
MEMWATCH_CGROUP_PRESSURE_TIME = _row(
    "memwatch.cgroup.pressure.time", _C, "s", "Time in which tasks of the control group waited for a resource.",
    _PRESSURE, "cgroup", integer=False, profile=_ALL)
# host
SYSTEM_MEMORY_USAGE = _row(
    "system.memory.usage", _U, "By", "Memory of the machine by state; used is total less available.",
    ("system.memory.state",), "host", _DEV, "Other programs' memory is in it.")
SYSTEM_MEMORY_LIMIT = _row(
    "system.memory.limit", _U, "By", "Memory of the machine.", (), "host", _DEV)
SYSTEM_MEMORY_LINUX_AVAILABLE = _row(
    "system.memory.linux.available", _U, "By", "Memory that can be had without swapping.", (), "host", _DEV, profile=_ALL)
SYSTEM_PAGING_USAGE = _row(
    "system.paging.usage", _U, "By", "Swap space of the machine by state.", ("system.paging.state",), "host", _DEV,
    profile=_ALL)
SYSTEM_CPU_LOGICAL_COUNT = _row(
    "system.cpu.logical.count", _U, "{cpu}", "Processors that the monitor may run on.", (), "host", _DEV, profile=_ALL)
MEMWATCH_SYSTEM_LOAD = _row(
    "memwatch.system.load", _G, "{process}", "Runnable processes of the machine, averaged over a minute.",
    (), "host", integer=False, profile=_ALL)
MEMWATCH_SYSTEM_PRESSURE_TIME = _row(
    "memwatch.system.pressure.time", _C, "s", "Time in which tasks of the machine waited for a resource.",
    _PRESSURE, "pressure", integer=False, profile=_ALL)
# the run and its operations
MEMWATCH_TREE_PROCESS_MEMORY_PEAK = _row(
    "memwatch.tree.process.memory.peak", _G, "By", "Largest resident memory so far of any single process of the "
    "tree: the lower end of what is certain.", (), "analysis", profile=_MIN)
MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH = _row(
    "memwatch.tree.process.memory.peak.high", _G, "By", "The upper end of what is certain of "
    "memwatch.tree.process.memory.peak.", (), "analysis", note="Absent where nothing bounds it yet.", profile=_ALL)
MEMWATCH_RUN_ACTIVE = _row(
    "memwatch.run.active", _U, "{run}", "1 while the target runs, 0 once it has ended.", (), "telemetry",
    note="A monitor that was killed leaves no 0 behind: the series ends.", profile=_MIN)
MEMWATCH_RUN_EXIT_CODE = _row(
    "memwatch.run.exit.code", _G, "{code}", "Exit code of the target, 128 and the signal's number where a signal "
    "ended it.", (), "telemetry", note="Absent while the target runs.", profile=_MIN)
MEMWATCH_RUN_END_TIME = _row(
    "memwatch.run.end.time", _G, "s", "When the target ended, in seconds since 1970.", (), "telemetry",
    note="Absent while the target runs. A textfile keeps its last values: alerts take from this how old they are.",
    integer=False, profile=_MIN)
MEMWATCH_OPERATION_ACTIVE = _row(
    "memwatch.operation.active", _U, "{operation}", "Operations that are open now.", ("memwatch.operation.name",),
    "telemetry", note="The first 100 names; those after them are counted together as (other).")
MEMWATCH_OPERATION_COUNT = _row(
    "memwatch.operation.count", _C, "{operation}", "Operations that were closed.",
    ("memwatch.operation.name", "memwatch.operation.status"), "telemetry")
MEMWATCH_OPERATION_TIME = _row(
    "memwatch.operation.time", _C, "s", "Time that closed operations took, summed.", ("memwatch.operation.name",), "telemetry",
    integer=False)
MEMWATCH_OPERATION_MEMORY_PEAK_MAX = _row(
    "memwatch.operation.memory.peak.max", _G, "By", "Largest peak of the closed operations of a name, each of the process that "
    "it ran in.", ("memwatch.operation.name",), "telemetry", note="As exact as the operation's own peak; no bucket rounds it.")
MEMWATCH_OPERATION_DURATION = _row(
    "memwatch.operation.duration", _H, "s", "Durations of closed operations.",
    ("memwatch.operation.name", "memwatch.operation.status"), "telemetry", note="Only with --operation-metrics histograms.", integer=False)
MEMWATCH_OPERATION_MEMORY_PEAK = _row(
    "memwatch.operation.memory.peak", _H, "By", "Peaks of closed operations: largest resident memory of the "
    "process that each ran in.", ("memwatch.operation.name",), "telemetry", note="Only with --operation-metrics histograms.")
# GPUs
HW_GPU_MEMORY_LIMIT = _row(
    "hw.gpu.memory.limit", _U, "By", "Memory of the GPU, of a MIG instance its part.", _GPU, "gpu_nvidia", _DEV,
    profile=_MIN)
HW_GPU_MEMORY_USAGE = _row(
    "hw.gpu.memory.usage", _U, "By", "Memory of the GPU that is in use, by whomever.", _GPU, "gpu_nvidia", _DEV,
    "Device-wide: other programs' memory and the driver's contexts are in it, and what allocators keep in reserve. "
    "Old drivers count reserved memory as used.", profile=_MIN)
HW_GPU_UTILIZATION = _row(
    "hw.gpu.utilization", _G, "1", "Part of the time in which the GPU computed anything.", _GPU, "gpu_nvidia", _DEV,
    "Says that the GPU was busy, not how much of it: one small kernel after the other gives 1.", integer=False,
    profile=_MIN)
HW_GPU_IO = _row(
    "hw.gpu.io", _C, "By", "Bytes over the GPU's PCIe bus since its driver was loaded.",
    (*_GPU, "network.io.direction"), "gpu_nvidia", _DEV, "Absent where the driver has no counter.", profile=_ALL)
HW_POWER = _row(
    "hw.power", _G, "W", "Power drawn by the GPU, averaged since the value before.", (*_GPU, "hw.type"),
    "gpu_nvidia", _DEV, "The whole board; shared by all instances of a GPU in MIG mode.", integer=False)
HW_ENERGY = _row(
    "hw.energy", _C, "J", "Energy used by the GPU since its driver was loaded.", (*_GPU, "hw.type"), "gpu_nvidia",
    _DEV, "Exact between two values, whatever happened in between.", integer=False)
HW_TEMPERATURE = _row(
    "hw.temperature", _G, "Cel", "Temperature of the GPU.", _GPU, "gpu_nvidia", _DEV, integer=False)
HW_ERRORS = _row(
    "hw.errors", _C, "{error}", "Errors of the GPU: of its memory since the driver was loaded, and XID errors since "
    "the run began.", (*_GPU, "hw.type", "error.type"), "gpu_nvidia", _DEV)
MEMWATCH_GPU_MEMORY_FREE = _row(
    "memwatch.gpu.memory.free", _U, "By", "Memory of the GPU that is free.", _GPU, "gpu_nvidia", profile=_ALL)
MEMWATCH_GPU_MEMORY_RESERVED = _row(
    "memwatch.gpu.memory.reserved", _U, "By", "Memory of the GPU that driver and firmware keep.", _GPU, "gpu_nvidia",
    profile=_ALL)
MEMWATCH_GPU_MEMORY_UTILIZATION = _row(
    "memwatch.gpu.memory.utilization", _G, "1", "Part of the time in which the GPU's memory was read or written.",
    _GPU, "gpu_nvidia", note="Time, not space: how full it is follows from hw.gpu.memory.usage.", integer=False,
    profile=_ALL)
MEMWATCH_GPU_POWER_PEAK = _row(
    "memwatch.gpu.power.peak", _G, "W", "Largest power since the value before, from the driver's own samples.",
    _GPU, "gpu_nvidia", integer=False)
MEMWATCH_GPU_THROTTLED = _row(
    "memwatch.gpu.throttled", _U, "1", "1 while the GPU's clocks are held down for the reason, else 0.",
    (*_GPU, "memwatch.gpu.throttle.reason"), "gpu_nvidia")
MEMWATCH_GPU_NVLINK_IO = _row(
    "memwatch.gpu.nvlink.io", _C, "By", "Payload bytes over all NVLinks of the GPU.",
    (*_GPU, "network.io.direction"), "gpu_nvidia", profile=_ALL)
MEMWATCH_TREE_GPU_MEMORY_USAGE = _row(
    "memwatch.tree.gpu.memory.usage", _U, "By", "Memory of the GPU held by processes of the tree.", _GPU,
    "gpu_nvidia, gpu_drm", note="Absent where the driver's pids are not ours: a container with its own pids. Open "
    "drivers count a buffer that two processes share twice.")
MEMWATCH_TREE_GPU_MEMORY_SYSTEM = _row(
    "memwatch.tree.gpu.memory.system", _U, "By", "System memory held by the tree for a GPU: all of it for one "
    "without memory of its own.", _GPU, "gpu_drm", note="Part of it may be in the processes' resident memory too.",
    profile=_ALL)
MEMWATCH_TREE_GPU_TIME = _row(
    "memwatch.tree.gpu.time", _C, "s", "Time for which the engines of a GPU worked for the tree.", _GPU, "gpu_drm",
    note="Several engines work at once: it may grow faster than time.", integer=False, profile=_ALL)
MEMWATCH_PROCESS_GPU_MEMORY_USAGE = _row(
    "memwatch.process.gpu.memory.usage", _U, "By", "Memory of the GPU held by the process of the tree that holds "
    "most of it.", _GPU, "gpu_nvidia, gpu_drm")
MEMWATCH_PROCESS_GPU_MEMORY_PEAK = _row(
    "memwatch.process.gpu.memory.peak", _G, "By", "Most memory of the GPU that one process of the tree ever held, "
    "from the driver's accounting.", _GPU, "gpu_nvidia", note="Exact; only where an administrator switched "
    "accounting on (nvidia-smi --accounting-mode=1).")
# the monitor itself
MEMWATCH_SOURCE_UP = _row(
    "memwatch.source.up", _U, "{source}", "1 while the source can be read, 0 while it fails.",
    ("memwatch.source.name",), "sampler")
MEMWATCH_SOURCE_DURATION = _row(
    "memwatch.source.duration", _C, "s", "Time spent reading the source.", ("memwatch.source.name",), "sampler",
    integer=False, profile=_ALL)
MEMWATCH_SOURCE_FAILURES = _row(
    "memwatch.source.failures", _C, "{failure}", "Failed reads of the source.", ("memwatch.source.name",), "sampler",
    profile=_ALL)
MEMWATCH_SAMPLER_TICKS = _row(
    "memwatch.sampler.ticks", _C, "{tick}", "Ticks taken.", (), "sampler")
MEMWATCH_SAMPLER_MISSED = _row(
    "memwatch.sampler.missed", _C, "{tick}", "Deadlines that passed without a tick.", (), "sampler")
MEMWATCH_EXPORT_FAILURES = _row(
    "memwatch.export.failures", _C, "{failure}", "Batches that an exporter could not deliver.",
    ("memwatch.exporter.name",), "telemetry")
MEMWATCH_MONITOR_CPU_TIME = _row(
    "memwatch.monitor.cpu.time", _C, "s", "CPU time of the monitor itself.", (), "telemetry", integer=False, profile=_ALL)
MEMWATCH_MONITOR_MEMORY_USAGE = _row(
    "memwatch.monitor.memory.usage", _U, "By", "Resident memory of the monitor itself.", (), "telemetry",
    note="Not part of the tree.")

SPAN_ATTRIBUTES: dict[str, str] = {
    "memwatch.memory.peak": "Largest resident memory of the process within the operation, in bytes.",
    "memwatch.memory.start": "Resident memory of the process at its start, in bytes.",
    "memwatch.memory.end": "Resident memory of the process at its end, in bytes.",
    "memwatch.memory.delta": "Growth from start to end, in bytes.",
    "memwatch.memory.certainty": "How surely the peak is known: exact, interval, censored, sampled.",
    "memwatch.io.read": "Bytes read from storage within the operation, reaped children included.",
    "memwatch.io.write": "Bytes written to storage within the operation, reaped children included.",
}
"""What an operation puts on the span that the program's own tracer has made of it."""
# fmt: on

BOUNDS: dict[str, tuple[float, ...]] = {
    "memwatch.operation.duration": (
        0.01,
        0.03,
        0.1,
        0.3,
        1.0,
        3.0,
        10.0,
        30.0,
        100.0,
        300.0,
        1e3,
        3600.0,
        10800.0,
        43200.0,
    ),
    "memwatch.operation.memory.peak": tuple(float(1 << power) for power in range(20, 43)),
}
"""Bucket bounds of the histograms, in their unit: from a call to half a day; powers of two from 1 MiB to 4 TiB."""


PROFILES = tuple(profile.value for profile in Profile)
NO_METRICS = "none"


def choose_metrics(choice: str) -> frozenset[str]:
    """Names of the metrics that a choice as of `--metrics` holds: a profile, names, or a name's beginning and `*`.

    Raises `ValueError` for a part that is none of these or that no metric begins with.
    """
    chosen: set[str] = set()
    for part in filter(None, (part.strip() for part in choice.split(","))):
        if part == NO_METRICS:
            continue
        if part in PROFILES:
            held = PROFILES[: PROFILES.index(part) + 1]
            found = {row.name for row in METRICS.values() if row.profile.value in held}
        elif part.endswith("*"):
            found = {name for name in METRICS if name.startswith(part[:-1])}
        else:
            found = {part} & METRICS.keys()
        if not found:
            raise ValueError(
                f"{part!r} is neither {', '.join(PROFILES)}, none, nor a metric (otel-memwatch metrics lists them)"
            )
        chosen |= found
    return frozenset(chosen)


_PROMETHEUS_UNITS = {
    "By": "bytes",
    "s": "seconds",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
    "Hz": "hertz",
}


def prometheus_names(metric: Metric) -> tuple[str, ...]:
    """The metric's names in Prometheus: first the Python exporter's, then the Collector's where it differs.

    They differ for gauges of unit "1": the Collector and Prometheus' own OTLP receiver append `_ratio`.
    """
    name = re.sub(r"[^A-Za-z0-9:]+", "_", metric.name)
    unit = _PROMETHEUS_UNITS.get(metric.unit, "")
    if unit and not name.endswith(f"_{unit}"):
        name += f"_{unit}"
    if metric.instrument is Instrument.COUNTER:
        name += "_total"
    if metric.unit == "1" and metric.instrument is Instrument.GAUGE:
        return name, f"{name}_ratio"
    return (name,)
