"""Operations as data for the page: rows of its table, groups by name, and bars in lanes."""

from __future__ import annotations

from otel_memwatch.reports import phrases
from otel_memwatch.reports.lanes import lay_out
from otel_memwatch.run.operation_names import series_name
from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any
from otel_memwatch.text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_memwatch.model import Peak
    from otel_memwatch.run import OperationFigures, RecordedRun
    from otel_memwatch.run.operation_digest import OperationDigest

ROWS = 2000
"""Most rows: the largest and longest operations, and the one of the run's peak."""
_GROUPS = 300
_LANES = 24
_PARTS = 4000
"""Shortest bars, as a part of the time axis; shorter ones of a lane are joined up to this length."""
_BARS = 4000
_NAME = 200
_NAMES = 1024
"""Most names with a cached short form."""


def operations_data(run: RecordedRun) -> dict[str, Any] | None:
    """Return rows, groups, bars and lanes; `None` if the program marked no operation."""
    if run.too_many_operations:
        return _digest_data(run, run.operation_digest)
    listed = run.operations
    if not listed:
        return None
    rows = list(range(len(listed)))
    if len(listed) > ROWS:
        by_size = sorted(rows, key=lambda i: (not listed[i].sets_run_peak, -_need(listed[i]), i))
        by_time = sorted(rows, key=lambda i: (-listed[i].seconds, i))
        rows = sorted({*by_size[: ROWS // 2], *by_time[: ROWS // 2]})
    row_of = {index: row for row, index in enumerate(rows)}
    return {
        "total": len(listed),
        "rows": [_row(listed[index], row_of) for index in rows],
        "groups": _groups(listed),
        **_lanes(run, listed, row_of),
    }


def _digest_data(run: RecordedRun, digest: OperationDigest) -> dict[str, Any]:
    """Return the largest and the open operations, and totals by name, of a run with too many to list."""
    shown = {
        (figures.operation.pid, figures.operation.id, figures.operation.start): figures
        for figures in (*digest.open, *digest.largest)
    }
    listed = sorted(shown.values(), key=lambda figures: (figures.start, -figures.end))
    return {
        "total": digest.number,
        "rows": [_row(figures, {}) for figures in listed],
        "groups": [
            {
                "name": shorten(totals.name, _NAME),
                "times": totals.number,
                "seconds": round(totals.seconds, 6),
                "longest": round(totals.longest, 6),
                "largest": -1 if totals.largest_peak is None else totals.largest_peak,
                **({} if totals.cpu_seconds is None else {"cpu": totals.cpu_seconds}),
            }
            for totals in digest.names[:_GROUPS]
        ],
        **_lanes(run, listed, {index: index for index in range(len(listed))}),
    }


def _need(figures: OperationFigures) -> int:
    """Return the best estimate in bytes, or the figure if it has none; -1: unknown."""
    peak = figures.tree_peak or figures.operation.peak
    return -1 if peak is None else peak.bytes if peak.estimate is None else peak.estimate


def _row(figures: OperationFigures, row_of: Mapping[int, int]) -> dict[str, Any]:
    operation = figures.operation
    totals, attributes = figures.totals, operation.attributes
    row = {
        "name": _shown(operation.name),
        "series": series if (series := _series(operation.name)) != operation.name else None,
        "pid": operation.pid,
        "start": round(figures.start, 6),
        "seconds": round(figures.seconds, 6),
        "depth": figures.depth,
        "parent": None if figures.parent is None else row_of.get(figures.parent),
        "peak": _peak(operation.peak),
        "tree": _peak(figures.tree_peak),
        "change": figures.delta_bytes,
        "cpu": totals.get("tree_cpu_seconds", totals.get("cpu_seconds")),
        "read": totals.get("tree_read_bytes", totals.get("read_bytes")),
        "write": totals.get("tree_write_bytes", totals.get("write_bytes")),
        "status": None if operation.status == "ok" else operation.status,
        "error": clean(operation.error)[:_NAME] if operation.error else None,
        "top": figures.sets_run_peak or None,
        "attributes": shorten(", ".join(f"{k}={v}" for k, v in attributes.items()), _NAME) or None
        if attributes
        else None,
    }
    return {name: value for name, value in row.items() if value is not None}


@lru_cache(_NAMES)
def _shown(name: str) -> str:
    return shorten(name, _NAME)


@lru_cache(_NAMES)
def _series(name: str) -> str:
    """Return the name without its number: "epoch" for "epoch 12"."""
    return shorten(series_name(name), _NAME)


def _peak(peak: Peak | None) -> list[Any] | None:
    """Return bytes, certainty and both bounds."""
    return None if peak is None else [peak.bytes, peak.certainty.value, peak.low, peak.high]


def _groups(listed: Sequence[OperationFigures]) -> list[dict[str, Any]]:
    """Return totals of repeated names, without numbers at their ends, the longest total first."""
    found: dict[str, list[OperationFigures]] = {}
    for figures in listed:
        found.setdefault(_series(figures.operation.name), []).append(figures)
    repeated = sorted(
        ((name, group) for name, group in found.items() if len(group) > 1),
        key=lambda item: -sum(figures.seconds for figures in item[1]),
    )
    shown = []
    for name, group in repeated[:_GROUPS]:
        cpu = [figures.totals.get("tree_cpu_seconds", figures.totals.get("cpu_seconds")) for figures in group]
        changes = [figures.delta_bytes for figures in group if figures.delta_bytes is not None]
        resident = [figures.operation.peak.bytes for figures in group if figures.operation.peak]
        row: dict[str, Any] = {
            "name": name,
            "times": len(group),
            "seconds": round(sum(figures.seconds for figures in group), 6),
            "longest": round(max(figures.seconds for figures in group), 6),
            "largest": max(map(_need, group)),
        }
        # Unknown figures have no key.
        if resident:
            row["resident"] = max(resident)
        if known := [value for value in cpu if value is not None]:
            row["cpu"] = round(sum(known), 6)
        if changes:
            row["change"] = max(changes)
        shown.append(row)
    return shown


def _lanes(run: RecordedRun, listed: Sequence[OperationFigures], row_of: Mapping[int, int]) -> dict[str, Any]:
    """Return labels of the lanes, the number of operations without a lane, and bars.

    A bar is lane, start, duration, name, number of operations, row (-1: none), flags (1 failed, 2 open, 4 peak). The name
    of several operations is empty unless it is common to all.
    """
    shortest = run.seconds / _PARTS
    lanes = lay_out(listed, shortest, run.ranks, most=_LANES, longest=shortest)
    owners = lanes.owners
    names = phrases.lane_owners(run, owners) if len(set(owners)) > 1 else {}
    labels = [
        names.get(owner, "") if not lane or owners[lane - 1] != owner else ""
        for lane, owner in enumerate(owners)
    ]
    bars = []
    for bar in sorted(lanes.bars, key=lambda bar: bar.first)[:_BARS]:
        name, row = bar.names[0], row_of.get(bar.first, -1)
        if bar.number > 1:
            name, row = bar.series if len(bar.names) == 1 else "", -1
        flags = bar.failed + 2 * bar.open + 4 * bar.sets_peak
        start, seconds = round(bar.start, 6), round(bar.end - bar.start, 6)
        bars.append([bar.lane, start, seconds, _shown(name), bar.number, row, flags])
    return {"lanes": labels, "hidden": lanes.hidden, "bars": bars}
