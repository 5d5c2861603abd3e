"""Live telemetry of a run: scraped by Prometheus, pushed by OTLP, spans, and spans received.

Importing this package imports nothing heavy. If any telemetry is requested, `Telemetry` starts a thread, which loads
OpenTelemetry's SDK. Nothing here raises into the session or blocks the sampler.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otel_memwatch.errors import Unavailable, describe
from otel_memwatch.monitor.telemetry.settings import TelemetryConfig, wanted
from otel_memwatch.runtime.threads import Thread
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from otel_memwatch.model import Column, Ending, RecordedOperation, Snapshot
    from otel_memwatch.monitor.telemetry.otlp_receiver.socket import ListeningPort
    from otel_memwatch.monitor.telemetry.pipeline import Pipeline
    from otel_memwatch.monitor.telemetry.spans import Follower
    from otel_memwatch.run import Peaks
    from otel_memwatch.run.growth import GrowthFinding

OPENING_SECONDS = 20.0
"""Longest time to load and open everything, in seconds; after it the run ends without telemetry. It takes 0.3 s."""

DELIVERY_SECONDS = 1.8
"""Longest delay of a run's end by the last delivery, in seconds, for any endpoint and any amount of data."""

_LAST_EXPORT_SECONDS = 0.6
"""Part of DELIVERY_SECONDS reserved for the last exports while many operations are still unread."""

_POLL_SECONDS = 0.2

_ROOM = 80 << 20
"""Address space of telemetry in bytes; with everything open it takes 75 MiB."""


class RunEnd(NamedTuple):
    """End of a run, as telemetry exports it."""

    at: float
    """Monotonic seconds."""
    ending: Ending | None
    peaks: Peaks | None
    stalls: Mapping[str, float] = {}
    """Shares of the run's time without progress, by resource."""
    open_operations: Sequence[RecordedOperation] = ()
    """Operations that were never closed, with their peak so far."""
    to_export: int = 0
    """Number of closed operations to export as spans: all except those that the program exports itself."""


class TelemetryInputs(NamedTuple):
    """Inputs of telemetry. Any thread may call the callables at any time; none reads the machine."""

    run: Mapping[str, Any]
    """Fields of run.json known at the start, including `resource` and `ci`."""
    columns: Sequence[Column]
    latest: Callable[[], Snapshot | None]
    """Latest snapshot, slow columns filled with their last valid value."""
    health: Callable[[], Mapping[str, Any]] = dict
    """State of each source: `up`, `seconds`, `failures`."""
    ticks: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Samples taken and deadlines missed."""
    peaks: Callable[[], Any] = lambda: None
    """Peaks so far: `tree` and `process` are exported."""
    stalls: Callable[[], Mapping[str, float]] = dict
    """Shares of the time without progress so far, by resource."""
    findings: Callable[[], Sequence[GrowthFinding]] = list
    """Leaks, and memory that allocators keep."""
    follow: Callable[[], Follower] | None = None
    """Opens a reader of the run's operations; `None`: those in `directory`."""
    directory: Path | None = None
    """Run directory."""
    environment: Mapping[str, str] = {}
    listening: ListeningPort | None = None
    """Port of `--receive-otlp`; `None`: nothing is received."""
    say: Callable[[str], None] = lambda _: None
    """Prints a message of otel-memwatch."""

    def follower(self) -> Follower:
        """Open a reader of the run's operations from the first one on: one for metrics, one for each span exporter."""
        if self.follow is not None:
            return self.follow()
        from otel_memwatch.record.follower import OperationFollower

        # Without a run directory there are no operations: the path contains none of their files.
        return OperationFollower(self.directory or os.devnull)


class Telemetry:
    """Telemetry of one run, started after the target. Does nothing if none is requested.

    Args:
        settings: options in force. With the environment they select the telemetry.
        parts: inputs.

    """

    def __init__(self, settings: Mapping[str, Any], parts: TelemetryInputs) -> None:
        self.wanted: TelemetryConfig = wanted(settings, parts.environment)
        self.problems: list[str] = []
        """One sentence for each failure."""
        self._settings = settings
        self._parts = parts
        self._pipeline: Pipeline | None = None
        self._follower: Follower | None = None
        """Reads operations for the metrics; `None`: no metrics are exported."""
        self._joined: Sequence[Column] | None = None
        """Columns to export from now on, with those of a late driver."""
        self._wake = threading.Event()
        self._opened = threading.Event()
        self._measure_until = math.inf
        self._all_measured = True
        self._thread: Thread | None = None
        if self.wanted or parts.listening is not None:
            thread = Thread(self._guarded, "otel-memwatch-telemetry", room=_ROOM)
            try:
                thread.start()
            except Unavailable as error:
                self._give_up(error)
            else:
                self._thread = thread

    @property
    def endpoint(self) -> str | None:
        """Return the URL that Prometheus scrapes; `None`: none, or not open yet."""
        return self._pipeline.url if self._pipeline else None

    def wait_until_open(self, seconds: float = OPENING_SECONDS) -> bool:
        """Return whether all requested telemetry is open or abandoned within `seconds`."""
        return self._thread is None or self._opened.wait(seconds)

    @property
    def active(self) -> bool:
        """Return whether any telemetry is requested."""
        return self._thread is not None

    def finish(self, ended: RunEnd) -> list[str]:
        """Deliver the final values; return all problems, each already reported.

        The delay is at most `DELIVERY_SECONDS`. A run that ends while the libraries are still loading also waits
        for them.

        """
        if self._thread is None:
            return self.problems
        if not self.wait_until_open():
            self._report_problem("telemetry was not ready in time and is left out")
            return self.problems
        until = time.monotonic() + DELIVERY_SECONDS
        self._measure_until = until - _LAST_EXPORT_SECONDS
        if self._pipeline is not None:
            self._pipeline.resume()
        self._wake.set()
        self._thread.join(DELIVERY_SECONDS)
        if not self._all_measured:
            self._report_problem("the metrics lack some operations: there was no time to read all of them")
        if self._pipeline is not None:
            try:
                self._pipeline.end(ended)
                self._pipeline.deliver(until, ended.to_export)
            except Exception as error:  # noqa: BLE001 - the run's end must not depend on telemetry
                self._report_problem(f"telemetry could not be completed: {describe(error)}")
        return self.problems

    def linger(self, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Wait, after `finish`, for a scrape of the final values: at most the seconds of `--linger`.

        Returns whether a scrape took place. `interrupted` is called several times a second.
        """
        seconds = float(self._settings.get("linger") or 0)
        if self._pipeline is None or self._pipeline.url is None or seconds <= 0:
            return False
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not interrupted():
            if self._pipeline.wait_for_scrape(min(left, _POLL_SECONDS)):
                return True
        return False

    def close(self) -> None:
        """Close all ports."""
        if self._pipeline is not None:
            with contextlib.suppress(Exception):
                self._pipeline.close()

    # -- telemetry's own thread

    def _guarded(self) -> None:
        try:
            from otel_memwatch.monitor.telemetry.pipeline import Pipeline

            pipeline = Pipeline(self._settings, self.wanted, self._parts, self._report_problem)
            pipeline.open()
            if pipeline.measures:
                self._follower = self._parts.follower()
            self._pipeline = pipeline
            if pipeline.url is not None:
                self._say(f"metrics for Prometheus: {pipeline.url}")
        except Exception as error:  # noqa: BLE001 - the run goes on without telemetry
            self._give_up(error)
            return
        finally:
            self._opened.set()
        try:
            while not self._wake.wait(_POLL_SECONDS):
                self._measure_operations()
                if self._pipeline is not None:
                    with contextlib.suppress(Exception):
                        self._pipeline.look_for_events()
                self._join()
            self._join()
            self._measure_operations()
        except Exception as error:  # noqa: BLE001 - the final values are delivered all the same
            self._report_problem(f"the metrics lack the operations from now on: {describe(error)}")

    def _join(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None and self._pipeline is not None:
            with contextlib.suppress(Exception):
                self._pipeline.join(joined)

    def join(self, columns: Sequence[Column]) -> None:
        """Export these columns soon: those so far, and others of devices behind them."""
        self._joined = columns

    def pause(self) -> None:
        """Use no CPU until `finish`: the command has ended, and the monitor completes its record."""
        self._measure_until = 0.0
        if self._pipeline is not None:
            self._pipeline.pause()

    def _give_up(self, error: Exception) -> None:
        self._report_problem(f"telemetry could not be started: {describe(error)}")
        if self._parts.listening is not None:
            # The target would wait for answers from a port without a server.
            self._parts.listening.socket.close()

    def _measure_operations(self) -> None:
        """Read the operations recorded since the last call into the metrics."""
        if self._follower is None or self._pipeline is None:
            return
        self._all_measured = False
        while time.monotonic() < self._measure_until:
            found = self._follower.poll()
            for operation in found.closed:
                with contextlib.suppress(Exception):
                    self._pipeline.operation_closed(operation)
            if not found.behind:
                self._pipeline.operations_open([one.name for one in self._follower.open_operations()])
                self._all_measured = True
                return

    def _report_problem(self, sentence: str) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)
        self._say(sentence)

    def _say(self, sentence: str) -> None:
        self._parts.say(f"otel-memwatch: {sentence}")
