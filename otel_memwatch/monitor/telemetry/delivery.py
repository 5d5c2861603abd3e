"""What is said, counted and waited for around the SDK's exporters: one endpoint's health, one exporter at work."""

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
"""Seconds until a batch of spans is offered again to an endpoint that could not take it and names no time."""


class EndpointHealth:
    """What one endpoint, which may take metrics and spans, does with them; each change is told in one sentence.

    Args:
        where: the endpoint, for a person.
        hint: what can still be done, appended to the sentence of a failure.
        problem: called with the sentence of a failure.
        recovered: called with the sentence that everything is taken again.

    """

    def __init__(
        self, where: str, hint: str, problem: Callable[[str], None], recovered: Callable[[str], None]
    ) -> None:
        self._where = where
        self._hint = hint
        self._tell_problem = problem
        self._tell_recovered = recovered
        self._problems: dict[str, str] = {}
        self._words: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()

    def failed(self, signal: str, problem: str) -> None:
        """An export of `signal` did not arrive."""
        with self._lock:
            # Metrics and spans that fail in the same way have one problem.
            known = self._closed or problem in self._problems.values()
            self._problems[signal] = problem
        if not known:
            self._tell_problem(f"{self._where} {problem}{self._hint}")

    def delivered(self, signal: str) -> None:
        """An export of `signal` arrived."""
        with self._lock:
            had = self._problems.pop(signal, None) is not None
            recovered = had and not self._problems and not self._closed
        if recovered:
            self._tell_recovered(f"{self._where} takes telemetry again")

    def said(self, signal: str, answer: Answer) -> None:
        """The endpoint has taken an export of `signal`, but not all of it, or with a warning."""
        with self._lock:
            known = self._closed or answer.words in self._words
            self._words.add(answer.words)
        if known:
            return
        if answer.rejected:
            what = f"rejected {answer.rejected} {_PARTS[signal]}"
            self._tell_problem(f"{self._where} {what}" + (f": {answer.words}" if answer.words else ""))
        else:
            self._tell_problem(f"{self._where} says: {answer.words}")

    def lost(self, spans: int) -> None:
        """The run has ended before so many spans were delivered."""
        if spans > 0:
            self._tell_problem(f"{spans} spans were not delivered to {self._where}{self._hint}")

    def close(self) -> None:
        """What exporters say from now on is of no account: they have been stopped."""
        with self._lock:
            self._closed = True


class ExporterDelivery:
    """An exporter of metrics or spans, and the SDK's part that calls it.

    Args:
        signal: "metrics", "traces" or "logs".
        opened: the exporter, whose `export` is watched from now on.
        reopen: opens another for the same endpoint; `None`: there is no other.
        health: of its endpoint.

    """

    def __init__(
        self, signal: str, opened: Exporter, reopen: Callable[[], Exporter] | None, health: EndpointHealth
    ) -> None:
        self.signal = signal
        self.health = health
        self.failures = 0
        self.arrived = 0
        """Spans that the endpoint has taken."""
        self.shut_down: Callable[[float], object] = lambda _: None
        """Shuts the SDK's part down, after a last export, in so many seconds."""
        self._opened = opened
        self._reopen = reopen
        self._export: Callable[..., Any] = opened.exporter.export
        self._replaced = False
        """Whether the exporter is not the one that the SDK's part knows, and shuts down."""
        self._attempts = Attempts(opened.answer)
        self._before_end: str | None = None
        """What the endpoint did not like before the end."""
        self._ending = threading.Event()
        self._closing: Thread | None = None
        # On the instance: so it works for the exporters of both protocols and for any that is installed.
        opened.exporter.export = self.export

    def export(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Exports; offers a batch of spans again as long as the run goes on and the endpoint may take it later.

        Metrics are not offered again: the next export holds what this one did.
        """
        spans = len(batch) if self.signal == "traces" else 0
        while True:
            last, opened = self._ending.is_set(), self._opened
            result, answer = self._attempts.make(partial(self._export, batch, *args, **kwargs))
            if self._opened is not opened:
                # It has been shut down to make way for another.
                if spans:
                    continue
                return result
            if answer.problem is None:
                self.arrived += spans
                self.health.delivered(self.signal)
                if answer.rejected or answer.words:
                    self.health.said(self.signal, answer)
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
        """Begins the SDK's shutdown, with its last export."""
        self._ending.set()
        self._before_end = self._attempts.problem()
        if self._reopen is not None and self._before_end is not None:
            # The exporter may be waiting for its next attempt, for longer than there is time. It can only be woken by its
            # shutdown, so the last export, for which the endpoint may be back, is another's.
            with contextlib.suppress(Exception):  # a certificate's file may be gone
                waiting, self._opened = self._opened, self._reopen()
                self._replaced = True
                self._export = self._opened.exporter.export
                self._attempts = Attempts(self._opened.answer)
                waiting.exporter.shutdown()
        self._closing = Thread(self._close, f"otel-memwatch-{self.signal}", (until,))
        self._closing.start()

    def _close(self, until: float) -> None:
        with contextlib.suppress(Exception):  # what it has not delivered is counted
            self.shut_down(max(0.0, until - time.monotonic()))
            if self._replaced:
                self._opened.exporter.shutdown()

    def end(self, until: float) -> None:
        """Waits for the last export; one that hangs is left behind."""
        assert self._closing is not None
        self._closing.join(max(0.0, until - time.monotonic()))
        if self._closing.is_alive():
            problem = self._attempts.problem() or self._before_end
            if problem or not self.arrived:  # else it took some, and what it did not take is counted
                self.health.failed(self.signal, problem or IN_TIME)
            self.health.close()
            # Wakes an exporter that waits for its next attempt; one that hangs in a read is left to its timeout.
            Thread(self._opened.exporter.shutdown, "otel-memwatch-closing").start()
