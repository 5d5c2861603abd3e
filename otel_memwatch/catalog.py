"""Catalogue of all metrics: the single source of their names, units, attributes and descriptions.

Instruments, the reference table in the manual, dashboards, alerts and tests come from `METRICS`. If OpenTelemetry's
semantic conventions define a name, the metric uses it; `stability` says how stable it is. Other names begin with
`memwatch.`.
"""

from __future__ import annotations

from otel_memwatch.runtime.typed import Any, Enum, NamedTuple


class Instrument(str, Enum):
    """Kind of OpenTelemetry instrument. The conventions require up-down counters for memory usage and limits."""

    COUNTER = "counter"
    UP_DOWN_COUNTER = "updowncounter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Stability(str, Enum):
    """Stability of a metric's name: a state of OpenTelemetry's conventions, or a promise of this package."""

    RELEASE_CANDIDATE = "release candidate"
    DEVELOPMENT = "development"
    MEMWATCH = "memwatch"


class Profile(str, Enum):
    """Profiles of `--metrics`, from small to large; each includes the previous ones. A metric has its smallest profile."""

    MINIMAL = "minimal"
    DEFAULT = "default"
    ALL = "all"


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    instrument: Instrument
    unit: str
    """Unit in UCUM notation: "By", "s", "{process}" ..."""
    description: str
    attributes: tuple[str, ...] = ()
    source: str = ""
    """Source that reads the metric, or part of the monitor that computes it."""
    stability: Stability = Stability.MEMWATCH
    note: str = ""
    """Pitfall: when the value misleads or is absent."""
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
    """Add a row to the table and return its name. Other modules use the constant, so each name is written once."""
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
    "process.cpu.time", _C, "s", "CPU time of the target's own process, without its reaped children.",
    _CPU_MODE, "process_tree", _RC, integer=False, profile=_ALL)
PROCESS_DISK_IO = _row(
    "process.disk.io", _C, "By", "Bytes read from or written to storage for the target's own process and its reaped "
    "children.", _IO, "process_tree", _RC,
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
    "memwatch.process.memory.peak", _G, "By", "Peak resident memory of the target's own process so far (VmHWM).",
    (), "process_tree", note="With operations, the largest of all segments between resets.")
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
    (), "process_tree", note="Shared pages count once per process: see memwatch.tree.memory.pss.",
    profile=_MIN)
MEMWATCH_TREE_MEMORY_VIRTUAL = _row(
    "memwatch.tree.memory.virtual", _U, "By", "Virtual memory of the tree, summed.", (), "process_tree", profile=_ALL)
MEMWATCH_TREE_MEMORY_PEAK = _row(
    "memwatch.tree.memory.peak", _G, "By", "Peak memory of the tree so far: lower bound.", (), "analysis", profile=_MIN)
MEMWATCH_TREE_MEMORY_PEAK_HIGH = _row(
    "memwatch.tree.memory.peak.high", _G, "By", "Peak memory of the tree so far: upper bound of "
    "memwatch.tree.memory.peak.", (), "analysis", note="If the peak is exact, both bounds are equal except for a stated "
    "error of a few MiB. Absent until an upper bound is known, which is usually at the end of the run.", profile=_MIN)
MEMWATCH_TREE_MEMORY_BOUND = _row(
    "memwatch.tree.memory.bound", _G, "By", "Upper bound of the tree's resident memory since the previous sample, from "
    "high-water marks that are reset at each sample.", (), "process_tree", note="Only in older records, with --exact.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED = _row(
    "memwatch.tree.memory.needed", _U, "By", "Private and shared memory of the tree, each page once, without file pages, with "
    "page tables and kernel stacks: best estimate.", (), "process_tree", note="Only if the run has no dedicated cgroup; a cgroup is more precise.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_LOW = _row(
    "memwatch.tree.memory.needed.low", _G, "By", "Lower bound of memwatch.tree.memory.needed at one moment of the sample.", (),
    "process_tree", note="If the run has a dedicated cgroup: of the memory that the cgroup needed between the two previous "
    "samples.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_HIGH = _row(
    "memwatch.tree.memory.needed.high", _G, "By", "Upper bound of memwatch.tree.memory.needed since the previous sample, "
    "from page faults.", (), "process_tree", note="Excludes memory that processes gained after their last sample: at most "
    "one page per fault in memwatch.tree.unobserved.faults. If the run has a dedicated cgroup: of the memory that the cgroup "
    "needed between the two previous samples, from its high-water mark, and nothing is excluded.", profile=_ALL)
MEMWATCH_TREE_MEMORY_PSS = _row(
    "memwatch.tree.memory.pss", _U, "By", "Proportional set size of the tree: each shared page is divided among the "
    "processes that share it.", (), "memory_detail", note="Sampled rarely, because each read stalls the target's mmap calls.")
MEMWATCH_TREE_MEMORY_PSS_NEEDED = _row(
    "memwatch.tree.memory.pss.needed", _U, "By", "Proportional set size of the tree without file pages, with page tables and "
    "kernel stacks: a lower bound of memory in use at one time.", (), "memory_detail", note="Only if the run has no dedicated cgroup.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_LEFT = _row(
    "memwatch.tree.memory.needed.left", _G, "By", "Parts of huge pages that processes have freed and that stay charged until memory "
    "is short: upper bound for the tree.", (), "process_tree", note="Only if the run has no dedicated cgroup. Counted "
    "for the whole machine.", profile=_ALL)
MEMWATCH_TREE_MEMORY_NEEDED_FACTOR = _row(
    "memwatch.tree.memory.needed.factor", _G, "1", "Correction of memwatch.tree.memory.needed from the proportional set size "
    "of the tree, at samples that read it.", (), "memory_detail", note="Only if the run has no dedicated cgroup.", integer=False, profile=_ALL)
MEMWATCH_TREE_MEMORY_HUGETLB = _row(
    "memwatch.tree.memory.hugetlb", _U, "By", "Huge pages of hugetlbfs (MAP_HUGETLB) in the processes of the tree, summed.",
    (), "process_tree", note="Not part of resident memory, and usually not of a cgroup's memory. Shared pages count once "
    "per process.", profile=_ALL)
MEMWATCH_TREE_MEMORY_SHMEM = _row(
    "memwatch.tree.memory.shmem", _U, "By", "Shared resident memory (tmpfs, shared mappings) of the tree, summed.",
    (), "process_tree", note="Shared pages count once per process. The kernel may have charged them to other processes.",
    profile=_ALL)
MEMWATCH_TREE_MEMORY_USS = _row(
    "memwatch.tree.memory.uss", _U, "By", "Memory private to the processes of the tree, summed.", (), "memory_detail",
    profile=_ALL)
MEMWATCH_TREE_MEMORY_SWAP = _row(
    "memwatch.tree.memory.swap", _U, "By", "Swapped-out memory of the tree.", (), "memory_detail", profile=_ALL)
MEMWATCH_TREE_CPU_TIME = _row(
    "memwatch.tree.cpu.time", _C, "s", "CPU time of the tree, including reaped children.", _CPU_MODE, "process_tree",
    note="Counts from the start of the run, also if the tree is older (attach, watch); process.cpu.time counts from the "
    "start of the process. If a parent ignores SIGCHLD, the kernel drops the CPU time of its children at their exit.",
    integer=False, profile=_MIN)
MEMWATCH_TREE_CPU_DELAY = _row(
    "memwatch.tree.cpu.delay", _C, "s", "Time that threads of the tree could run but waited for a processor: lower bound.", (),
    "run_queue", note="Read about once a second; excludes threads that ended before their second reading.", integer=False,
    profile=_ALL)
MEMWATCH_TREE_DISK_IO = _row(
    "memwatch.tree.disk.io", _C, "By", "Bytes read from or written to storage for the tree, including reaped "
    "children.", _IO, "process_tree", note="Excludes reads from the page cache.", profile=_MIN)
MEMWATCH_TREE_SYSCALL_IO = _row(
    "memwatch.tree.syscall.io", _C, "By", "Bytes that the tree passed to read and write calls, including reaped "
    "children.", _IO, "process_tree", note="Includes pipes, terminals and cached files; excludes mapped files.",
    profile=_ALL)
MEMWATCH_TREE_PAGING_FAULTS = _row(
    "memwatch.tree.paging.faults", _C, "{fault}", "Page faults of the tree, including reaped children.", _FAULT,
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
    "memwatch.tree.unobserved", _C, "{process}", "Upper bound of the number of short-lived processes that the tree started "
    "and no sample saw.", (), "process_tree", profile=_ALL)
MEMWATCH_TREE_UNOBSERVED_FAULTS = _row(
    "memwatch.tree.unobserved.faults", _C, "{fault}", "Page faults of short-lived processes that no sample saw: an upper "
    "bound of their memory in pages.", (), "process_tree", note="Includes faults of known processes after their last sample.",
    profile=_ALL)
# cgroup
MEMWATCH_CGROUP_MEMORY_USAGE = _row(
    "memwatch.cgroup.memory.usage", _U, "By", "Memory charged to the cgroup, including page cache.",
    (), "cgroup", note="The kernel compares this value with the limit, and reclaims cache before the OOM killer acts.")
MEMWATCH_CGROUP_MEMORY_WORKING_SET = _row(
    "memwatch.cgroup.memory.working_set", _U, "By", "Memory charged to the cgroup, without inactive page cache.", (), "cgroup", profile=_MIN)
MEMWATCH_CGROUP_MEMORY_ANON = _row(
    "memwatch.cgroup.memory.anon", _U, "By", "Anonymous memory charged to the cgroup.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_FILE = _row(
    "memwatch.cgroup.memory.file", _U, "By", "Page cache charged to the cgroup, without shared memory.",
    (), "cgroup", note="If the run has a dedicated cgroup of version 2, includes reclaimable slab (dentries, inodes).")
MEMWATCH_CGROUP_MEMORY_UNWRITTEN = _row(
    "memwatch.cgroup.memory.unwritten", _U, "By", "Page cache charged to the cgroup that waits to be written to storage.",
    (), "cgroup", note="The kernel cannot reclaim it before. Only if the run has a dedicated cgroup.", profile=_ALL)
MEMWATCH_CGROUP_MEMORY_MAPPED = _row(
    "memwatch.cgroup.memory.mapped", _U, "By", "Page cache charged to the cgroup that processes map, without shared memory.",
    (), "cgroup", note="Counts a page once, however many processes map it. Only if the run has a dedicated cgroup.", profile=_ALL)
MEMWATCH_CGROUP_MEMORY_UNEVICTABLE = _row(
    "memwatch.cgroup.memory.unevictable", _U, "By", "Memory charged to the cgroup that cannot be reclaimed (mlock, "
    "memfd_secret).", (), "cgroup", note="Includes page cache and slab that are needed. Only if the run has a dedicated cgroup.")
MEMWATCH_CGROUP_MEMORY_SHMEM = _row(
    "memwatch.cgroup.memory.shmem", _U, "By", "Shared memory (tmpfs) charged to the cgroup.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_KERNEL = _row(
    "memwatch.cgroup.memory.kernel", _U, "By", "Kernel memory charged to the cgroup.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_PEAK = _row(
    "memwatch.cgroup.memory.peak", _G, "By", "High-water mark of the cgroup's charged memory.", (), "cgroup",
    note="Unless the run has a dedicated cgroup, covers all processes of the cgroup since it was created.")
MEMWATCH_CGROUP_MEMORY_WINDOW = _row(
    "memwatch.cgroup.memory.window", _G, "By", "High-water mark of the cgroup's charged memory since the previous "
    "sample.", (), "cgroup", note="Only if the run has a dedicated cgroup, because reading it resets the high-water mark.",
    profile=_ALL)
MEMWATCH_CGROUP_MEMORY_WINDOW_GAP = _row(
    "memwatch.cgroup.memory.window.gap", _G, "s", "Time between reading and resetting the cgroup's high-water mark, if long "
    "enough to miss a peak; otherwise 0.", (), "cgroup", integer=False, profile=_ALL)
MEMWATCH_CGROUP_PAGING_FAULTS = _row(
    "memwatch.cgroup.paging.faults", _C, "{fault}", "Page faults of the cgroup's processes.",
    (), "cgroup", note="Only if the run has a dedicated cgroup. If the tree has more page faults, a process ran outside the cgroup.",
    profile=_ALL)
MEMWATCH_CGROUP_PAGING_REFAULTS = _row(
    "memwatch.cgroup.paging.refaults", _C, "{page}", "Pages of files that were reclaimed and read again.",
    (), "cgroup", note="Includes pages that the cgroup of an earlier run reclaimed.", profile=_ALL)
MEMWATCH_CGROUP_OUTSIDE = _row(
    "memwatch.cgroup.outside", _C, "{process}", "Processes of the tree that were sampled outside the cgroup.",
    (), "cgroup", note="The cgroup's figures exclude their memory. Not counted if the run has a dedicated cgroup.",
    profile=_ALL)
MEMWATCH_CGROUP_MEMORY_LIMIT = _row(
    "memwatch.cgroup.memory.limit", _U, "By", "Smallest memory limit that applies to the cgroup.",
    ("memwatch.cgroup.limit.type",), "cgroup", note="Absent when there is no limit.", profile=_MIN)
MEMWATCH_CGROUP_MEMORY_SWAP = _row(
    "memwatch.cgroup.memory.swap", _U, "By", "Swap charged to the cgroup.", (), "cgroup")
MEMWATCH_CGROUP_MEMORY_EVENTS = _row(
    "memwatch.cgroup.memory.events", _C, "{event}", "Memory events of the cgroup.",
    ("memwatch.cgroup.memory.event.type",), "cgroup", profile=_MIN)
MEMWATCH_CGROUP_CPU_THROTTLED = _row(
    "memwatch.cgroup.cpu.throttled", _C, "s", "Time for which the CPU limit stopped the cgroup.",
    (), "cgroup", integer=False, profile=_ALL)
MEMWATCH_CGROUP_CPU_LIMIT = _row(
    "memwatch.cgroup.cpu.limit", _U, "{cpu}", "Smallest CPU limit that applies to the cgroup, in processors.",
    (), "cgroup", note="Absent when there is no limit.", integer=False, profile=_ALL)
MEMWATCH_CGROUP_PRESSURE_TIME = _row(
    "memwatch.cgroup.pressure.time", _C, "s", "Time in which tasks of the cgroup waited for a resource.",
    _PRESSURE, "cgroup", integer=False, profile=_ALL)
# host
SYSTEM_MEMORY_USAGE = _row(
    "system.memory.usage", _U, "By", "Memory of the machine by state; used is total minus available.",
    ("system.memory.state",), "host", _DEV, "Includes memory of other programs.")
SYSTEM_MEMORY_LIMIT = _row(
    "system.memory.limit", _U, "By", "Memory of the machine.", (), "host", _DEV)
SYSTEM_MEMORY_LINUX_AVAILABLE = _row(
    "system.memory.linux.available", _U, "By", "Memory available to new programs without swapping.", (), "host", _DEV, profile=_ALL)
SYSTEM_PAGING_USAGE = _row(
    "system.paging.usage", _U, "By", "Swap space of the machine by state.", ("system.paging.state",), "host", _DEV,
    profile=_ALL)
SYSTEM_CPU_LOGICAL_COUNT = _row(
    "system.cpu.logical.count", _U, "{cpu}", "Processors that the monitor may run on.", (), "host", _DEV, profile=_ALL)
MEMWATCH_SYSTEM_CPU_BUSY = _row(
    "memwatch.system.cpu.busy", _C, "s", "CPU time of all programs of the machine, and of its hypervisor.", (), "run_queue",
    integer=False, profile=_ALL)
MEMWATCH_SYSTEM_LOAD = _row(
    "memwatch.system.load", _G, "{process}", "Runnable processes of the machine, averaged over a minute.",
    (), "host", integer=False, profile=_ALL)
MEMWATCH_SYSTEM_PRESSURE_TIME = _row(
    "memwatch.system.pressure.time", _C, "s", "Time in which tasks of the machine waited for a resource.",
    _PRESSURE, "pressure", integer=False, profile=_ALL)
# the run and its operations
MEMWATCH_TREE_PROCESS_MEMORY_PEAK = _row(
    "memwatch.tree.process.memory.peak", _G, "By", "Peak resident memory so far of the largest process of the "
    "tree: lower bound.", (), "analysis", profile=_MIN)
MEMWATCH_TREE_PROCESS_MEMORY_PEAK_HIGH = _row(
    "memwatch.tree.process.memory.peak.high", _G, "By", "Peak resident memory so far of the largest process: upper bound of "
    "memwatch.tree.process.memory.peak.", (), "analysis", note="Absent until an upper bound is known.", profile=_ALL)
MEMWATCH_RUN_ACTIVE = _row(
    "memwatch.run.active", _U, "{run}", "1 while the target runs, 0 after it has ended.", (), "telemetry",
    note="If the monitor is killed, the series ends without a 0.", profile=_MIN)
MEMWATCH_RUN_EXIT_CODE = _row(
    "memwatch.run.exit.code", _G, "{code}", "Exit code of the target; 128 plus the signal number if a signal "
    "ended it.", (), "telemetry", note="Absent while the target runs.", profile=_MIN)
MEMWATCH_RUN_END_TIME = _row(
    "memwatch.run.end.time", _G, "s", "Time at which the target ended, in seconds since 1970.", (), "telemetry",
    note="Absent while the target runs. A textfile keeps its last values; alerts use this to find their age.",
    integer=False, profile=_MIN)
MEMWATCH_RUN_STALLED = _row(
    "memwatch.run.stalled", _G, "1", "Share of the run's time so far without progress: it read files again for lack of memory, waited "
    "for storage, or was stopped by a CPU limit.", ("memwatch.pressure.resource",), "telemetry",
    note="Needs a cgroup of the run. A resource without a series is unknown, not 0.", integer=False)
MEMWATCH_RUN_LEAK = _row(
    "memwatch.run.leak", _G, "By/s", "Growth rate of a leak: an operation that keeps memory at each repeat, or the whole run if "
    "no operation is named.", ("memwatch.operation.name",), "telemetry",
    note="Absent without a leak. Judged once a minute.", integer=False)
MEMWATCH_RUN_HANDLE_LEAK = _row(
    "memwatch.run.handle.leak", _G, "{handle}/s", "Growth rate of threads, descriptors or processes that a service does not give "
    "back.", ("memwatch.handle.type",), "telemetry", note="Absent without a leak. Judged once a minute.", integer=False)
MEMWATCH_RUN_KEPT = _row(
    "memwatch.run.kept", _G, "By", "Free memory that an allocator keeps, of processes that consist of it by half or more.",
    ("memwatch.allocator",), "telemetry",
    note="Absent below that. Best estimate from the allocator's statistics, once a minute. Needs operations or `watch()` in Python.")
MEMWATCH_OPERATION_ACTIVE = _row(
    "memwatch.operation.active", _U, "{operation}", "Operations that are open now.", ("memwatch.operation.name",),
    "telemetry", note="Limited to the first 100 names; all later names are counted together as (other).")
MEMWATCH_OPERATION_COUNT = _row(
    "memwatch.operation.count", _C, "{operation}", "Closed operations.",
    ("memwatch.operation.name", "memwatch.operation.status"), "telemetry")
MEMWATCH_OPERATION_TIME = _row(
    "memwatch.operation.time", _C, "s", "Total duration of closed operations.", ("memwatch.operation.name",), "telemetry",
    integer=False)
MEMWATCH_OPERATION_MEMORY_PEAK_MAX = _row(
    "memwatch.operation.memory.peak.max", _G, "By", "Largest peak of all closed operations with this name. The peak of an "
    "operation is that of its process.", ("memwatch.operation.name",), "telemetry",
    note="As exact as the operation's peak, because no histogram bucket rounds it.")
MEMWATCH_OPERATION_DURATION = _row(
    "memwatch.operation.duration", _H, "s", "Durations of closed operations.",
    ("memwatch.operation.name", "memwatch.operation.status"), "telemetry", note="Only with --operation-metrics histograms.", integer=False)
MEMWATCH_OPERATION_MEMORY_PEAK = _row(
    "memwatch.operation.memory.peak", _H, "By", "Peaks of closed operations: largest resident memory of the process "
    "during the operation.", ("memwatch.operation.name",), "telemetry", note="Only with --operation-metrics histograms.")
# GPUs
HW_GPU_MEMORY_LIMIT = _row(
    "hw.gpu.memory.limit", _U, "By", "Memory of the GPU or MIG instance.", _GPU, "gpu_nvidia", _DEV,
    profile=_MIN)
HW_GPU_MEMORY_USAGE = _row(
    "hw.gpu.memory.usage", _U, "By", "Memory of the GPU in use by all programs.", _GPU, "gpu_nvidia", _DEV,
    "Device-wide: includes other programs, the driver's contexts and the reserve of allocators. "
    "Old drivers count reserved memory as used.", profile=_MIN)
HW_GPU_UTILIZATION = _row(
    "hw.gpu.utilization", _G, "1", "Share of time in which the GPU executed at least one kernel.", _GPU, "gpu_nvidia", _DEV,
    "Shows that the GPU was busy, not how much of it: small kernels back to back give 1.", integer=False,
    profile=_MIN)
HW_GPU_IO = _row(
    "hw.gpu.io", _C, "By", "Bytes transferred over the GPU's PCIe bus since the driver was loaded.",
    (*_GPU, "network.io.direction"), "gpu_nvidia", _DEV, "Absent if the driver has no counter.", profile=_ALL)
HW_POWER = _row(
    "hw.power", _G, "W", "Power drawn by the GPU, averaged since the previous sample.", (*_GPU, "hw.type"),
    "gpu_nvidia", _DEV, "Applies to the whole board, also for an instance of a GPU in MIG mode.", integer=False)
HW_ENERGY = _row(
    "hw.energy", _C, "J", "Energy used by the GPU since the driver was loaded.", (*_GPU, "hw.type"), "gpu_nvidia",
    _DEV, "The difference of two samples is exact.", integer=False)
HW_TEMPERATURE = _row(
    "hw.temperature", _G, "Cel", "Temperature of the GPU.", _GPU, "gpu_nvidia", _DEV, integer=False)
HW_ERRORS = _row(
    "hw.errors", _C, "{error}", "Errors of the GPU: memory errors since the driver was loaded, and XID errors since "
    "the start of the run.", (*_GPU, "hw.type", "error.type"), "gpu_nvidia", _DEV)
MEMWATCH_GPU_MEMORY_FREE = _row(
    "memwatch.gpu.memory.free", _U, "By", "Free memory of the GPU.", _GPU, "gpu_nvidia", profile=_ALL)
MEMWATCH_GPU_MEMORY_RESERVED = _row(
    "memwatch.gpu.memory.reserved", _U, "By", "Memory of the GPU reserved by driver and firmware.", _GPU, "gpu_nvidia",
    profile=_ALL)
MEMWATCH_GPU_MEMORY_UTILIZATION = _row(
    "memwatch.gpu.memory.utilization", _G, "1", "Share of time in which the GPU's memory was read or written.",
    _GPU, "gpu_nvidia", note="A share of time, not of space; for space see hw.gpu.memory.usage.", integer=False,
    profile=_ALL)
MEMWATCH_GPU_POWER_PEAK = _row(
    "memwatch.gpu.power.peak", _G, "W", "Peak power since the previous sample, from the driver's samples.",
    _GPU, "gpu_nvidia", integer=False)
MEMWATCH_GPU_THROTTLED = _row(
    "memwatch.gpu.throttled", _U, "1", "1 while the GPU's clocks are throttled for this reason, otherwise 0.",
    (*_GPU, "memwatch.gpu.throttle.reason"), "gpu_nvidia")
MEMWATCH_GPU_NVLINK_IO = _row(
    "memwatch.gpu.nvlink.io", _C, "By", "Payload bytes over all NVLinks of the GPU.",
    (*_GPU, "network.io.direction"), "gpu_nvidia", profile=_ALL)
MEMWATCH_TREE_GPU_MEMORY_USAGE = _row(
    "memwatch.tree.gpu.memory.usage", _U, "By", "Memory of the GPU held by processes of the tree.", _GPU,
    "gpu_nvidia, gpu_drm", note="Absent in a container with a separate PID namespace, because the driver reports PIDs of the "
    "host. Open drivers count a buffer once per process that shares it.")
MEMWATCH_TREE_GPU_MEMORY_SYSTEM = _row(
    "memwatch.tree.gpu.memory.system", _U, "By", "System memory held by the tree for a GPU. A GPU without dedicated memory "
    "uses only system memory.", _GPU, "gpu_drm", note="Part of it may also count as resident memory of the processes.",
    profile=_ALL)
MEMWATCH_TREE_GPU_TIME = _row(
    "memwatch.tree.gpu.time", _C, "s", "Time for which the engines of a GPU worked for the tree, summed.", _GPU, "gpu_drm",
    note="Engines work in parallel, so the sum can grow faster than wall time.", integer=False, profile=_ALL)
MEMWATCH_PROCESS_GPU_MEMORY_USAGE = _row(
    "memwatch.process.gpu.memory.usage", _U, "By", "Memory of the GPU held by the process of the tree that holds "
    "most.", _GPU, "gpu_nvidia, gpu_drm")
MEMWATCH_PROCESS_GPU_MEMORY_PEAK = _row(
    "memwatch.process.gpu.memory.peak", _G, "By", "Peak memory of the GPU held by a single process of the tree, "
    "from the driver's accounting.", _GPU, "gpu_nvidia", note="Exact. Only if an administrator enabled accounting "
    "(nvidia-smi --accounting-mode=1).")
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
    "memwatch.sampler.ticks", _C, "{tick}", "Samples taken.", (), "sampler")
MEMWATCH_SAMPLER_MISSED = _row(
    "memwatch.sampler.missed", _C, "{tick}", "Scheduled samples that were missed.", (), "sampler")
MEMWATCH_SAMPLER_READING_DURATION = _row(
    "memwatch.sampler.reading.duration", _G, "s", "Time from the start of a sample to its last reading, if longer than 2 ms.",
    (), "sampler", note="Absent for faster samples.", integer=False, profile=_ALL)
MEMWATCH_EXPORT_FAILURES = _row(
    "memwatch.export.failures", _C, "{failure}", "Batches that an exporter could not deliver.",
    ("memwatch.exporter.name",), "telemetry")
MEMWATCH_MONITOR_CPU_TIME = _row(
    "memwatch.monitor.cpu.time", _C, "s", "CPU time of the monitor itself.", (), "telemetry", integer=False, profile=_ALL)
MEMWATCH_MONITOR_MEMORY_USAGE = _row(
    "memwatch.monitor.memory.usage", _U, "By", "Resident memory of the monitor itself.", (), "telemetry",
    note="Not part of the tree.")

SPAN_ATTRIBUTES: dict[str, str] = {
    "memwatch.memory.peak": "Peak resident memory of the process during the operation, in bytes.",
    "memwatch.memory.start": "Resident memory of the process at the start of the operation, in bytes.",
    "memwatch.memory.end": "Resident memory of the process at the end of the operation, in bytes.",
    "memwatch.memory.delta": "Growth of resident memory from start to end of the operation, in bytes.",
    "memwatch.memory.certainty": "Certainty of the peak: exact, interval, censored, sampled.",
    "memwatch.io.read": "Bytes read from storage during the operation, including reaped children.",
    "memwatch.io.write": "Bytes written to storage during the operation, including reaped children.",
}
"""Attributes that an operation sets on its span of the program's tracer."""
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
"""Bucket bounds of the histograms: seconds from 10 ms to 12 hours, and powers of two from 1 MiB to 4 TiB."""


PROFILES = tuple(profile.value for profile in Profile)
NO_METRICS = "none"


def choose_metrics(choice: str) -> frozenset[str]:
    """Return the names of the metrics that a value of `--metrics` selects.

    The value lists profiles, names, and prefixes that end with `*`, separated by commas.
    Raises `ValueError` for a part that is none of these or that matches no metric.
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
                f"unknown metric or profile {part!r} (profiles: {', '.join(PROFILES)}, none;"
                " metrics: otel-memwatch metrics)"
            )
        chosen |= found
    return frozenset(chosen)


_PROMETHEUS_UNITS = {
    "By": "bytes",
    "By/s": "bytes_per_second",
    "{handle}/s": "per_second",
    "s": "seconds",
    "W": "watts",
    "J": "joules",
    "Cel": "celsius",
    "Hz": "hertz",
}


def prometheus_names(metric: Metric) -> tuple[str, ...]:
    """Return the metric's names in Prometheus: that of the Python exporter, then that of the Collector if it differs.

    They differ for gauges of unit "1": the Collector and Prometheus' OTLP receiver append `_ratio`.
    """
    import re

    name = re.sub(r"[^A-Za-z0-9:]+", "_", metric.name)
    unit = _PROMETHEUS_UNITS.get(metric.unit, "")
    if unit and not name.endswith(f"_{unit}"):
        name += f"_{unit}"
    if metric.instrument is Instrument.COUNTER:
        name += "_total"
    if metric.unit == "1" and metric.instrument is Instrument.GAUGE:
        return name, f"{name}_ratio"
    return (name,)
