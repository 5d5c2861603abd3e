"""GPU: per device and per run."""

from __future__ import annotations

from dashboards.board import Row, dashboard, gpu_variable, run_link, variables
from dashboards.boards.shared import DEVICE, DEVICE_LEGEND, SHARE_LEVELS, TOP, of_device
from dashboards.panels import (
    GREEN,
    RED,
    YELLOW,
    Json,
    Panel,
    Query,
    TableColumn,
    bars,
    dashed,
    stat,
    table,
    timeseries,
)
from dashboards.promql import RUN, last, rate, series
from dashboards.thresholds import GPU_HELD, GPU_IDLE, GPU_MEMORY_NEAR

_CHOSEN = 'hw_id=~"$gpu"'
_RUN = f"{RUN}, hw_id"
_RUN_LEGEND = "{{job}} {{instance}} {{hw_id}}"


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "memwatch-gpu",
        "otel-memwatch / GPU",
        "GPUs: memory, utilization, and the runs that use them. Several runs on one machine see the same device; it counts once.",
        [
            Row("Now", _now()),
            Row("By device", _devices()),
            Row("By run", _runs()),
            Row("Health and bus", _health()),
        ],
        variables(gpu_variable()),
        since="now-6h",
    )


def _device(metric: str) -> str:
    """One value for each chosen device."""
    return of_device(metric, _CHOSEN)


def _top(expression: str) -> str:
    """Return the largest values; a curve for each device of a fleet would be too many to read."""
    return f"topk({TOP}, {expression})"


def _device_rate(counter: str, label: str) -> str:
    """Growth per second of a device's counter, which every run on it reports in full."""
    return f"max by (hw_id, {label}) (rate({series(counter, _CHOSEN, window='$__rate_interval')}))"


def _full() -> str:
    return f"{_device('hw.gpu.memory.usage')} / {_device('hw.gpu.memory.limit')}"


def _now() -> list[Panel]:
    held = f"({_full()} > bool {GPU_HELD:g})"
    idle = f"({_device('hw.gpu.utilization')} < bool {GPU_IDLE:g})"
    return [
        stat(
            "GPUs",
            "short",
            "Devices that active runs can see.",
            Query(f"count ({_device('hw.gpu.memory.limit')})", "GPUs"),
            unknown="no GPU reports",
        ),
        stat(
            "Fullest",
            "percentunit",
            "Used memory of the fullest device.",
            Query(f"max ({_full()})", "fullest"),
            unknown="no GPU reports",
            levels=((None, GREEN), (0.8, YELLOW), (GPU_MEMORY_NEAR, RED)),
        ),
        stat(
            "Busy on average",
            "percentunit",
            "Share of time with work on the GPU, averaged over devices.",
            Query(f"avg ({_device('hw.gpu.utilization')})", "busy"),
            unknown="no GPU reports",
        ),
        stat(
            "Idle while held now",
            "short",
            f"Devices with more than {GPU_HELD:.0%} of their memory in use and less than {GPU_IDLE:.0%} utilization.",
            Query(f"sum ({held} * {idle})", "idle"),
            unknown="no GPU reports",
            levels=((None, GREEN), (1, YELLOW)),
        ),
        stat(
            "Power",
            "watt",
            "All devices together.",
            Query(f"sum ({_device('hw.power')})", "power"),
            unknown="no GPU reports",
        ),
        stat(
            "Energy in this time",
            "joule",
            "All devices together, for all users, while a run sampled the device. If several runs used a device one after the other, only "
            "the run with the largest energy counts.",
            Query(
                f"sum (max by ({DEVICE}) (increase({series('hw.energy', _CHOSEN, window='$__range')})))",
                "energy",
            ),
            unknown="no GPU reports",
        ),
    ]


def _devices() -> list[Panel]:
    return [
        timeseries(
            "Memory",
            "bytes",
            f"Memory in use by all programs, and the total: the {TOP} devices with most in use.",
            Query(_top(_device("hw.gpu.memory.usage")), DEVICE_LEGEND),
            Query(
                f"{_device('hw.gpu.memory.limit')} and {_top(_device('hw.gpu.memory.usage'))}",
                "limit {{hw_id}}",
            ),
            overrides=[dashed("limit.*", "red")],
        ),
        timeseries(
            "Memory in use",
            "percentunit",
            f"Share of the device's memory, of the {TOP} fullest.",
            Query(_top(_full()), DEVICE_LEGEND),
            maximum=1,
        ),
        timeseries(
            "Busy",
            "percentunit",
            f"Share of time, of the {TOP} busiest devices.",
            Query(_top(_device("hw.gpu.utilization")), DEVICE_LEGEND),
            maximum=1,
        ),
        timeseries(
            "Memory bus busy",
            "percentunit",
            f"Share of time, of the {TOP} busiest. A device with a busy bus and idle cores waits for memory.",
            Query(_top(_device("memwatch.gpu.memory.utilization")), DEVICE_LEGEND),
            maximum=1,
        ),
        timeseries(
            "Reserved and free memory",
            "bytes",
            "Reserved memory belongs to driver and firmware, not to a process.",
            Query(_top(_device("memwatch.gpu.memory.reserved")), "reserved {{hw_id}}"),
            Query(_top(_device("memwatch.gpu.memory.free")), "free {{hw_id}}"),
        ),
        timeseries(
            "Power",
            "watt",
            "Mean and maximum since the previous sample.",
            Query(_top(_device("hw.power")), DEVICE_LEGEND),
            Query(_top(_device("memwatch.gpu.power.peak")), "largest {{hw_id}}"),
        ),
    ]


def _runs() -> list[Panel]:
    held = f"sum by ({_RUN}) ({series('memwatch.tree.gpu.memory.usage', _CHOSEN)})"
    last_held = f"sum by ({_RUN}) ({last('memwatch.tree.gpu.memory.usage', _CHOSEN)})"
    busy = f"max by ({_RUN}) ({series('hw.gpu.utilization', _CHOSEN)})"
    size = f"max by ({_RUN}) ({last('hw.gpu.memory.limit', _CHOSEN)})"
    used = f"max by ({_RUN}) ({last('hw.gpu.memory.usage', _CHOSEN)})"
    return [
        timeseries(
            "Memory held by runs",
            "bytes",
            f"The {TOP} runs that hold most, if the driver's PIDs can be matched.",
            Query(_top(held), _RUN_LEGEND),
        ),
        timeseries(
            "Largest process",
            "bytes",
            f"Memory of the largest process of {TOP} runs, now and the largest so far.",
            Query(
                _top(f"max by ({_RUN}) ({series('memwatch.process.gpu.memory.usage', _CHOSEN)})"),
                _RUN_LEGEND,
            ),
            Query(
                _top(f"max by ({_RUN}) ({series('memwatch.process.gpu.memory.peak', _CHOSEN)})"),
                "largest so far, {{instance}}",
            ),
        ),
        bars(
            "Held while least busy",
            "percentunit",
            "Runs that hold GPU memory, by the GPU's utilization now. The least busy ones could release theirs.",
            Query(f"bottomk(20, {busy} and {held} > 0)", _RUN_LEGEND),
            levels=((None, RED), (GPU_IDLE, YELLOW), (0.5, GREEN)),
            maximum=1,
            links=[run_link()],
        ),
        table(
            "Devices of runs",
            "Last figures of each run and device.",
            {"job": "Service", "instance": "Run", "hw_id": "GPU"},
            TableColumn("Device full", "percentunit", f"{used} / {size}", SHARE_LEVELS),
            TableColumn("Held by the run", "bytes", last_held),
            TableColumn("Size", "bytes", size),
            width=12,
            links={"instance": run_link("${__value.raw}")},
        ),
        timeseries(
            "Open drivers: engines and system memory",
            "short",
            "AMD and Intel: engines in use for the run. The next panel shows system memory held for a GPU.",
            Query(_top(rate("memwatch.tree.gpu.time", _CHOSEN, by=_RUN)), _RUN_LEGEND),
        ),
        timeseries(
            "Open drivers: system memory held for a GPU",
            "bytes",
            "For an integrated GPU, this is all of its memory.",
            Query(
                _top(f"max by ({_RUN}) ({series('memwatch.tree.gpu.memory.system', _CHOSEN)})"), _RUN_LEGEND
            ),
        ),
    ]


def _health() -> list[Panel]:
    reason = "memwatch_gpu_throttle_reason"
    return [
        timeseries(
            "Temperature",
            "celsius",
            "Temperature of the chip.",
            Query(_top(_device("hw.temperature")), DEVICE_LEGEND),
            width=8,
        ),
        timeseries(
            "Throttled",
            "short",
            "1 while clocks are reduced for this reason. A thermal reason points to cooling, a power cap to policy.",
            Query(
                _top(f"max by (hw_id, {reason}) ({series('memwatch.gpu.throttled', _CHOSEN)})"),
                f"{{{{{reason}}}}} {{{{hw_id}}}}",
            ),
            maximum=1,
            width=8,
        ),
        timeseries(
            "Errors",
            "ops",
            "Memory errors and XIDs per second.",
            Query(_top(_device_rate("hw.errors", "error_type")), "{{error_type}} {{hw_id}}"),
            width=8,
        ),
        timeseries(
            "PCIe",
            "Bps",
            "Bytes over the bus.",
            Query(
                _top(_device_rate("hw.gpu.io", "network_io_direction")),
                "{{network_io_direction}} {{hw_id}}",
            ),
        ),
        timeseries(
            "NVLink",
            "Bps",
            "Payload over all links.",
            Query(
                _top(_device_rate("memwatch.gpu.nvlink.io", "network_io_direction")),
                "{{network_io_direction}} {{hw_id}}",
            ),
        ),
    ]
