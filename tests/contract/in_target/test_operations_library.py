"""What the in-target library promises to the rest of the package, and to the programs that import it."""

from __future__ import annotations

import subprocess
import sys

from otel_memwatch import catalog
from otel_memwatch.in_target import operations
from otel_memwatch.in_target.operations import tracing
from otel_memwatch.record import format as run_format
from tests.support.marked import ROOT
from tests.support.wrapped import environment

HEAVY = {
    "asyncio", "click", "contextlib", "ctypes", "dataclasses", "functools", "inspect", "json", "logging", "numpy",
    "opentelemetry", "psutil", "random", "re", "subprocess", "threading", "typing",
}  # fmt: skip


def test_names_that_the_record_shares() -> None:
    for name in ("RUN_DIRECTORY_VARIABLE", "OPERATIONS_PREFIX", "OPERATIONS_SUFFIX"):
        assert getattr(operations, name) == getattr(run_format, name)


def test_span_attributes_stand_in_the_catalogue() -> None:
    names = {
        value
        for name, value in vars(tracing).items()
        if name.isupper() and isinstance(value, str) and value.startswith("memwatch.")
    }
    assert names == set(catalog.SPAN_ATTRIBUTES)


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys; from otel_memwatch import operation, mark; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert loaded & HEAVY == set()
    ours = {name for name in loaded if name.startswith("otel_memwatch.")}
    allowed = (
        "otel_memwatch._version",
        "otel_memwatch.in_target",
        "otel_memwatch.record",
        "otel_memwatch.runtime",
    )
    assert {name for name in ours if not name.startswith(allowed)} == set()
    assert len(ours) < 25  # each module costs every watched program 0.2 ms
