"""Events of a run as log records: one for each OOM kill, a wide one at the end.

A fleet that keeps these records can drop the series of single runs. The last record contains:

* identity of the run
* result
* memory needed, and the limit
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_memwatch import catalog
from otel_memwatch._version import __version__
from otel_memwatch.run.spans import (
    RUN_ENDED,
    SCHEMA_URL,
    SCOPE,
    ended_sentence,
    run_attributes,
    run_failed,
    run_name,
)
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource

    from otel_memwatch.model import Ending
    from otel_memwatch.monitor.telemetry.delivery import ExporterDelivery
    from otel_memwatch.monitor.telemetry.frame import Frame
    from otel_memwatch.run import Peaks

OOM_KILL = "memwatch.oom_kill"


_OOM_KILLS = (catalog.MEMWATCH_CGROUP_MEMORY_EVENTS, (("memwatch.cgroup.memory.event.type", "oom_kill"),))
_LIMITS = (
    (catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, (("memwatch.cgroup.limit.type", "max"),)),
    (catalog.SYSTEM_MEMORY_LIMIT, ()),
)


class RunEvents:
    """Log records of one run, delivered by one exporter.

    Args:
        delivery: delivery through the exporter.
        run: fields of run.json known at the start.
        resource: resource of the records.
        context: context of the run's span; it links the records with the span.
    """

    def __init__(
        self,
        delivery: ExporterDelivery,
        run: Mapping[str, Any],
        resource: Resource,
        context: Context,
    ) -> None:
        self._delivery = delivery
        self._run = run
        self._resource = resource
        self._context = context
        self._scope = InstrumentationScope(SCOPE, __version__, SCHEMA_URL)
        self._oom_kills = 0
        self._last: ReadableLogRecord | None = None
        self._sending: Thread | None = None
        delivery.shut_down = self._send_last

    def look(self, frame: Frame, now: int) -> None:
        """Report processes that the OOM killer has killed since the last call; `now`: nanoseconds since 1970.

        Costs some microseconds; a separate thread sends the record.
        """
        (kills,) = frame.latest_values([_OOM_KILLS])
        if (
            kills is None
            or kills <= self._oom_kills
            or (self._sending is not None and self._sending.is_alive())
        ):
            return
        attributes = self._figures(frame) | {
            "memwatch.run.id": str(self._run.get("id") or ""),
            "memwatch.oom_kills": int(kills - self._oom_kills),
        }
        self._oom_kills = int(kills)
        record = self._record(
            OOM_KILL,
            f"The OOM killer ended a process of {run_name(self._run)}.",
            attributes,
            now,
            failed=True,
        )
        self._sending = Thread(self._delivery.export, "otel-memwatch-event", ([record],))
        self._sending.start()

    def end(self, frame: Frame, ending: Ending | None, peaks: Peaks | None, start: int, end: int) -> None:
        """Set the result of the run, in nanoseconds since 1970; the last delivery sends the record."""
        attributes = self._figures(frame) | run_attributes(self._run, ending, peaks)
        attributes["memwatch.run.duration"] = (end - start) / 1e9
        failed = run_failed(ending)
        body = ended_sentence(self._run, ending)
        self._last = self._record(RUN_ENDED, body, attributes, end, failed=failed)

    def _record(
        self, event: str, body: str, attributes: Mapping[str, Any], time: int, *, failed: bool
    ) -> ReadableLogRecord:
        severity = SeverityNumber.ERROR if failed else SeverityNumber.INFO
        record = LogRecord(
            timestamp=time,
            observed_timestamp=time,
            context=self._context,
            severity_text=severity.name,
            severity_number=severity,
            body=body,
            attributes=dict(attributes),
            event_name=event,
        )
        return ReadableLogRecord(record, self._resource, self._scope)

    def _figures(self, frame: Frame) -> dict[str, Any]:
        """Return the known limits at the latest sample, by metric name."""
        values = zip(_LIMITS, frame.latest_values(_LIMITS), strict=True)
        return {name: value for (name, _), value in values if value is not None}

    def _send_last(self, seconds: float) -> None:
        if self._sending is not None:
            self._sending.join(seconds)
        if self._last is not None:
            self._delivery.export([self._last])
