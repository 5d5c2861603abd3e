"""Run: one run, from its peak to the monitor itself."""

from __future__ import annotations

from dashboards.board import Row, annotation, dashboard, traces_link, variables
from dashboards.boards.shared import (
    DEVICE,
    DEVICE_LEGEND,
    RUN_STATES,
    SHARE_LEVELS,
    of_device,
    oom_kills,
    state_of_run,
)
from dashboards.measures import CGROUP_LIMIT, OOM_KILL, available, charged, limit, share_of_limit, used
from dashboards.panels import (
    BLUE,
    GREEN,
    RED,
    YELLOW,
    Json,
    Panel,
    Query,
    TableColumn,
    dashed,
    stat,
    table,
    timeseries,
)
from dashboards.promql import RUN, last, per_run, rate, series
from dashboards.records import OPERATION
from dashboards.thresholds import LIMIT_SOON_SECONDS

_LIMIT_LINE = dashed(".*limit.*", "red")
_PEAK_LINE = dashed("peak.*", "purple")


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-run",
        "otel-memwatch / Run",
        "One run: its peak memory, when it occurred, during which operation, and the limits around it.",
        [
            Row("This run", _headline()),
            Row("Memory", _memory()),
            Row("Operations", _operations()),
            Row("CPU and I/O", _work()),
            Row("Pressure and the machine", _pressure()),
            Row("GPUs", _gpus()),
            Row("The monitor", _monitor()),
        ],
        variables(one_run=True),
        annotations=_annotations(),
        links=[traces_link()],
        since="now-1h",
    )


def _annotations() -> list[Json]:
    running = f"sum by ({OPERATION}) ({series('memwatch.operation.active')}) > 0"
    killed = f"increase({series('memwatch.cgroup.memory.events', OOM_KILL, window='$__rate_interval')}) > 0"
    return [
        annotation("Operations", running, f"{{{{{OPERATION}}}}}", "operation open", "blue"),
        annotation("OOM kills", killed, "OOM kill", "the kernel killed a process of the run", "red"),
        annotation(
            "Alerts",
            'ALERTS{alertname=~"Memwatch.+",instance=~"$run"} == 1',
            "{{alertname}}",
            "{{severity}}",
            "orange",
        ),
    ]


def _headline() -> list[Panel]:
    growth = f"deriv({series('memwatch.cgroup.memory.working_set', window='10m')})"
    left = f"({available()} - {used()}) / clamp_min(max by ({RUN}) ({growth}), 1)"
    return [
        stat(
            "Memory needed",
            "bytes",
            "Lower bound of the run's peak so far. The upper bound is drawn below; it is usually known after the run has "
            "ended. If the peak is exact, both are equal.",
            Query(f"max ({last('memwatch.tree.memory.peak')})", "at least"),
            unknown="not recorded",
        ),
        stat(
            "Memory limit",
            "bytes",
            "Limit of the cgroup. Without one, the machine's memory is the limit.",
            Query(f"min ({limit(window='$__range')})", "limit"),
            unknown="no limit",
        ),
        stat(
            "Used of the limit",
            "percentunit",
            "Unreclaimable memory as a share of the limit, now or at the end. At 100 % the OOM killer acts.",
            Query(f"max ({share_of_limit(window='$__range')})", "used"),
            unknown="no limit",
            levels=SHARE_LEVELS,
        ),
        stat(
            "Time to the limit",
            "s",
            "Extrapolates the growth of the last ten minutes. A run without growth shows 'not growing'; an ended run "
            "shows nothing.",
            Query(f"min ({left})", "left"),
            unknown="not known",
            levels=((None, RED), (LIMIT_SOON_SECONDS, YELLOW), (4.0 * LIMIT_SOON_SECONDS, GREEN)),
            mappings=[
                {
                    "type": "range",
                    "options": {
                        "from": 2592000,
                        "to": 1e30,
                        "result": {"text": "not growing", "color": BLUE, "index": 0},
                    },
                }
            ],
        ),
        oom_kills(),
        stat(
            "State",
            "short",
            "Running, or the exit code; 128 plus the signal's number if a signal ended it. If the monitor was killed with "
            "the run, the state stays at running: see the alert MemwatchRunVanished.",
            Query(f"max ({state_of_run()})", "state"),
            unknown="not recorded",
            mappings=[RUN_STATES],
            levels=((None, BLUE), (1.0, RED)),
        ),
    ]


def _memory() -> list[Panel]:
    return [
        timeseries(
            "Memory of the whole tree",
            "bytes",
            "All processes of the run together. Curves are samples and may lie below the peak, which is drawn as soon as "
            "it is known.",
            Query(per_run("memwatch.tree.memory.usage"), "resident, summed"),
            Query(per_run("memwatch.tree.memory.pss"), "proportional (PSS)"),
            Query(charged(), "working set of the cgroup"),
            Query(per_run("memwatch.tree.memory.peak"), "peak, at least"),
            Query(per_run("memwatch.tree.memory.peak.high"), "peak, at most"),
            Query(per_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, how="min"), "limit"),
            width=24,
            height=10,
            overrides=[_LIMIT_LINE, _PEAK_LINE],
        ),
        timeseries(
            "The largest processes",
            "bytes",
            "Single processes have no series, because their number is unbounded. Compare the main process, its peak and the "
            "largest process to see if one process or many need the memory. The run's report.txt lists all processes.",
            Query(per_run("process.memory.usage"), "main process"),
            Query(
                f"{per_run('memwatch.tree.memory.usage')} - {per_run('process.memory.usage')}",
                "all others together",
            ),
            Query(per_run("memwatch.process.memory.peak"), "peak of the main process"),
            Query(per_run("memwatch.tree.process.memory.peak"), "peak of the largest process"),
            overrides=[_PEAK_LINE],
        ),
        timeseries(
            "Processes and threads",
            "short",
            "Short-lived processes between two samples are counted as unobserved.",
            Query(per_run("memwatch.tree.process.count"), "processes"),
            Query(per_run("memwatch.tree.thread.count"), "threads"),
            Query(per_run("memwatch.tree.file_descriptor.count"), "open files"),
            Query(rate("memwatch.tree.unobserved", by="instance"), "unobserved per second"),
        ),
        timeseries(
            "Memory charged to the cgroup",
            "bytes",
            "The kernel reclaims file cache before it kills a process. It cannot reclaim the rest.",
            Query(per_run("memwatch.cgroup.memory.anon"), "anonymous"),
            Query(per_run("memwatch.cgroup.memory.shmem"), "shared"),
            Query(per_run("memwatch.cgroup.memory.kernel"), "kernel"),
            Query(per_run("memwatch.cgroup.memory.file"), "file cache"),
            Query(per_run("memwatch.cgroup.memory.limit", CGROUP_LIMIT, how="min"), "limit"),
            stacked=True,
            overrides=[_LIMIT_LINE],
        ),
        timeseries(
            "Kinds of memory of the main process",
            "bytes",
            "Heap and stacks, mapped files, shared memory.",
            Query(per_run("memwatch.process.memory.linux.anon"), "anonymous"),
            Query(per_run("memwatch.process.memory.linux.file"), "file-backed"),
            Query(per_run("memwatch.process.memory.linux.shmem"), "shared"),
            stacked=True,
        ),
    ]


def _operations() -> list[Panel]:
    count = f"sum by ({OPERATION}) ({last('memwatch.operation.count')})"
    total = f"sum by ({OPERATION}) ({last('memwatch.operation.time')})"
    return [
        table(
            "Operations",
            "Each name once. The run's report and spans have exact figures for every single operation.",
            {OPERATION: "Operation"},
            TableColumn(
                "Largest peak",
                "bytes",
                f"max by ({OPERATION}) ({last('memwatch.operation.memory.peak.max')})",
            ),
            TableColumn("Closed", "short", count),
            TableColumn("Mean duration", "s", f"{total} / {count}"),
            TableColumn("Total duration", "s", total),
            width=14,
        ),
        timeseries(
            "Open operations",
            "short",
            "Operations shorter than the sampling interval may be missing here; the table has them.",
            Query(f"sum by ({OPERATION}) ({series('memwatch.operation.active')})", f"{{{{{OPERATION}}}}}"),
            width=10,
            height=9,
        ),
        timeseries(
            "Largest peaks of operations so far",
            "bytes",
            "A step is an operation that needed more than all earlier ones of the same name.",
            Query(
                f"max by ({OPERATION}) ({series('memwatch.operation.memory.peak.max')})",
                f"{{{{{OPERATION}}}}}",
            ),
            width=24,
        ),
    ]


def _work() -> list[Panel]:
    return [
        timeseries(
            "CPU",
            "short",
            "Cores in use, and cores lost to the cgroup's CPU limit.",
            Query(rate("memwatch.tree.cpu.time", by="cpu_mode"), "{{cpu_mode}}"),
            Query(rate("memwatch.cgroup.cpu.throttled"), "throttled"),
        ),
        timeseries(
            "Disk and system calls",
            "Bps",
            "Bytes that reached storage, and bytes that passed through read and write calls.",
            Query(rate("memwatch.tree.disk.io", by="disk_io_direction"), "disk {{disk_io_direction}}"),
            Query(rate("memwatch.tree.syscall.io", by="disk_io_direction"), "calls {{disk_io_direction}}"),
        ),
        timeseries(
            "Page faults",
            "ops",
            "Major faults wait for storage. Many of them near the limit mean thrashing.",
            Query(
                rate("memwatch.tree.paging.faults", by="system_paging_fault_type"),
                "{{system_paging_fault_type}}",
            ),
        ),
        timeseries(
            "Context switches",
            "ops",
            "Involuntary switches mean competition for a core.",
            Query(
                rate("memwatch.tree.context_switches", by="process_context_switch_type"),
                "{{process_context_switch_type}}",
            ),
        ),
    ]


def _pressure() -> list[Panel]:
    by = "memwatch_pressure_resource, memwatch_pressure_stall_type"
    legend = "{{memwatch_pressure_resource}} {{memwatch_pressure_stall_type}}"
    return [
        timeseries(
            "Pressure in the cgroup",
            "percentunit",
            "Share of time in which some task, or all tasks, waited for memory, CPU or I/O. Requires cgroups v2.",
            Query(rate("memwatch.cgroup.pressure.time", by=by), legend),
            maximum=1,
            width=8,
        ),
        timeseries(
            "Pressure on the machine",
            "percentunit",
            "The same for the whole machine, including the effect of other programs on this run.",
            Query(rate("memwatch.system.pressure.time", by=by), legend),
            maximum=1,
            width=8,
        ),
        timeseries(
            "Memory of the machine",
            "bytes",
            "Without a limit of the cgroup, this is the limit.",
            Query(
                f"max by (system_memory_state) ({series('system.memory.usage')})", "{{system_memory_state}}"
            ),
            Query(f"max ({series('system.memory.linux.available')})", "available"),
            Query(f"max ({series('system.memory.limit')})", "limit: total memory"),
            overrides=[_LIMIT_LINE],
            width=8,
        ),
        timeseries(
            "Swap",
            "bytes",
            "Access to swapped-out memory is about a thousand times slower.",
            Query(per_run("memwatch.tree.memory.swap"), "tree"),
            Query(per_run("memwatch.cgroup.memory.swap"), "cgroup"),
            Query(
                f"max by (system_paging_state) ({series('system.paging.usage')})",
                "machine, {{system_paging_state}}",
            ),
        ),
        timeseries(
            "Memory events",
            "ops",
            "max: an allocation found the cgroup at its limit. oom: reclaim did not help. oom_kill: the kernel killed a process.",
            Query(
                rate("memwatch.cgroup.memory.events", by="memwatch_cgroup_memory_event_type"),
                "{{memwatch_cgroup_memory_event_type}}",
            ),
        ),
    ]


def _gpus() -> list[Panel]:
    return [
        timeseries(
            "GPU memory",
            "bytes",
            "Memory of the whole device, used by all programs. The run's share is drawn beside it if the driver reports it.",
            Query(of_device("hw.gpu.memory.usage"), DEVICE_LEGEND),
            Query(
                f"sum by ({DEVICE}) ({series('memwatch.tree.gpu.memory.usage')})", "held by the run {{hw_id}}"
            ),
            Query(of_device("hw.gpu.memory.limit"), "limit {{hw_id}}"),
            overrides=[_LIMIT_LINE],
        ),
        timeseries(
            "GPU busy",
            "percentunit",
            "Share of time with any work on the GPU, not the share of the chip in use.",
            Query(of_device("hw.gpu.utilization"), DEVICE_LEGEND),
            maximum=1,
        ),
    ]


def _monitor() -> list[Panel]:
    return [
        timeseries(
            "Sources that work",
            "short",
            "1: works. 0: fails; its figures are missing from all panels above. Sources that the machine lacks are not "
            "listed.",
            Query(
                f"min by (memwatch_source_name) ({series('memwatch.source.up')})", "{{memwatch_source_name}}"
            ),
            maximum=1,
            width=8,
        ),
        timeseries(
            "Samples of the monitor",
            "ops",
            "Missed samples leave holes in the curves. Peaks from high-water marks are complete.",
            Query(rate("memwatch.sampler.ticks"), "taken"),
            Query(rate("memwatch.sampler.missed"), "missed"),
            Query(
                rate("memwatch.export.failures", by="memwatch_exporter_name"),
                "undelivered {{memwatch_exporter_name}}",
            ),
            Query(
                rate("memwatch.source.failures", by="memwatch_source_name"),
                "failed reads {{memwatch_source_name}}",
            ),
            width=8,
        ),
        timeseries(
            "CPU of the monitor",
            "percentunit",
            "Share of one core; the other curves show each source.",
            Query(rate("memwatch.monitor.cpu.time"), "monitor"),
            Query(rate("memwatch.source.duration", by="memwatch_source_name"), "{{memwatch_source_name}}"),
            width=8,
        ),
        timeseries(
            "Memory of the monitor",
            "bytes",
            "Not part of the figures above.",
            Query(per_run("memwatch.monitor.memory.usage"), "monitor"),
            width=8,
        ),
    ]
