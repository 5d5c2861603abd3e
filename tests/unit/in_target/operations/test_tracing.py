from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations.tracing import IdGenerator, is_id, parse_traceparent, root_parent

TRACE, SPAN, OTHER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"00-{TRACE}-{SPAN}-01", (TRACE, SPAN)),
        (f" 00-{TRACE.upper()}-{SPAN}-00 ", (TRACE, SPAN)),
        (f"01-{TRACE}-{SPAN}-01-later", (TRACE, SPAN)),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE[:-1]}g-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        (None, None),
    ],
)
def test_traceparent(text: str | None, expected: tuple[str, str] | None) -> None:
    assert parse_traceparent(text) == expected


def test_ids_are_valid_and_differ() -> None:
    ids = IdGenerator()
    spans = {ids.span_id() for _ in range(1000)}
    assert len(spans) == 1000
    assert all(is_id(span, 16) for span in spans)
    assert is_id(ids.trace_id(), 32)
    assert IdGenerator().trace_id() != IdGenerator().trace_id()


@pytest.mark.parametrize(
    ("given", "run", "expected"),
    [
        (None, None, None),
        ((TRACE, SPAN), None, (TRACE, SPAN)),
        (None, (TRACE, OTHER, None), (TRACE, OTHER)),
        ((TRACE, OTHER), (TRACE, OTHER, SPAN), (TRACE, OTHER)),
        ((TRACE, SPAN), (TRACE, OTHER, SPAN), (TRACE, OTHER)),
        ((TRACE, "1" * 16), (TRACE, OTHER, SPAN), (TRACE, "1" * 16)),
        (("2" * 32, SPAN), (TRACE, OTHER, None), (TRACE, OTHER)),
    ],
    ids=[
        "nothing",
        "only-environment",
        "only-run",
        "wrap",
        "watch-under-ci",
        "span-in-between",
        "foreign-trace",
    ],
)
def test_where_operations_without_a_parent_belong(
    given: tuple[str, str] | None,
    run: tuple[str, str, str | None] | None,
    expected: tuple[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    if given:
        monkeypatch.setenv("TRACEPARENT", f"00-{given[0]}-{given[1]}-01")
    if run:
        trace = dict(zip(("trace_id", "span_id", "parent_span_id"), run, strict=True))
        for indent in (None, 2):
            (tmp_path / "run.json").write_text(
                json.dumps({"id": "x", "trace": trace, "exit": None}, indent=indent)
            )
            assert root_parent(str(tmp_path)) == expected
    else:
        assert root_parent(str(tmp_path)) == expected
