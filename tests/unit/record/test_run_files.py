"""Names of the files that the product writes into a run directory."""

from __future__ import annotations

import pytest

from otel_memwatch.record import format as record_format
from otel_memwatch.record.format import is_run_file

NAMED = [
    value for name, value in vars(record_format).items() if name.endswith("_FILE") and name != "INDEX_FILE"
]


@pytest.mark.parametrize(
    "name",
    [
        *NAMED,
        "operations-17.jsonl",
        "operations-mark-17.jsonl",
        "operations-otlp-17.jsonl",
        "operations-17.jsonl.part-00000000000128",
        "samples.jsonl.part-00000000000000",
        ".run.json.17",
        ".budgets.json.17",
        ".clock.17",
        "clock.jsonl",
        "clock.upload.jsonl",
        ".report.html.0a1b2c3d.part",
    ],
)
def test_a_file_of_a_run_is_recognised(name: str) -> None:
    assert is_run_file(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".memwatch-index.sqlite",
        "data.txt",
        "model.jsonl",
        "operations-plan.jsonl",
        "operations-.jsonl",
        "operations-²7.jsonl",
        "operations-17.jsonl.bak",
        "data.jsonl.part-00000000000000",
        "samples.jsonl.part-1",
        "report.html.part-00000000000000",
        ".run.json.swp",
        ".data.txt.0a1b2c3d.part",
        ".report.html.part",
        ".report.html.zzzzzzzz.part",
    ],
)
def test_a_file_of_the_command_is_not(name: str) -> None:
    assert not is_run_file(name)
