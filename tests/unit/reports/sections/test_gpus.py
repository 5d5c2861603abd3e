"""GPU memory of operations in the report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_memwatch.model import RecordedOperation
from otel_memwatch.reports.pages.terminal_page import TerminalPage
from otel_memwatch.reports.sections.gpus import gpus
from otel_memwatch.runtime.terminal import FILE

GIB = 1 << 30


def _operation(
    name: str, start: float, low: float, high: float | None, allocator: str = "torch.cuda", **more: int
) -> Any:
    known = {
        "allocator": allocator,
        "low": int(low * GIB),
        "high": None if high is None else int(high * GIB),
        "certainty": "exact" if low == high else "interval",
        **more,
    }
    recorded = RecordedOperation(
        name, 7, 1, start, start + 1, "ok", "t", "s", None, None, gpu={f"{allocator} device": known}
    )
    return SimpleNamespace(operation=recorded, start=start, depth=0)


def _text(*operations: Any) -> str:
    page = TerminalPage(FILE)
    run: Any = SimpleNamespace(
        fields=SimpleNamespace(gpus=()), too_many_operations=False, operations=operations
    )
    gpus(run, page)
    return page.text()


def test_repeats_are_one_row_with_the_largest_values() -> None:
    steps = [
        _operation(
            f"step {number}", number, 1 + number / 1000, 3, reserved_peak=4 * GIB, ooms=number % 2, retries=0
        )
        for number in range(400)
    ]
    text = _text(_operation("load", 0, 0.5, 0.5), *steps)
    rows = [line for line in text.splitlines() if "torch.cuda device" in line]
    assert len(rows) == 2
    assert "load" in rows[0]
    assert "512.0 MiB  exact" in rows[0]
    assert "step 0 ... step 399 (400 times)" in rows[1]
    assert "1.40-3.00 GiB  range" in rows[1]
    assert "200 allocations failed" in rows[1]
    assert text.count("--exact-gpu") == 1


def test_a_range_that_no_option_narrows_has_no_advice() -> None:
    text = _text(_operation("kernel", 0, 1, None, "cupy"), _operation("step", 0, 1, 1))
    assert "1.00 GiB  " in text
    assert "--exact-gpu" not in text


def test_a_repeat_that_reached_the_mark_makes_the_largest_exact() -> None:
    text = _text(_operation("step", 0, 2, 2), _operation("step", 1, 0.25, 2))
    assert "step (2 times)" in text
    assert "2.00 GiB  exact" in text
    assert "--exact-gpu" not in text
