"""What is said, counted and waited for around the SDK's exporters: one endpoint's health, one exporter at work."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otel_memwatch.monitor.telemetry.export_log import Attempts
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from otel_memwatch.model import RecordedOperation
    from otel_memwatch.monitor.telemetry.export_log import Answer
    from otel_memwatch.monitor.telemetry.exporters import Exporter
    from otel_memwatch.record.follower import Followed

_PARTS = {"metrics": "data points", "traces": "spans", "logs": "log records"}

IN_TIME = "did not take everything in time"

_PAUSE = 5.0
"""Seconds until a batch of spans is offered again to an endpoint that could not take it and names no time."""

_QUEUE = 2048
"""Spans that wait for their export where OTEL_BSP_MAX_QUEUE_SIZE says nothing: the specification's default."""

_POLL = 0.2
"""Seconds between two looks for operations."""

LAST_SPANS = 256
"""Spans that are put into a queue at the end, at most: those of operations still open, and the run's.

There is room for them in the SDK's queue also when it is full.
"""


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


class Follower(Protocol):
    """Gives the operations of a run as they are closed."""

    def poll(self) -> Followed:
        """Those since the last call, at most some thousand."""


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
        self.on_taken: Callable[[int], None] = lambda _: None
        """Called with the number of spans that an export has taken from the queue."""
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
        self.on_taken(spans)
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
            self.failures += 1
            self.health.failed(self.signal, answer.problem)
            if not spans or not answer.transient or last:
                return result
            self._ending.wait(max(_PAUSE, answer.retry_after))

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


class SpanQueue:
    """The SDK's batch processor of one exporter, and a thread that follows the run's operations for it.

    The thread reads on only while the queue has room. So nothing is dropped where operations come faster than an
    endpoint takes them: what waits is in the run directory. Each exporter has a queue of its own and waits alone.

    Args:
        delivery: of the exporter.
        exporter: of spans.
        follower: gives the operations as they are closed.
        span_of: makes the span of an operation; `None`: it is not to be exported.
        environ: where the OTEL_BSP_* variables stand.

    """

    def __init__(
        self,
        delivery: ExporterDelivery,
        exporter: Any,
        follower: Follower,
        span_of: Callable[[RecordedOperation], ReadableSpan | None],
        environ: Mapping[str, str],
    ) -> None:
        self.delivery = delivery
        self._follower = follower
        self._span_of = span_of
        self._room = threading.Condition()
        self._waiting = 0
        self._limit = _positive(environ.get("OTEL_BSP_MAX_QUEUE_SIZE")) or _QUEUE
        self._until = math.inf
        self._running = threading.Event()
        self._running.set()
        self._wake = threading.Event()
        batch = _positive(environ.get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")) or 512
        self._processor = BatchSpanProcessor(
            exporter,
            max_queue_size=self._limit + LAST_SPANS,
            max_export_batch_size=min(batch, self._limit),
        )
        delivery.on_taken = self._taken
        delivery.shut_down = lambda _: self._processor.shutdown()  # type: ignore[no-untyped-call]
        self._thread = Thread(self._follow, "otel-memwatch-spans")

    def start(self) -> None:
        """Begins to follow the operations."""
        self._thread.start()

    def pause(self) -> None:
        """Leaves the processor to others until `finish`: reads no more operations."""
        self._running.clear()

    def finish(self, until: float) -> None:
        """Reads on to the last operation, or until then (monotonic seconds)."""
        self._until = until
        self._running.set()
        self._wake.set()
        self._thread.join(max(0.0, until - time.monotonic()) + 0.1)

    def put(self, span: ReadableSpan) -> None:
        """Hands a span over."""
        with self._room:
            self._waiting += 1
        self._processor.on_end(span)

    @property
    def arrived(self) -> int:
        """Spans that the endpoint has taken."""
        return self.delivery.arrived

    def _follow(self) -> None:
        while self._read_on():
            pass

    def _read_on(self) -> bool:
        """Hands over what was closed since the last time; whether there is more to come."""
        ending = self._wake.is_set()
        found = self._follower.poll()
        for operation in found.closed:
            span = self._span_of(operation)
            if span is None:
                continue
            if not self._wait_for_room():
                return False
            self.put(span)
        if found.closed or found.opened:
            self._running.wait()
            return time.monotonic() < self._until
        if not ending:
            self._wake.wait(_POLL)
        return not ending

    def _wait_for_room(self) -> bool:
        """Whether there is room for another span before the time is up."""
        while True:
            self._running.wait()
            left = self._until - time.monotonic()
            if left <= 0:
                return False
            with self._room:
                if self._room.wait_for(lambda: self._waiting < self._limit, min(left, _POLL)):
                    return True

    def _taken(self, spans: int) -> None:
        with self._room:
            self._waiting -= spans
            self._room.notify_all()


def _positive(text: str | None) -> int | None:
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if value > 0 else None
