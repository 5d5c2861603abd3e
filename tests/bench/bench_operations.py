"""What an operation costs the program that it marks, as a ratio to a bare span of OpenTelemetry's SDK.

Run: python tests/bench/bench_operations.py
The budgets are 10 us for an operation with exact figures, 1 us for one outside a run, 15 ms for the import. Each
figure is the median of several rounds; the machine should have nothing else to do.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_memwatch.operations import activate, deactivate, operation
from otel_memwatch.telemetry.span_processor import OperationSpanProcessor

ROUNDS, TURNS = 15, 2000


def microseconds(work: Callable[[], None]) -> float:
    """Median cost of one call."""
    costs = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(TURNS):
            work()
        costs.append((time.perf_counter() - begin) / TURNS * 1e6)
    return statistics.median(costs)


def empty() -> None:
    with operation("operation"):
        pass


def later() -> None:
    """As `empty`, more than 20 us after the one before: the I/O counters are read anew each time."""
    until = time.perf_counter() + 25e-6
    while time.perf_counter() < until:
        pass
    with operation("operation"):
        pass


def pause() -> None:
    until = time.perf_counter() + 25e-6
    while time.perf_counter() < until:
        pass


def written() -> float:
    """Cost of the two lines alone: what no record could be without."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        descriptor = os.open(os.path.join(directory, "lines"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        line = b"x" * 300

        def write() -> None:
            os.write(descriptor, line)
            os.write(descriptor, line)

        cost = microseconds(write)
        os.close(descriptor)
        return cost


def import_milliseconds() -> float:
    """Median time of importing `operation` over that of an interpreter that imports nothing."""

    def start(code: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - begin) * 1e3

    pairs = [(start("pass"), start("from otel_memwatch import operation")) for _ in range(15)]
    return statistics.median(loaded for _, loaded in pairs) - statistics.median(bare for bare, _ in pairs)


def main() -> None:
    """Print every cost beside the span's."""
    bare = TracerProvider().get_tracer("bench")

    def span() -> None:
        with bare.start_as_current_span("span"):
            pass

    costs = {"bare span of the SDK": microseconds(span)}
    deactivate()
    costs["operation outside a run"] = microseconds(empty)
    costs["the two lines alone"] = written()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        activate(directory)
        costs["operation, exact"] = microseconds(empty)
        costs["operation, exact, 25 us after the last"] = microseconds(later) - microseconds(pause)
        with operation("around"):
            costs["operation, exact, nested"] = microseconds(empty)
        os.environ["OTEL_MEMWATCH_EXACT"] = "0"
        activate(directory)
        costs["operation without reset"] = microseconds(empty)
        del os.environ["OTEL_MEMWATCH_EXACT"]
        activate(directory)
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
        costs["operation that is a span of the program's"] = microseconds(empty)
        provider.add_span_processor(OperationSpanProcessor())
        bare = provider.get_tracer("bench")
        costs["span that is an operation"] = microseconds(span)
        deactivate()
        costs["span with the processor outside a run"] = microseconds(span)
    unit = costs["bare span of the SDK"]
    for name, cost in costs.items():
        print(f"{name:44} {cost:7.2f} us {cost / unit:6.2f} x a bare span")
    print(f"{'import of operation':44} {import_milliseconds():7.2f} ms")


if __name__ == "__main__":
    main()
