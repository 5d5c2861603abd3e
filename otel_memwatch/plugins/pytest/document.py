"""JSON document of all figures of a session (schema 1). Sizes are bytes; `null` is unknown.

`{"schema": 1, "tests": {NODEID: {"process": P, "tree": P, "added": P, "start": BYTES, "worker": NAME,
"phases": {"setup": P, "call": P, "teardown": P}}},
"fixtures": [{"name", "scope", "test", "process": P, "start": BYTES}]}`

P is a peak in the format of `report --json`. A test without set-up has only the phase "call".
"""

from __future__ import annotations

import json

from otel_memwatch.plugins.pytest.measured_test import process_peak
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from otel_memwatch.model import Peak
    from otel_memwatch.plugins.pytest.measured_test import FixtureFigures, MeasuredTest

SCHEMA = 1


def write(path: Path, tests: Iterable[MeasuredTest], fixtures: Iterable[FixtureFigures]) -> None:
    """Write the file. Raises `OSError` if it cannot be written."""
    document = {
        "schema": SCHEMA,
        "tests": {
            test.nodeid: {
                "process": _of_peak(test.peak),
                "tree": _of_peak(test.tree),
                "added": _of_peak(test.added),
                "start": test.start,
                "worker": test.worker or None,
                "phases": {when: _of_peak(process_peak([phase])) for when, phase in test.phases.items()},
            }
            for test in tests
        },
        "fixtures": [
            {
                "name": fixture.name,
                "scope": fixture.scope,
                "test": fixture.test,
                "process": _of_peak(process_peak([fixture.figures])),
                "start": fixture.figures.start,
            }
            for fixture in fixtures
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _of_peak(peak: Peak | None) -> dict[str, object] | None:
    return None if peak is None else peak.to_json()
