"""What the end of a run needs is loaded before it."""

from __future__ import annotations

from importlib import import_module

from otel_memwatch.config import settings
from otel_memwatch.monitor.workers.rendering import needed_to_render


def test_what_is_loaded_before_the_end_is_there() -> None:
    for given in ({}, {"summary": "markdown"}, {"quiet": True}, {"report": False}):
        for name in needed_to_render(settings("wrap", given, {}), detachable=False):
            import_module(name)


def test_nothing_is_loaded_that_nobody_asked_for() -> None:
    assert needed_to_render(settings("wrap", {"quiet": True, "report": False}, {}), detachable=False) == ()
