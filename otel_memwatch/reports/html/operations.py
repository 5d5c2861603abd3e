"""Operations as data for the page: rows of its table, groups by name, and bars in lanes."""

from __future__ import annotations

import math
from functools import lru_cache

from otel_memwatch.reports import phrases
from otel_memwatch.run.operation_names import series_name
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
"""Shortest bars, as a part of the time axis; shorter ones of a lane are merged."""
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
    rows = _chosen(listed)
    row_of: dict[int | None, int] = {index: row for row, index in enumerate(rows)}
    lanes = _Lanes(run, listed)
    return {
        "total": len(listed),
        "rows": [
            _row(listed[index], lanes.lane_of[index], row_of.get(listed[index].parent)) for index in rows
        ],
        "groups": _groups(listed),
        "lanes": lanes.labels,
        "hidden": lanes.hidden,
        "bars": lanes.bars(row_of, run.seconds / _PARTS),
    }


def _digest_data(run: RecordedRun, digest: OperationDigest) -> dict[str, Any]:
    """Return the largest and the open operations, and totals by name, of a run with too many to list."""
    shown = {
        (figures.operation.pid, figures.operation.id, figures.operation.start): figures
        for figures in (*digest.open, *digest.largest)
    }
    listed = sorted(shown.values(), key=lambda figures: (figures.start, -figures.end))
    lanes = _Lanes(run, listed)
    row_of: dict[int | None, int] = {index: index for index in range(len(listed))}
    return {
        "total": digest.number,
        "rows": [_row(figures, lanes.lane_of[index], None) for index, figures in enumerate(listed)],
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
        "lanes": lanes.labels,
        "hidden": lanes.hidden,
        "bars": lanes.bars(row_of, run.seconds / _PARTS),
    }


def _chosen(listed: Sequence[OperationFigures]) -> list[int]:
    """Return the indices of the operations that get a row, in order of time."""
    if len(listed) <= ROWS:
        return list(range(len(listed)))
    by_size = sorted(range(len(listed)), key=lambda i: (not listed[i].sets_run_peak, -_need(listed[i]), i))
    by_time = sorted(range(len(listed)), key=lambda i: (-listed[i].seconds, i))
    return sorted({*by_size[: ROWS // 2], *by_time[: ROWS // 2]})


def _need(figures: OperationFigures) -> int:
    peak = figures.tree_peak or figures.operation.peak
    return -1 if peak is None else peak.bytes


def _row(figures: OperationFigures, lane: int | None, parent: int | None) -> dict[str, Any]:
    operation = figures.operation
    totals, attributes = figures.totals, operation.attributes
    row = {
        "name": _shown(operation.name),
        "series": series if (series := _series(operation.name)) != operation.name else None,
        "pid": operation.pid,
        "start": round(figures.start, 6),
        "seconds": round(figures.seconds, 6),
        "depth": figures.depth,
        "lane": lane,
        "parent": parent,
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


class _Lanes:
    """Lane of each operation: lanes of a process are adjacent, and nested operations are below the enclosing one."""

    def __init__(self, run: RecordedRun, listed: Sequence[OperationFigures]) -> None:
        self._listed = listed
        self.lane_of: list[int | None] = [None] * len(listed)
        self.labels: list[str] = []
        self.hidden = 0
        by_pid: dict[int, list[int]] = {}
        for index, figures in enumerate(listed):
            by_pid.setdefault(figures.operation.pid, []).append(index)
        owners = phrases.lane_owners(run, by_pid)
        for pid in sorted(by_pid, key=lambda pid: run.ranks.get(pid, math.inf)):
            self._lay_out(by_pid[pid], owners[pid] if len(by_pid) > 1 else "")

    def _lay_out(self, members: Sequence[int], label: str) -> None:
        first = len(self.labels)
        busy_until: list[float] = []
        for index in members:
            figures = self._listed[index]
            around = None if figures.parent is None else self.lane_of[figures.parent]
            lane = 0 if around is None else max(0, around - first + 1)
            while lane < len(busy_until) and busy_until[lane] > figures.start:
                lane += 1
            if first + lane >= _LANES:
                self.hidden += 1
                continue
            while lane >= len(busy_until):
                busy_until.append(0.0)
                self.labels.append("" if len(busy_until) > 1 else label)
            busy_until[lane] = max(figures.end, figures.start)
            self.lane_of[index] = first + lane

    def bars(self, row_of: Mapping[int | None, int], shortest: float) -> list[list[Any]]:
        """Return lane, start, duration, name, number of operations, row (-1: none), flags (1 failed, 2 open, 4 peak)."""
        last: dict[int, list[Any]] = {}
        found: list[list[Any]] = []
        for index, figures in enumerate(self._listed):
            lane = self.lane_of[index]
            if lane is None:
                continue
            status = figures.operation.status
            flags = (status == "error") + 2 * (status == "open") + 4 * figures.sets_run_peak
            bar = last.get(lane)
            short = figures.seconds < shortest
            if (
                bar is not None and short and bar[2] < shortest and not (flags | bar[6]) & 4
                and figures.start - bar[1] - bar[2] < shortest
            ):  # fmt: skip
                bar[2] = round(max(bar[1] + bar[2], figures.end) - bar[1], 6)
                if bar[3] != _shown(figures.operation.name):
                    bar[3] = ""
                bar[4] += 1
                bar[5], bar[6] = -1, bar[6] | flags
                continue
            name = _shown(figures.operation.name)
            last[lane] = bar = [
                lane, round(figures.start, 6), round(figures.seconds, 6), name, 1, row_of.get(index, -1), flags
            ]  # fmt: skip
            found.append(bar)
        return found[:_BARS]
