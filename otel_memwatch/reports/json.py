"""Figures of a run as JSON: the contract with other programs, schema 1.

Fields may be added; none is removed or changes its meaning. Bytes and seconds; `null` is "unknown".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from itertools import islice

from otel_memwatch.record.fields import mapping
from otel_memwatch.reports import phrases
from otel_memwatch.reports.sections.growth import words as growth_words
from otel_memwatch.run.asked import asked
from otel_memwatch.run.figures import predictions
from otel_memwatch.run.heaps import written_heap
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO
from otel_memwatch.truth.heap import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.model import Peak
    from otel_memwatch.record.stacks import Capture, StackFrame
    from otel_memwatch.record.torch_snapshots import TorchSnapshot
    from otel_memwatch.reports import Options
    from otel_memwatch.run import OperationFigures, ProcessFigures, RecordedRun
    from otel_memwatch.truth.heap import HeapReading

SCHEMA = 1

_SECONDS = "seconds"
_TOGETHER = 100
"""Operations or processes that are written at once, in less time than one by one."""
_MANY = 1000
"""Operations or processes above which `msgspec` saves more time than its import takes."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:
    """Write the document as ASCII, indented by `options["indent"]`.

    Parts are written one after the other, and operations in batches: a run may have more of them than fit into memory.
    """
    indent = options.get("indent", 2)
    newline, pad = ("", "") if indent is None else ("\n", " " * indent)
    text = _text(indent)
    separator = "{" + newline
    for key, value in _parts(run):
        out.write(f"{separator}{pad}{strict_json.dumps(key)}: ".encode("ascii"))
        separator = ("," if newline else ", ") + newline
        if not isinstance(value, Iterator):
            out.write(text(value, 1).encode("ascii"))
            continue
        opening, closing = f"[{newline}", f"{newline}{pad}]"
        before, number = opening, 0
        while some := list(islice(value, _TOGETHER)):
            number += len(some)
            if number > _MANY and indent is not None:
                text = _fast_text(indent)
            listed = text(some, 1)
            out.write(f"{before}{listed[len(opening) : -len(closing)]}".encode("ascii"))
            before = separator
        out.write((closing if number else "[]").encode("ascii"))
    out.write(f"{newline}}}\n".encode("ascii"))


def _text(indent: int | None) -> Callable[[Any, int], str]:
    """Return a function that writes a value at a depth of the document."""
    if indent is None:
        return lambda value, _: strict_json.dumps(value, ensure_ascii=True)
    # JSON escapes line breaks in strings, so each newline is layout.
    return lambda value, depth: strict_json.dumps(value, indent=indent, ensure_ascii=True).replace(
        "\n", "\n" + " " * indent * depth
    )


def _fast_text(indent: int) -> Callable[[Any, int], str]:
    """Return what `_text` returns, faster: `json` indents in Python, `msgspec` in C."""
    try:
        from msgspec.json import format as indented
    except ImportError:
        return _text(indent)

    def text(value: Any, depth: int) -> str:
        written: str = indented(strict_json.dumps(value, ensure_ascii=True), indent=indent)
        return written.replace("\n", "\n" + " " * indent * depth)

    return text


def document(run: RecordedRun) -> dict[str, Any]:
    """Return the document as a dictionary, with keys in the order of the contract."""
    return {key: list(value) if isinstance(value, Iterator) else value for key, value in _parts(run)}


def _parts(run: RecordedRun) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of the document; lists that may be long are iterators."""
    yield "schema", SCHEMA
    yield "run", _run(run)
    ending = ("exit_code", "signal", "oom_kills", "reason")
    yield "ended", {name: getattr(run.ending, name) for name in ending}
    yield "peaks", run.peaks.to_json()
    yield "totals", _totals(run.totals)
    yield "quality", _totals(run.quality)
    yield "operations", map(_operation, run.iterate_operations())
    yield "processes", map(_process, run.processes)
    yield (
        "uncovered",
        [
            {
                "place": gap.place,
                "start": _rounded(gap.start),
                "seconds": _rounded(gap.end - gap.start),
                "delta_bytes": gap.change,
            }
            for gap in run.uncovered
        ],
    )
    yield "running_at_peak", _running(run)
    yield "made_of", _made_of(run)
    yield "stacks", [_captured(run, capture) for capture in run.stacks.captures]
    yield "torch_snapshots", [_torch_snapshot(run, one) for one in run.torch_snapshots]
    limit = phrases.limit(run)
    yield "limit", None if limit is None else {"bytes": limit.bytes, "whose": limit.whose}
    yield (
        "trouble",
        {
            "marks": [{"at": _rounded(at), "text": text} for at, text in run.marks],
            "damage": list(run.damage),
            "quirks": list(run.quirks),
        },
    )
    yield "hard_limit", dict(mapping(run.info.get("limit"))) or None
    yield "verdict", run.verdict
    yield "budgets", [dict(entry) for entry in run.budgets]
    stalls = run.stalls
    names = ("memory", "disk", "cpu", "contention")
    yield "stalled", {name: getattr(stalls, name) for name in names}
    yield "stalls", stalls.to_json()
    yield "findings", [{**one._asdict(), "text": growth_words(run, one)} for one in run.findings]
    yield "heaps", [_heap(run, one) for one in run.heaps]
    yield "asked", asked(run)._asdict()
    files = run.fields.files
    largest = [one._asdict() for one in files.largest]
    yield "files", None if files.number is None else {**files._asdict(), "largest": largest}
    predicted = {
        one.name: {"predicted": one.predicted, "measured": one.measured, "ratio": _rounded(one.ratio)}
        for one in predictions(run)
    }
    yield "predicted", predicted
    yield "sources", {name: dict(health) for name, health in run.sources.items()}


def _run(run: RecordedRun) -> dict[str, Any]:
    started = None
    if run.started_wall:
        with contextlib.suppress(OverflowError, OSError, ValueError):
            whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(run.started_wall))
            started = f"{whole}.{int(run.started_wall % 1 * 1000):03d}Z"
    return {
        "id": run.id,
        "command": list(run.command),
        "started": started,
        "seconds": _rounded(run.seconds),
        "host": dict(run.host),
        "state": run.state,
        "name": run.name,
        "tags": dict(run.tags),
        "cwd": run.cwd,
        "mode": run.mode,
        "path": str(run.path),
        "trace_id": run.trace.get("trace_id"),
        "span_id": run.trace.get("span_id"),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _totals(totals: Mapping[str, float | None]) -> dict[str, float | int | None]:
    """Return counts and bytes as integers, even if the record holds floats."""
    found: dict[str, float | int | None] = dict.fromkeys(totals)
    for name, value in totals.items():
        if value is not None:
            whole = not name.endswith((_SECONDS, "interval", "hz", "gap"))
            found[name] = int(value) if whole and float(value).is_integer() else round(value, 6)
    return found


def _peak(peak: Peak | None) -> dict[str, object] | None:
    return None if peak is None else peak.to_json()


def _operation(figures: OperationFigures) -> dict[str, Any]:
    operation = figures.operation
    return {
        "name": operation.name,
        "trace_id": operation.trace_id,
        "span_id": operation.span_id,
        "parent_span_id": operation.parent_span_id,
        "pid": operation.pid,
        "start": _rounded(figures.start),
        "seconds": _rounded(figures.seconds),
        "status": operation.status,
        "peak": _peak(operation.peak),
        "tree_peak": _peak(figures.tree_peak),
        "delta_bytes": figures.delta_bytes,
        "totals": _totals(figures.totals),
        "stalled": dict(figures.stalled),
        "id": operation.id,
        "parent": figures.parent,
        "depth": figures.depth,
        "sets_run_peak": figures.sets_run_peak,
        "start_bytes": operation.start_bytes,
        "end_bytes": operation.end_bytes,
        "error": operation.error,
        "thread": operation.thread,
        "attributes": dict(operation.attributes),
        "gpu": dict(operation.gpu),
    }


def _running(run: RecordedRun) -> dict[str, Any] | None:
    found = run.peak_stack
    if found is None:
        return None
    return {
        "at": _rounded(found.capture.time - run.started),
        "pid": found.capture.pid,
        "thread": found.thread.id,
        "own": None if found.own is None else _frame(found.own),
        "innermost": _frame(found.thread.frames[0]),
        "reached": found.reached,
    }


def _made_of(run: RecordedRun) -> dict[str, Any] | None:
    found = run.made_of
    if found is None:
        return None
    return {
        "at": _rounded(found.time - run.started),
        "level_bytes": found.level,
        "tree": [part._asdict() for part in found.tree],
        "processes": [
            {"pid": one.pid, "parts": [part._asdict() for part in one.parts]} for one in found.processes
        ],
        "unread_processes": found.unread,
    }


def _heap(run: RecordedRun, one: HeapReading) -> dict[str, Any]:
    fields = written_heap(one)
    fields["at"] = _rounded(fields.pop("time") - run.started)
    for books in one.allocators:
        fields["allocators"][books.name] |= dict(
            zip(("resident", "low", "high"), free_memory(one, books), strict=True)
        )
    return fields


def _torch_snapshot(run: RecordedRun, one: TorchSnapshot) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "path": str(run.path / one.file) if one.file else None,
        "pid": one.pid,
        "rank": one.rank,
        "at": None if one.time is None else _rounded(one.time - run.started),
        "reserved_bytes": one.reserved,
        "device": one.device,
        "requested_bytes": one.requested,
        "problem": one.problem or None,
    }


def _captured(run: RecordedRun, capture: Capture) -> dict[str, Any]:
    span = run.capture_spans.get(capture)
    return {
        "at": _rounded(capture.time - run.started),
        "seconds": _rounded(capture.seconds),
        "level_bytes": capture.level,
        "pid": capture.pid,
        "command": capture.command,
        "before_bytes": capture.before,
        "after_bytes": capture.after,
        "grown_bytes": capture.grown,
        "means": capture.means,
        "operation": None if span is None else span.name,
        "trace_id": run.trace.get("trace_id") if span is None else span.trace_id,
        "span_id": run.trace.get("span_id") if span is None else span.span_id,
        "threads": [
            {**thread._asdict(), "frames": list(map(_frame, thread.frames))} for thread in capture.threads
        ],
    }


def _frame(frame: StackFrame) -> dict[str, Any]:
    return {"function": frame.function, "file": frame.file, "line": frame.line or None}


def _process(process: ProcessFigures) -> dict[str, Any]:
    fields = process._asdict()
    fields["argv"] = None if process.argv is None else list(process.argv)
    fields["peak"] = _peak(process.peak)
    for name in ("start", "end", "cpu_seconds"):
        fields[name] = _rounded(fields[name])
    return fields
