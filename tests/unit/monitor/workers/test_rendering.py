"""The end of a run loads and reads no more than it needs."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from otel_memwatch.config import settings
from otel_memwatch.monitor.messages import Messages
from otel_memwatch.monitor.recording.run_info import LIMIT
from otel_memwatch.monitor.workers import rendering
from otel_memwatch.monitor.workers.rendering import CompletedRecord, needed_to_render
from otel_memwatch.record.format import SAMPLES_FILE
from otel_memwatch.run import RecordedRun


def test_what_is_loaded_before_the_end_exists() -> None:
    for given in ({}, {"summary": "markdown"}, {"quiet": True}, {"report": False}):
        for name in needed_to_render(settings("wrap", given, {}), detachable=False):
            import_module(name)


def test_nothing_is_loaded_that_was_not_requested() -> None:
    assert needed_to_render(settings("wrap", {"quiet": True, "report": False}, {}), detachable=False) == ()


@pytest.mark.parametrize(("limitless", "limit"), [(False, 1000), (True, None)])
def test_samples_known_to_have_no_limit_are_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int | None, *, limitless: bool
) -> None:
    metric, attributes = LIMIT
    lines = [{"schema": 1, "columns": [{"metric": metric, "attributes": dict(attributes)}]}, [1.0, 1000]]
    (tmp_path / SAMPLES_FILE).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    made: list[RecordedRun] = []
    monkeypatch.setattr(rendering, "make", lambda run, *_: made.append(run))
    completed = CompletedRecord(tmp_path, {"schema": 1}, None, None, limitless=limitless)
    chosen = settings("wrap", {"quiet": True, "report": False}, {})
    rendering.render(completed, chosen, Messages(print), lambda: False, writable=True)
    assert [run.recorded_limit for run in made] == [limit]
