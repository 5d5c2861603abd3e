"""CPU and I/O panels: mean rates between samples, from counters that include all activity."""

from __future__ import annotations

import numpy as np

from otel_memwatch import catalog
from otel_memwatch.reports.plot import style
from otel_memwatch.reports.plot.series import RateSteps, rates, total
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import size_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from otel_memwatch.reports.plot.series import View

_CPU, _DISK, _CALLS = (
    catalog.MEMWATCH_TREE_CPU_TIME,
    catalog.MEMWATCH_TREE_DISK_IO,
    catalog.MEMWATCH_TREE_SYSCALL_IO,
)
RATE_METRICS = (_CPU, _DISK, _CALLS)

_SHORTEST = 0.05
"""Shortest step in seconds: on many machines the kernel counts CPU time in hundredths."""
_FEWEST = 4
"""Fewest steps of a useful panel."""
_IDLE_CORES = 0.02
_MOVED = 1024**2
"""Least bytes of an I/O panel: loading a program's libraries moves as much."""
_HEADROOM = 1.12
_MIB = 1024**2


def draw_cpu(axes: Axes, view: View) -> int:
    """Draw cores in use, with the system's part below."""
    style.plain_axes(axes, "CPU", "cores")
    user = total(view.samples, _CPU, cpu_mode="user")
    system = total(view.samples, _CPU, cpu_mode="system")
    known = [counter for counter in (user, system) if counter is not None]
    if not known:
        return _not_recorded(axes)
    both = rates(view.samples.time, sum(known[1:], known[0]), _SHORTEST)
    _area(axes, both, view, style.BLUE, "user" if system is not None else "all")
    if user is not None and system is not None:
        # Both areas have the same steps if they use the same samples.
        common = np.where(np.isnan(user), np.nan, system)
        _area(axes, rates(view.samples.time, common, _SHORTEST), view, style.SKY, "system")
    most = both.maximum()
    cpus = view.run.host.get("cpus")
    if isinstance(cpus, int) and cpus <= 3 * most:
        axes.axhline(
            cpus, color=style.VERMILION, marker="", linewidth=1.0, linestyle=(0, (5, 3)), label=f"{cpus} CPUs"
        )
        most = max(most, cpus)
    axes.set_ylim(0, max(most, 0.1) * _HEADROOM)
    return style.legend(axes)


def has_cpu(view: View) -> bool:
    """Return whether CPU use is worth a panel."""
    used = [
        values
        for mode in ("user", "system")
        if (values := total(view.samples, _CPU, cpu_mode=mode)) is not None
    ]
    steps = [rates(view.samples.time, values, _SHORTEST) for values in used]
    return any(len(one.rates) >= _FEWEST and one.maximum() >= _IDLE_CORES for one in steps)


def has_io(view: View) -> bool:
    """Return whether I/O is worth a panel."""
    moved = 0.0
    for metric in (_DISK, _CALLS):
        for direction in ("read", "write"):
            values = total(view.samples, metric, disk_io_direction=direction)
            if values is not None and not np.isnan(values).all():
                moved = max(moved, float(np.nanmax(values) - np.nanmin(values)))
    return moved >= _MOVED


def draw_io(axes: Axes, view: View) -> int:
    """Draw bytes per second to and from storage, and through system calls."""
    time = view.samples.time
    counters = {
        (metric, direction): total(view.samples, metric, disk_io_direction=direction)
        for metric in (_DISK, _CALLS)
        for direction in ("read", "write")
    }
    steps = {key: rates(time, counter, _SHORTEST) for key, counter in counters.items() if counter is not None}
    most = max((s.maximum() for s in steps.values()), default=0.0)
    scale, unit = size_scale(most) if most >= _MIB else (float(_MIB), "MiB")
    style.plain_axes(axes, "I/O", f"{unit}/s")
    if not steps:
        return _not_recorded(axes)
    look = {"read": style.BLUE, "write": style.ORANGE}
    words = {"read": "read", "write": "written"}
    for (metric, direction), one in steps.items():
        if not len(one.rates):
            continue
        disk, colour, times = metric == _DISK, look[direction], one.edges / view.scale
        values = np.append(one.rates, one.rates[-1]) / scale
        axes.plot(
            times, values, drawstyle="steps-post", color=colour, linewidth=1.2 if disk else 0.9,
            linestyle="-" if disk else (0, (1.5, 1)), marker="",
            label=f"{words[direction]}, {'disk' if disk else 'system calls'}", zorder=3,
        )  # fmt: skip
        if disk:
            axes.fill_between(
                times, values, 0, step="post", facecolor=colour, edgecolor="none", linewidth=0, alpha=0.25, zorder=2
            )  # fmt: skip
    axes.set_ylim(0, max(most / scale, 0.1) * _HEADROOM)
    return style.legend(axes)


def _area(axes: Axes, steps: RateSteps, view: View, colour: str, label: str) -> None:
    if len(steps.rates):
        axes.stairs(
            steps.rates, steps.edges / view.scale, fill=True, facecolor=colour, edgecolor=colour, linewidth=0.5,
            alpha=1.0, label=label, zorder=2,
        )  # fmt: skip


def _not_recorded(axes: Axes) -> int:
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    style.write_into(axes, "not recorded")
    return 1
