"""The header of a process's operations: which rank it is, if a launcher provides it."""

from __future__ import annotations

import json

import pytest

from otel_memwatch.in_target.operations import journal


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "3"}, 3),
        ({"RANK": "", "SLURM_PROCID": "12"}, 12),
        ({"OMPI_COMM_WORLD_RANK": "1", "SLURM_PROCID": "0"}, 1),
        ({"RANK": "first"}, None),
        ({"RANK": "-1"}, None),
        ({"RANK": "9" * 40}, None),
    ],
)
def test_rank(environment: dict[str, str], rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    header = json.loads(journal.header_line(exact=True, floor=None))
    assert header.get("rank") == rank
    assert ("rank" in header) == (rank is not None)
