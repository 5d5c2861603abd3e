"""What an operation costs the program that it marks, as a ratio to a bare span of OpenTelemetry's SDK.

Run: python tests/bench/bench_operations.py [--quick]
`--quick` prints only an operation with exact figures.
With OTEL_MEMWATCH_PLAIN_OPERATIONS=1 it measures the implementation in Python. The budgets are 10 us for an operation
with exact figures (30 in Python), 1 us for one outside a run, 15 ms for the import. Costs are
the quickest of many short rounds: what the machine does beside it makes them longer, never shorter. "Its system calls
and lines" is what is left of an operation when all else is taken away: its four readings of the watermark, two resets
and two written lines.

Beside threads that compute, a cost is the mean: each system call that gives up the interpreter's lock may have to wait
for it, for 5 ms a thread. A span that writes one line, as a logger does, shows what that comes to without us.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_memwatch.in_target.operations import activate, deactivate, operation
from otel_memwatch.in_target.otel.span_processor import OperationSpanProcessor

ROUNDS, TURNS = 300, 100
FEW = 20  # for works that pause: a round must be short to be left undisturbed
SLICE, SLICES = 0.05, 40

Work = Callable[[], None]


def microseconds(work: Work, turns: int = TURNS) -> float:
    """Cost of one call, undisturbed."""
    costs = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(turns):
            work()
        costs.append((time.perf_counter() - begin) / turns * 1e6)
    return min(costs)


def pause() -> None:
    until = time.perf_counter() + 25e-6
    while time.perf_counter() < until:
        pass


def empty() -> None:
    with operation("operation"):
        pass


def later() -> None:
    pause()
    with operation("operation"):
        pass


def longer() -> None:
    """The counters are read anew at the end of an operation that lasts longer than 10 us."""
    pause()
    with operation("operation"):
        pause()


def two_pauses() -> None:
    pause()
    pause()


@contextmanager
def line_writer(size: int) -> Iterator[Work]:
    """Writes one line of that many bytes to a file, as each boundary does."""
    with tempfile.TemporaryDirectory(dir=".") as directory:
        descriptor = os.open(os.path.join(directory, "lines"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        line = b"x" * size

        def write() -> None:
            os.write(descriptor, line)

        yield write
        os.close(descriptor)


def alone() -> float:
    """Cost of what no exact operation could be without."""
    reset = os.open("/proc/self/clear_refs", os.O_WRONLY)
    with line_writer(270) as write:

        def calls() -> None:
            resource.getrusage(resource.RUSAGE_THREAD)
            os.pwrite(reset, b"5", 0)
            resource.getrusage(resource.RUSAGE_SELF)
            write()
            resource.getrusage(resource.RUSAGE_SELF)
            os.pwrite(reset, b"5", 0)
            resource.getrusage(resource.RUSAGE_THREAD)
            write()

        cost = microseconds(calls)
    os.close(reset)
    return cost


def import_milliseconds() -> float:
    """Time of importing `operation`, compiled as an installed package is, over that of a bare interpreter."""
    code = "from otel_memwatch import operation"
    with tempfile.TemporaryDirectory(dir=".") as cache:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

        def start(source: str) -> float:
            begin = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", source], env=variables | {"PYTHONPYCACHEPREFIX": cache}, check=True
            )
            return (time.perf_counter() - begin) * 1e3

        start(code)
        pairs = [(start("pass"), start(code)) for _ in range(25)]
    return min(loaded for _, loaded in pairs) - min(bare for bare, _ in pairs)


def without_threads(span: Work) -> dict[str, float]:
    """Undisturbed costs of all kinds of operations."""
    costs = {"bare span of the SDK": microseconds(span)}
    deactivate()
    costs["operation outside a run"] = microseconds(empty)
    costs["its system calls and lines alone"] = alone()
    with tempfile.TemporaryDirectory(dir=".") as directory:
        activate(directory)
        costs["operation, exact"] = microseconds(empty)
        costs["operation, exact, 25 us after the last"] = microseconds(later, FEW) - microseconds(pause, FEW)
        costs["operation, exact, of 25 us"] = microseconds(longer, FEW) - microseconds(two_pauses, FEW)
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
        followed = provider.get_tracer("bench")

        def span_followed() -> None:
            with followed.start_as_current_span("span"):
                pass

        costs["span that is an operation"] = microseconds(span_followed)
        deactivate()
        costs["span with the processor outside a run"] = microseconds(span_followed)
    return costs


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    """So many threads that compute in Python meanwhile."""
    ended = threading.Event()

    def compute() -> None:
        value = 0
        while not ended.is_set():
            for _ in range(1000):
                value = (value * 3 + 1) % 1000003

    threads = [threading.Thread(target=compute) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def means(works: dict[str, Work]) -> dict[str, float]:
    """Mean cost of a call of each, in turns."""
    spent = dict.fromkeys(works, 0.0)
    calls = dict.fromkeys(works, 0)
    for _ in range(SLICES):
        for name, work in works.items():
            begin = now = time.perf_counter()
            while now - begin < SLICE:
                work()
                calls[name] += 1
                now = time.perf_counter()
            spent[name] += now - begin
    return {name: spent[name] / calls[name] * 1e6 for name in works}


def beside_threads(span: Work, tracer: trace.Tracer) -> None:
    """Print what spans and operations cost while other threads compute."""
    with line_writer(300) as write, tempfile.TemporaryDirectory(dir=".") as directory:
        activate(directory)

        def logged() -> None:
            with tracer.start_as_current_span("span"):
                write()

        works = {"bare span": span, "span that writes a line": logged, "operation, exact": empty}
        for count in (1, 3):
            with busy_threads(count):
                costs = means(works)
            for name, cost in costs.items():
                unit = costs["bare span"]
                print(f"{f'{name}, {count} busy':44} {cost:7.1f} us {cost / unit:6.2f} x a bare span")
        deactivate()


def main() -> None:
    """Print every cost beside the span's."""
    bare = TracerProvider().get_tracer("bench")

    def span() -> None:
        with bare.start_as_current_span("span"):
            pass

    costs = without_threads(span)
    unit = costs["bare span of the SDK"]
    if "--quick" in sys.argv:
        name, budget = (
            ("plain", 30.0) if os.environ.get("OTEL_MEMWATCH_PLAIN_OPERATIONS") else ("compiled", 10.0)
        )
        cost = costs["operation, exact"]
        print(
            f"{f'exact operation, {name}':44} {cost:8.2f} us budget {budget:.0f}, ratio {cost / budget:.2f}"
        )
        return
    for name, cost in costs.items():
        print(f"{name:44} {cost:7.2f} us {cost / unit:6.2f} x a bare span")
    trace._TRACER_PROVIDER = None  # the operations below are no spans
    beside_threads(span, bare)
    print(f"{'import of operation':44} {import_milliseconds():7.2f} ms")


if __name__ == "__main__":
    main()
