"""What the in-target library promises to the rest of the package, and to the programs that import it."""

from __future__ import annotations

from otel_memwatch import catalog
from otel_memwatch.in_target import operations
from otel_memwatch.in_target.operations import tracing
from otel_memwatch.record import format as run_format


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
