"""Verdict of a run as one line of JSON, for programs that start programs: `wrap --summary json`, schema 1.

Fields may be added; none is removed or changes its meaning. Bytes and seconds; `null` is "unknown".
"""

from __future__ import annotations

import os

from otel_memwatch.record.fields import mapping
from otel_memwatch.record.format import PAGE_FILE, REPORT_FILE
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.model import Ending
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

SCHEMA = 1


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - the signature of all reports
    """Write the line, in ASCII."""
    out.write(verdict_line(run).encode("ascii") + b"\n")


def verdict_line(run: RecordedRun) -> str:
    """Return the line without its end."""
    return strict_json.dumps(document(run), ensure_ascii=True)


def document(run: RecordedRun) -> dict[str, Any]:
    """Return the document, with keys in the order of the contract."""
    limit = run.fields.limit
    tree = run.peaks.tree
    return {
        "schema": SCHEMA,
        "verdict": run.verdict,
        "run": {"id": run.id, "name": run.name, "seconds": round(run.seconds, 6)},
        "ended": _ended(run.ending),
        "peaks": run.peaks.to_json(),
        "largest": _largest(run),
        "operation": limit.operation or (None if tree is None else tree.operation),
        "limit": dict(mapping(run.info.get("limit"))) or None,
        "over_budget": [str(entry.get("figure")) for entry in run.budgets if entry.get("verdict") == "over"],
        "problems": [text for _, text in run.marks],
        "paths": {
            "run": os.path.abspath(run.directory),
            "report": _existing(run, REPORT_FILE),
            "page": _existing(run, PAGE_FILE),
        },
    }


def unrecorded(ending: Ending, verdict: str) -> str:
    """Return the line of a run that was not recorded: its figures are unknown."""
    peaks = dict.fromkeys(("main", "process", "tree", "cgroup", "hugetlb", "swap"))
    return strict_json.dumps(
        {
            "schema": SCHEMA,
            "verdict": verdict,
            "run": None,
            "ended": _ended(ending),
            "peaks": {**peaks, "gpu": {}, "gpu_tree": {}, "gpu_used": {}},
            "largest": [],
            "operation": None,
            "limit": None,
            "over_budget": [],
            "problems": ["nothing is recorded"],
            "paths": {"run": None, "report": None, "page": None},
        }
    )


def _ended(ending: Ending) -> dict[str, Any]:
    return {
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "oom_kills": ending.oom_kills,
        "reason": ending.reason,
    }


def _largest(run: RecordedRun) -> list[dict[str, Any]]:
    """Return the largest processes when the run was ended; otherwise the largest one of the whole run."""
    holders = run.fields.verdict.largest or run.fields.limit.largest
    if holders:
        return [one._asdict() for one in holders]
    peak = run.peaks.process
    if peak is None or peak.pid is None:
        return []
    if run.totals.get("processes") == 1:  # no need to read the records of processes
        name = os.path.basename(run.command[0]) if run.command else None
    else:
        name = next((one.command for one in run.processes if one.pid == peak.pid and one.command), None)
    return [{"pid": peak.pid, "command": name, "bytes": peak.bytes}]


def _existing(run: RecordedRun, name: str) -> str | None:
    """Return the path of a file that exists, or that will within a second of the end."""
    path = os.path.abspath(f"{run.directory}/{name}")
    return path if run.settings.get("report") or os.path.exists(path) else None
