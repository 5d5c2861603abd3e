"""Alerting rules, and both files of rules. Each alert has a heading in runbook.md and scenarios in tests/data/alerts."""

from __future__ import annotations

from typing import NamedTuple

from dashboards import measures
from dashboards.promql import EVERYTHING, RUN, last_per_run, per_run, series
from dashboards.records import (
    AVAILABLE,
    GPU_BUSY,
    GPU_USED,
    PEAK,
    TREE,
    USED,
    ended_long_ago,
    records,
)
from dashboards.thresholds import (
    GPU_HELD,
    GPU_IDLE,
    GPU_IDLE_WINDOW,
    GPU_MEMORY_NEAR,
    GROWTH_STEP,
    GROWTH_WINDOW,
    LIMIT_NEAR,
    LIMIT_SOON_SECONDS,
    LIMIT_SOON_SHARE,
    MISSED_TICKS,
    REGRESSION,
    RULE_SECONDS,
    SILENT_WINDOW,
)

TEAM = "{{ $labels.namespace }}"
"""Label that routes alerts. Usually a team has a namespace; another label would do as well."""


class Alert(NamedTuple):
    """An alerting rule."""

    name: str
    expression: str
    probe: str
    """The measure without its threshold; it must have values for every run of that kind."""
    lasting: str
    severity: str
    summary: str
    description: str


def alerts() -> list[Alert]:
    """All alerting rules."""
    return [*_memory(), *_gpus(), *_monitor(), _regression()]


def _memory() -> list[Alert]:
    return [
        Alert(
            "MemwatchMemoryNearLimit",
            f"{USED} > {LIMIT_NEAR:g}",
            USED,
            "1m",
            "warning",
            "{{ $labels.job }} ({{ $labels.instance }}) is near its memory limit.",
            "It uses {{ $value | humanizePercentage }} of its available memory"
            f"{_query(AVAILABLE, 'humanize1024', ' of ', 'B')}"
            f"{_time_left()}. At 100 % the OOM killer kills it. Raise the limit, or find the growing operation in "
            "its Run dashboard.",
        ),
        Alert(
            "MemwatchMemoryLimitSoon",
            f"{_seconds_left()} < {LIMIT_SOON_SECONDS} and {USED} > {LIMIT_SOON_SHARE:g}",
            _seconds_left(),
            "5m",
            "warning",
            "{{ $labels.job }} ({{ $labels.instance }}) will reach its memory limit in {{ $value | humanizeDuration }}.",
            "This extrapolates the growth of the last 15 minutes. Save a checkpoint, or raise the limit if that is possible "
            "while it runs.",
        ),
        _oom_kill(),
        _growing(),
        _leak(),
        _handles(),
    ]


def _query(expression: str, form: str, before: str, after: str) -> str:
    """Template that adds another value of the same run to an annotation, if it exists."""
    selector = f"{expression}{{job=%q,instance=%q}}"
    query = f"printf `{selector}` $labels.job $labels.instance"
    return f"{{{{ range query ({query}) }}}}{before}{{{{ . | value | {form} }}}}{after}{{{{ end }}}}"


def _seconds_left() -> str:
    """Seconds until a run reaches its limit, at its growth of 15 minutes; nothing without growth."""
    return f"(1 - {USED}) / (deriv({USED}[15m]) > 0)"


def _time_left() -> str:
    left = f"(1 - {USED}{{job=%[1]q,instance=%[2]q}}) / (deriv({USED}{{job=%[1]q,instance=%[2]q}}[15m]) > 0)"
    query = f"printf `{left}` $labels.job $labels.instance"
    return f"{{{{ range query ({query}) }}}}; at its present growth, it reaches the limit in {{{{ . | value | humanizeDuration }}}}{{{{ end }}}}"


def _oom_kill() -> Alert:
    kills = series("memwatch.cgroup.memory.events", measures.OOM_KILL, scope=EVERYTHING, window="15m")
    counted = per_run("memwatch.cgroup.memory.events", measures.OOM_KILL, scope=EVERYTHING)
    killed = per_run("memwatch.run.exit.code", scope=EVERYTHING)
    return Alert(
        "MemwatchOomKill",
        f"max by ({RUN}) (increase({kills})) > 0 or ({counted} > 0 and {killed} == 137 unless {ended_long_ago()})",
        f"max by ({RUN}) (increase({kills})) or {counted}",
        "0m",
        "critical",
        "{{ $labels.job }} ({{ $labels.instance }}): the OOM killer killed a process.",
        "Its cgroup was full and the kernel could reclaim nothing. The run's report names the process, the operation, and "
        "the minimum memory that it would have needed.",
    )


def _growing() -> Alert:
    window = GROWTH_WINDOW
    floors = [f"min_over_time({TREE}[{window}])"]
    floors += [f"min_over_time({TREE}[{window}] offset {offset})" for offset in (window, _twice(window))]
    step = f"{GROWTH_STEP:g}"
    return Alert(
        "MemwatchMemoryGrowing",
        f"{floors[0]} > {step} * {floors[1]} and {floors[1]} > {step} * {floors[2]}",
        f"{floors[0]}",
        "30m",
        "warning",
        "{{ $labels.job }} ({{ $labels.instance }}) has been growing for an hour and a half without freeing memory.",
        f"Its lowest memory in each of the last three {window} rose by more than {GROWTH_STEP - 1:.0%} each time. It is "
        "{{ $value | humanize1024 }}B now. A job that loads data stops growing; a leak does not.",
    )


def _leak() -> Alert:
    rate = f"max by ({RUN}, memwatch_operation_name) ({series('memwatch.run.leak', scope=EVERYTHING)})"
    return Alert(
        "MemwatchLeak",
        f"3600 * {rate} > 0",
        f"{rate} or {TREE}",  # a run without a leak has no rate
        "10m",
        "warning",
        "{{ $labels.job }} ({{ $labels.instance }}) leaks {{ $value | humanize1024 }}B an hour"
        "{{ with $labels.memwatch_operation_name }}, in {{ . }}{{ end }}.",
        "Its memory rises steadily: at each repeat of an operation, or in the floors of hours while its load stays the same. "
        "The run's report has the range of the rate, and the time until its limit.",
    )


def _handles() -> Alert:
    rate = f"max by ({RUN}, memwatch_handle_type) ({series('memwatch.run.handle.leak', scope=EVERYTHING)})"
    return Alert(
        "MemwatchHandleLeak",
        f"3600 * {rate} > 0",
        f"{rate} or {TREE}",
        "10m",
        "warning",
        "{{ $labels.job }} ({{ $labels.instance }}) does not give {{ $labels.memwatch_handle_type }} back: "
        "{{ $value | humanize }} more an hour.",
        "Their number rises steadily in the floors of hours while the load stays the same. At its limit, the service fails.",
    )


def _twice(window: str) -> str:
    return f"{2 * int(window.removesuffix('m'))}m"


def _gpus() -> list[Alert]:
    by = f"{RUN}, hw_id"
    held = f"sum by ({by}) ({series('memwatch.tree.gpu.memory.usage', scope=EVERYTHING)})"
    size = f"max by ({by}) ({series('hw.gpu.memory.limit', scope=EVERYTHING)})"
    # If PIDs cannot be matched, use the memory of the whole device instead of the run's share.
    share = f"({held} / {size} or {GPU_USED})"
    idle = f"max_over_time({GPU_BUSY}[{GPU_IDLE_WINDOW}])"
    return [
        Alert(
            "MemwatchGpuMemoryNearFull",
            f"{GPU_USED} > {GPU_MEMORY_NEAR:g}",
            GPU_USED,
            "5m",
            "warning",
            "The GPU {{ $labels.hw_id }} of {{ $labels.job }} ({{ $labels.instance }}) is nearly full.",
            "{{ $value | humanizePercentage }} of its memory is used. The next allocation may fail. Allocators "
            "that take nearly all memory at the start (JAX, TensorFlow) trigger this alert without being a problem: see the runbook.",
        ),
        Alert(
            "MemwatchGpuIdle",
            f"{idle} < {GPU_IDLE:g} and {share} > {GPU_HELD:g} and {GPU_BUSY} offset {GPU_IDLE_WINDOW}",
            f"{idle} and {share}",
            "0m",
            "info",
            "{{ $labels.job }} ({{ $labels.instance }}) holds the GPU {{ $labels.hw_id }} and does not use it.",
            f"For {GPU_IDLE_WINDOW} its utilization did not exceed {{{{ $value | humanizePercentage }}}} while more than "
            f"{GPU_HELD:.0%} of its memory was in use.",
        ),
    ]


def _monitor() -> list[Alert]:
    active = per_run("memwatch.run.active", scope=EVERYTHING)
    before = last_per_run("memwatch.run.active", scope=EVERYTHING, window=SILENT_WINDOW)
    source_up = series("memwatch.source.up", scope=EVERYTHING)
    missed = f"sum by ({RUN}) (rate({series('memwatch.sampler.missed', scope=EVERYTHING, window='10m')}))"
    ticks = f"sum by ({RUN}) (rate({series('memwatch.sampler.ticks', scope=EVERYTHING, window='10m')}))"
    failures = series("memwatch.export.failures", scope=EVERYTHING, window="15m")
    undelivered = f"sum by ({RUN}, memwatch_exporter_name) (increase({failures}))"
    return [
        Alert(
            "MemwatchRunVanished",
            f"{before} == 1 unless {active}",
            before,
            "1m",
            "warning",
            "{{ $labels.job }} ({{ $labels.instance }}) stopped reporting while it ran.",
            "Its monitor reported it as active, and then nothing, not even its end. It was killed together with its monitor "
            "(node, pod or whole cgroup), or it is scraped and ended between two scrapes.",
        ),
        Alert(
            "MemwatchSourceFailing",
            f"min by ({RUN}, memwatch_source_name) ({source_up}) == 0",
            source_up,
            "5m",
            "warning",
            "The source {{ $labels.memwatch_source_name }} of {{ $labels.job }} ({{ $labels.instance }}) cannot be read.",
            "Its figures are missing; all others continue. Run otel-memwatch doctor on that machine to see its requirements.",
        ),
        Alert(
            "MemwatchSamplerBehind",
            f"{missed} / ({missed} + {ticks}) > {MISSED_TICKS:g}",
            f"{missed} / ({missed} + {ticks})",
            "10m",
            "info",
            "The monitor of {{ $labels.job }} ({{ $labels.instance }}) misses samples.",
            "{{ $value | humanizePercentage }} of its samples were not taken in time, so its curves have holes. Peaks from "
            "high-water marks are complete. The machine is overloaded, or a source is slow.",
        ),
        Alert(
            "MemwatchExportFailing",
            f"{undelivered} > 0",
            undelivered,
            "5m",
            "warning",
            "{{ $labels.job }} ({{ $labels.instance }}) cannot deliver its {{ $labels.memwatch_exporter_name }}.",
            "{{ $value | humanize }} batches failed within 15 minutes. The record on disk is complete: otel-memwatch replay "
            "sends it later.",
        ),
    ]


def _regression() -> Alert:
    today, week = f"max_over_time({PEAK}[1d])", f"max_over_time({PEAK}[7d] offset 1d)"
    return Alert(
        "MemwatchPeakRegression",
        f"{today} / {week} > {REGRESSION:g}",
        today,
        "15m",
        "info",
        "{{ $labels.job }} needs more memory than in the whole week before.",
        "Its largest peak of the last day is {{ $value | humanizePercentage }} of the largest of the seven days before. "
        "The Operations dashboard shows the operation and the version.",
    )


def recording_document() -> dict[str, object]:
    """The file of recording rules."""
    rules = [{"record": rule.name, "expr": rule.expression} for rule in records()]
    return {"groups": [{"name": "otel-memwatch.records", "interval": f"{RULE_SECONDS}s", "rules": rules}]}


def alerting_document(runbook: str) -> dict[str, object]:
    """The file of alerting rules, with links to `runbook` (a URL). It needs the recorded series."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity, "team": TEAM},
            "annotations": {
                "summary": alert.summary,
                "description": alert.description,
                "runbook_url": f"{runbook}#{alert.name.lower()}",
            },
        }
        for alert in alerts()
    ]
    return {"groups": [{"name": "otel-memwatch.alerts", "rules": rules}]}
