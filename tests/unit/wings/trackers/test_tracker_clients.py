"""Figures for a tracker: at most forty numbers, the largest operations, and bounds if a figure is not exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.errors import UsageError
from otel_memwatch.run import load
from otel_memwatch.wings import trackers
from otel_memwatch.wings.trackers.tracker_clients import CLIENTS, MOST, tracked_figures
from tests.support.run_directory import MIB
from tests.support.sound_run import CLOSING, OPENING, sound


def with_operations(place: Path, number: int) -> None:
    built = sound(place, name="train")
    built.operations(
        [
            line
            for index in range(number)
            for line in (
                {**OPENING, "open": index, "time": 0.1, "name": f"step {index} (a/b, 90 %)", "span": f"{index:016x}"},
                {**CLOSING, "close": index, "time": 0.3, "peak": (index + 1) * MIB // 8, "low": (index + 1) * MIB // 8,
                 "high": (index + 1) * MIB // 8},
            )
        ],
        pid=7000,
    )  # fmt: skip


@pytest.mark.parametrize("number", [0, 3, 100])
def test_there_are_forty_numbers_at_most(tmp_path: Path, number: int) -> None:
    with_operations(tmp_path, number)
    figures = tracked_figures(load(tmp_path))
    assert len(figures.scalars) <= MOST
    assert {"memwatch/memory_bytes", "memwatch/seconds"} <= set(figures.scalars)
    operations = [name for name in figures.scalars if "operation/step" in name and name.endswith("_bytes")]
    assert bool(operations) == bool(number)
    if number == 100:
        assert "memwatch/operation/step 99 _a/b_ 90 ___bytes" in operations, "the largest"
        assert "memwatch/operation/step 0 _a/b_ 90 ___bytes" not in operations


def test_what_is_not_exact_has_its_bounds(tmp_path: Path) -> None:
    sound(tmp_path)
    run = load(tmp_path)
    figures = tracked_figures(run)
    tree = run.peaks.tree
    assert tree is not None
    assert figures.words["memwatch/certainty"] == tree.certainty.value != "exact"
    assert figures.scalars["memwatch/memory_bytes_low"] == tree.low
    assert figures.scalars.get("memwatch/memory_bytes_high") == tree.high
    assert figures.words["memwatch/ended"] == run.ending.reason
    assert "memory" in figures.summary


def test_which_run_of_a_tracker_is_intended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers.named({}) == []
    assert trackers.named({"WANDB_RUN_ID": "", "MLFLOW_RUN_ID": "1", "TENSORBOARD_LOG_DIR": "x"}) == [
        "mlflow",
        "tensorboard",
    ]
    sound(tmp_path, tags={"wandb.run": "remembered"})
    told: list[str] = []

    def client(_figures: object, page: Path, into: str) -> str:
        assert page.stat().st_size > 0
        told.append(into)
        return into

    monkeypatch.setitem(CLIENTS, "wandb", client)
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda _: True)
    for variable in ("WANDB_RUN_ID", "TRACKIO_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    run = load(tmp_path)
    trackers.send("wandb", run)
    monkeypatch.setenv("WANDB_RUN_ID", "of the shell")
    trackers.send("wandb", run)
    trackers.send("wandb", run, "said")
    assert told == ["remembered", "remembered", "said"]
    with pytest.raises(UsageError, match="No run of trackio is selected"):
        trackers.send("trackio", run)
