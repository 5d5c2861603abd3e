"""Captured stacks as OTLP profiles (v1development), each sample linked to its span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from otel_memwatch.record.fields import is_span_id, is_trace_id
from otel_memwatch.reports.otlp.values import Json, Times, request
from otel_memwatch.run.stacks import weighted_stacks
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.record.stacks import StackFrame
    from otel_memwatch.run import RecordedRun

_GROWTH, _BYTES = "memory_growth", "By"


def profile_requests(run: RecordedRun) -> Iterator[Mapping[str, Any]]:
    """Yield one request. The first entry of each table of its dictionary is the zero value, as the format demands."""
    times = Times(run)
    strings: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[StackFrame, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    links: dict[tuple[str, str], int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value.encode("utf-8", "replace").decode(), len(strings))

    value_type = {"typeStrindex": text(_GROWTH), "unitStrindex": text(_BYTES)}
    samples: list[Json] = []
    for stack in weighted_stacks(run.stacks):
        calls = tuple(locations.setdefault(frame, len(locations) + 1) for frame in stack.frames)
        sample: Json = {
            "stackIndex": stacks.setdefault(calls, len(stacks) + 1),
            "values": [str(stack.bytes)],
            "timestampsUnixNano": [times.of(stack.capture.time)],
        }
        span = run.capture_spans.get(stack.capture)
        ids = (
            (run.trace.get("trace_id"), run.trace.get("span_id"))
            if span is None
            else (span.trace_id, span.span_id)
        )
        if is_trace_id(ids[0]) and is_span_id(ids[1]):
            sample["linkIndex"] = links.setdefault((str(ids[0]), str(ids[1])), len(links) + 1)
        samples.append(sample)
    located: list[Json] = []
    for frame in locations:
        function = functions.setdefault((frame.function, frame.file), len(functions) + 1)
        located.append({"lines": [{"functionIndex": function, "line": str(frame.line)}]})
    named: list[Json] = [
        {"nameStrindex": text(name), "filenameStrindex": text(file)} for name, file in functions
    ]
    profile = {
        "sampleType": value_type,
        "samples": samples,
        "timeUnixNano": times.start,
        "durationNano": str(round(run.seconds * 1e9)),
    }
    dictionary = {
        "mappingTable": [{}],
        "locationTable": [{}, *located],
        "functionTable": [{}, *named],
        "linkTable": [{}, *({"traceId": trace, "spanId": span} for trace, span in links)],
        "stringTable": list(strings),
        "attributeTable": [{}],
        "stackTable": [{}, *({"locationIndices": list(calls)} for calls in stacks)],
    }
    yield {**request(run, "Profiles", "profiles", [profile]), "dictionary": dictionary}
