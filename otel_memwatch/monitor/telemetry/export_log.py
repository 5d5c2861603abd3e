"""Logs of exporters, and results of exports."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from otel_memwatch.runtime.typed import Any, NamedTuple

_GRPC_TRANSIENT = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED", "OUT_OF_RANGE", "DATA_LOSS"}
)  # fmt: skip
"""Status codes that permit a retry (OTLP specification, "Failures")."""


_UNKNOWN_SIGNAL = frozenset({404, 405, 501})


class Answer(NamedTuple):
    """Answer of an endpoint to one request."""

    problem: str | None = None
    """Reason of a rejection, as a phrase about the endpoint; `None`: accepted."""
    transient: bool = False
    """True if the endpoint may accept the same request later."""
    rejected: int = 0
    """Data points or spans that the endpoint rejected from an accepted request."""
    words: str = ""
    """Message of the endpoint about an accepted request: reason of a partial rejection, or a warning."""
    retry_after: float = 0.0
    """Seconds to wait before the next request, set by the endpoint."""
    status: int | None = None
    """HTTP status; `None`: no answer, or not over HTTP."""

    @property
    def knows_no_signal(self) -> bool:
        """Return whether the endpoint lacks the signal: many accept spans or metrics only, no log records."""
        return self.status in _UNKNOWN_SIGNAL or "UNIMPLEMENTED" in (self.problem or "")


class ExportLog(logging.Handler):
    """Log handler of OpenTelemetry's libraries, which would otherwise write to the target's terminal.

    An exporter without an HTTP session reports its failures only here, in the thread that called it.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._of_thread = threading.local()

    def catch(self) -> None:
        """Catch all logs of OpenTelemetry and its libraries; none of them writes to stderr from now on."""
        for name in ("opentelemetry", "urllib3", "requests", "grpc", "prometheus_client"):
            logger = logging.getLogger(name)
            if self not in logger.handlers:
                logger.addHandler(self)
            logger.propagate = False

    def hear_all(self, name: str) -> None:
        """Remove a logger's filter of repeated messages: two exporters may have the same problem."""
        logger = logging.getLogger(name)
        for repeated in list(logger.filters):
            logger.removeFilter(repeated)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record for the listener of this thread."""
        records = getattr(self._of_thread, "records", None)
        if records is not None:
            records.append(record)

    def listen(self) -> list[logging.LogRecord]:
        """Return a list that collects this thread's log records until the next call."""
        self._of_thread.records = []
        return self._of_thread.records  # type: ignore[no-any-return]


EXPORT_LOG = ExportLog()


def problem_logged(records: list[logging.LogRecord]) -> Answer:
    """Return the problem that an exporter has logged for a failed export or before a retry."""
    for record in reversed(records):
        # The gRPC exporter logs the status code, then its details as the last argument.
        arguments = record.args if isinstance(record.args, tuple) else ()
        for argument in arguments:
            if type(argument).__name__ == "StatusCode":
                code = str(getattr(argument, "name", ""))
                return Answer(_grpc_problem(code, str(arguments[-1])), code in _GRPC_TRANSIENT)
    text = records[-1].getMessage().partition("\n")[0][:200] if records else ""
    return Answer(f"failed: {text}" if text else "did not take what it was sent")


def _grpc_problem(code: str, details: str) -> str:
    if "Connection refused" in details:
        return "refuses connections"
    if code == "DEADLINE_EXCEEDED":
        return "does not answer in time"
    first = details.strip().partition("\n")[0][:200]
    return f"answers {code}" + (f": {first}" if first and first.isprintable() else "")


class Attempts:
    """Exports of one exporter and the answers of its endpoint.

    Args:
        answer: returns the last answer of the endpoint; `None`: only the exporter's log contains it.

    """

    def __init__(self, answer: Callable[[], Answer] | None) -> None:
        self._answer = answer
        self._records: list[logging.LogRecord] = []

    def make(self, export: Callable[[], Any]) -> tuple[Any, Answer]:
        """Return the result of an export and the endpoint's answer."""
        self._records = EXPORT_LOG.listen()
        result = export()
        answer = self._answer() if self._answer is not None else None
        if result.name == "SUCCESS":
            return result, answer or Answer()
        return result, answer if answer is not None and answer.problem is not None else problem_logged(
            self._records
        )

    def problem(self) -> str | None:
        """Return the endpoint's last problem, also while the exporter waits for a retry; `None`: none."""
        answer = self._answer() if self._answer is not None else None
        if answer is None and self._records:
            answer = problem_logged(self._records)
        return None if answer is None else answer.problem
