"""End of a run as an OTLP log record: one wide event, like the one that the monitor sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from otel_memwatch import catalog
from otel_memwatch.reports.otlp.values import Times, attributes, request
from otel_memwatch.run.spans import RUN_ENDED, ended_sentence, run_attributes, run_failed
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.run import RecordedRun

_INFO, _ERROR = 9, 17
"""Numbers of the protocol's severities."""

_LIMITS = {
    "cgroup_bytes": catalog.MEMWATCH_CGROUP_MEMORY_LIMIT,
    "host_bytes": catalog.SYSTEM_MEMORY_LIMIT,
}


def log_requests(run: RecordedRun) -> Iterator[Mapping[str, Any]]:
    """Yield one request with one record; nothing for a run in progress.

    Times of OOM kills are not recorded, only their number.
    """
    if run.state == "running":
        return
    times = Times(run)
    limits = {metric: run.limits.get(name) for name, metric in _LIMITS.items()}
    figures = {
        **{metric: value for metric, value in limits.items() if value is not None},
        **run_attributes(run.info, run.ending, run.peaks),
        "memwatch.run.duration": run.seconds,
    }
    failed = run_failed(run.ending)
    record = {
        "timeUnixNano": times.end,
        "observedTimeUnixNano": times.end,
        "severityNumber": _ERROR if failed else _INFO,
        "severityText": "ERROR" if failed else "INFO",
        "eventName": RUN_ENDED,
        "body": {"stringValue": ended_sentence(run.info, run.ending)},
        "attributes": attributes(figures),
    }
    if run.trace.get("trace_id"):
        record |= {"traceId": run.trace["trace_id"], "spanId": run.trace["span_id"]}
    yield request(run, "Logs", "logRecords", [record])
