"""Delivery through the SDK's exporters: health of an endpoint, and retries, counts and shutdown of an exporter."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from otel_memwatch.monitor.telemetry.export_log import Attempts
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_memwatch.monitor.telemetry.export_log import Answer
    from otel_memwatch.monitor.telemetry.exporters import Exporter

_PARTS = {"metrics": "data points", "traces": "spans", "logs": "log records"}

IN_TIME = "did not take everything in time"

_PAUSE = 5.0
"""Seconds until a rejected batch of spans is sent again, if the endpoint names no time."""


class EndpointHealth:
    """Health of one endpoint, for all signals that it receives; each change is reported in one sentence.

    Args:
        name: readable name of the endpoint.
        hint: remedy, appended to the sentence of a failure.
        problem: called with the sentence of a failure.
        recovered: called with the sentence of a recovery.

    """

    def __init__(
        self, name: str, hint: str, problem: Callable[[str], None], recovered: Callable[[str], None]
    ) -> None:
        self._name = name
        self._hint = hint
        self._report_problem = problem
        self._report_recovery = recovered
        self._problems: dict[str, str] = {}
        self._words: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def failed(self, signal: str, problem: str) -> None:
        """Record that an export of `signal` failed."""
        with self._lock:
            # Metrics and spans that fail in the same way share one problem.
            known = self._closed or problem in self._problems.values()
            self._problems[signal] = problem
        if not known:
            self._report_problem(f"{self._name} {problem}{self._hint}")

    def delivered(self, signal: str) -> None:
        """Record that an export of `signal` arrived."""
        with self._lock:
            had = self._problems.pop(signal, None) is not None
            recovered = had and not self._problems and not self._closed
        if recovered:
            self._report_recovery(f"{self._name} takes telemetry again")

    def accepted_partly(self, signal: str, answer: Answer) -> None:
        """Report that the endpoint accepted an export of `signal` partially or with a warning."""
        with self._lock:
            known = self._closed or answer.words in self._words
            self._words.add(answer.words)
        if known:
            return
        if answer.rejected:
            what = f"rejected {answer.rejected} {_PARTS[signal]}"
            self._report_problem(f"{self._name} {what}" + (f": {answer.words}" if answer.words else ""))
        else:
            self._report_problem(f"{self._name} says: {answer.words}")

    def lost(self, spans: int) -> None:
        """Report the number of spans that were not delivered before the run ended."""
        if spans > 0:
            self._report_problem(f"{spans} spans were not delivered to {self._name}{self._hint}")

    def close(self) -> None:
        """Ignore exporters from now on: they are stopped."""
        with self._lock:
            self._closed = True


class ExporterDelivery:
    """An exporter and the component of the SDK that calls it.

    Args:
        signal: "metrics", "traces" or "logs".
        opened: the exporter; its `export` is wrapped.
        reopen: opens another exporter for the same endpoint; `None`: impossible.
        health: health of its endpoint.

    """

    def __init__(
        self, signal: str, opened: Exporter, reopen: Callable[[], Exporter] | None, health: EndpointHealth
    ) -> None:
        self.signal = signal
        self.health = health
        self.failures = 0
        self.arrived = 0
        """Spans that the endpoint has accepted."""
        self.shut_down: Callable[[float], object] = lambda _: None
        """Makes the last export within the given seconds; for metrics it shuts the SDK's reader down, with the exporter."""
        self._opened = opened
        self._reopen = reopen
        self._export: Callable[..., Any] = opened.exporter.export
        self._replaced = False
        """True if another exporter has replaced the first one."""
        self._attempts = Attempts(opened.answer)
        self._before_end: str | None = None
        """Problem of the endpoint before the end."""
        self._ending = threading.Event()
        self._closing: Thread | None = None
        # Set on the instance, to cover the exporters of both protocols and every plug-in.
        opened.exporter.export = self.export

    def export(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Export a batch; send spans again while the run continues and the endpoint may accept them later.

        Metrics are not sent again: the next export contains their values.
        """
        spans = len(batch) if self.signal == "traces" else 0
        while True:
            last, opened = self._ending.is_set(), self._opened
            result, answer = self._attempts.make(partial(self._export, batch, *args, **kwargs))
            if self._opened is not opened:
                # Another exporter has replaced it.
                if spans:
                    continue
                return result
            if answer.problem is None:
                self.arrived += spans
                self.health.delivered(self.signal)
                if answer.rejected or answer.words:
                    self.health.accepted_partly(self.signal, answer)
                return result
            if self.signal == "logs" and answer.knows_no_signal:
                return result
            self.failed(answer.problem)
            if not spans or not answer.transient or last:
                return result
            self._ending.wait(max(_PAUSE, answer.retry_after))

    def failed(self, problem: str) -> None:
        """Count an export that did not arrive and report why."""
        self.failures += 1
        self.health.failed(self.signal, problem)

    def begin_end(self, until: float) -> None:
        """Begin the SDK's shutdown, with its last export."""
        self._ending.set()
        self._before_end = self._attempts.problem()
        if self._reopen is not None and self._before_end is not None:
            # The exporter may wait for its next attempt longer than the time left. Only its shutdown wakes it. The
            # endpoint may be back for the last export, so another exporter makes it.
            with contextlib.suppress(Exception):  # e.g. the file of a certificate no longer exists
                waiting, self._opened = self._opened, self._reopen()
                self._replaced = True
                self._export = self._opened.exporter.export
                self._attempts = Attempts(self._opened.answer)
                waiting.exporter.shutdown()
        self._closing = Thread(self._close, f"otel-memwatch-{self.signal}", (until,))
        self._closing.start()

    def _close(self, until: float) -> None:
        with contextlib.suppress(Exception):  # undelivered spans are counted
            self.shut_down(max(0.0, until - time.monotonic()))
            if self._replaced or self.signal != "metrics":  # a reader of metrics shuts its exporter down
                self._opened.exporter.shutdown()

    def end(self, until: float) -> None:
        """Wait for the last export; abandon one that hangs."""
        assert self._closing is not None
        self._closing.join(max(0.0, until - time.monotonic()))
        if self._closing.is_alive():
            problem = self._attempts.problem() or self._before_end
            if problem or not self.arrived:  # otherwise it accepted some spans, and the rest is counted
                self.health.failed(self.signal, problem or IN_TIME)
            self.health.close()
            # Wakes an exporter that waits for its next attempt; one that hangs in a read ends at its timeout.
            Thread(self._opened.exporter.shutdown, "otel-memwatch-closing").start()
