"""Words of `doctor` on the certainty of peaks."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from otel_memwatch.cli.doctor import Finding, _by_counter, _table
from otel_memwatch.runtime.kernel import PAGE_SIZE, PROCESSORS_VARIABLE


@pytest.mark.skipif(PAGE_SIZE != 4096, reason="the sizes are those of 4 KiB pages")
@pytest.mark.parametrize(
    ("processors", "release", "state", "text"),
    [
        ("2", "6.18.0", "ok", "exact"),
        ("4", "6.18.0", "limited", "off by up to 1.5 MiB; exact from 290.6 MiB on"),
        ("64", "6.18.0", "limited", "off by up to 95.2 MiB; exact from 18.60 GiB on"),
        ("2", "6.1.0", "limited", "number of threads"),
    ],
)
def test_a_peak_is_called_exact_only_if_its_counter_is(
    monkeypatch: pytest.MonkeyPatch, processors: str, release: str, state: str, text: str
) -> None:
    monkeypatch.setenv(PROCESSORS_VARIABLE, processors)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    found = _by_counter("exact")
    assert found[0] == state
    assert text in found[1]


@pytest.mark.parametrize("columns", [60, 100, None])
def test_findings_fit_the_terminal(columns: int | None) -> None:
    findings = [
        Finding("peak of the tree", "limited", "a range " * 20, "run as root " * 9),
        Finding("stacks: native programs with symbols", "ok", "eu-stack"),
    ]
    lines = _table(findings, columns)
    assert "a range a range" in " ".join(lines)
    assert columns is None or max(map(len, lines)) <= columns
    assert len(lines) == 3 if columns is None else len(lines) > 3
