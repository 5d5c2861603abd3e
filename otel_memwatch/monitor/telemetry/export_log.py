"""What exporters write into their logs, and what an export came to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from otel_memwatch.runtime.typed import Any, NamedTuple

_GRPC_TRANSIENT = frozenset(
    {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "CANCELLED", "OUT_OF_RANGE", "DATA_LOSS"}
)  # fmt: skip
"""Codes after which a request may be sent again (OTLP specification, "Failures")."""


_UNKNOWN_SIGNAL = frozenset({404, 405, 501})


class Answer(NamedTuple):
    """What an endpoint answered to one request."""

    problem: str | None = None
    """Why it was not taken, as a phrase about the endpoint; `None`: it was."""
    transient: bool = False
    """Whether the same request may be taken later."""
    rejected: int = 0
    """Data points or spans of a request, otherwise taken, that the endpoint has not taken."""
    words: str = ""
    """What the endpoint said of a request that it took: why it rejected some of it, or a warning."""
    retry_after: float = 0.0
    """Seconds for which the endpoint wants to be left alone."""
    status: int | None = None
    """HTTP status; `None`: there was no answer, or it did not come by HTTP."""

    @property
    def knows_no_signal(self) -> bool:
        """Whether the endpoint does not know the signal at all: many take spans or metrics alone, and no log records."""
        return self.status in _UNKNOWN_SIGNAL or "UNIMPLEMENTED" in (self.problem or "")


class ExportLog(logging.Handler):
    """Takes the log of OpenTelemetry's libraries, which would otherwise reach the target's terminal.

    An exporter without an HTTP session has no other way to tell why it failed. It does so in the thread that called it.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._of_thread = threading.local()

    def catch(self) -> None:
        """From now on nothing of OpenTelemetry or what it uses writes to stderr by itself."""
        for name in ("opentelemetry", "urllib3", "requests", "grpc", "prometheus_client"):
            logger = logging.getLogger(name)
            if self not in logger.handlers:
                logger.addHandler(self)
            logger.propagate = False

    def hear_all(self, name: str) -> None:
        """Takes away what a logger leaves out as repeated: one exporter's problem may be the same as another's."""
        logger = logging.getLogger(name)
        for repeated in list(logger.filters):
            logger.removeFilter(repeated)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what is logged for whoever listens in this thread."""
        records = getattr(self._of_thread, "records", None)
        if records is not None:
            records.append(record)

    def listen(self) -> list[logging.LogRecord]:
        """The records that this thread will write from now on, until the next call; the list grows with them."""
        self._of_thread.records = []
        return self._of_thread.records  # type: ignore[no-any-return]


EXPORT_LOG = ExportLog()


def problem_logged(records: list[logging.LogRecord]) -> Answer:
    """What an exporter has written of an export that failed, or that it is about to try again."""
    for record in reversed(records):
        # The gRPC exporter logs the code of a status, and its details last.
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
    """The exports of one exporter, and what its endpoint answers to them.

    Args:
        answer: gives what the endpoint last answered; `None`: only the exporter's log tells.

    """

    def __init__(self, answer: Callable[[], Answer] | None) -> None:
        self._answer = answer
        self._records: list[logging.LogRecord] = []

    def make(self, export: Callable[[], Any]) -> tuple[Any, Answer]:
        """The result of an export, and the answer to it."""
        self._records = EXPORT_LOG.listen()
        result = export()
        heard = self._answer() if self._answer is not None else None
        if result.name == "SUCCESS":
            return result, heard or Answer()
        return result, heard if heard is not None and heard.problem is not None else problem_logged(
            self._records
        )

    def problem(self) -> str | None:
        """What the endpoint last did not like, also while the exporter waits to try again; `None`: nothing."""
        heard = self._answer() if self._answer is not None else None
        if heard is None and self._records:
            heard = problem_logged(self._records)
        return None if heard is None else heard.problem
