"""A `Run` answers with the figures of its files as they are when it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch import run as analysis
from otel_memwatch.api.loaded_run import Run, load_run
from otel_memwatch.errors import RunError
from tests.support.run_directory import STARTED, RunDirectory


def test_every_figure_is_of_the_files_as_they_are(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "run", state="finished")
    run = load_run(directory.path)
    before = run.latest
    assert run.seconds == 1.0
    directory.write_info(ended={"wall": 0.0, "monotonic": STARTED + 5.0})
    assert (run.seconds, before.seconds) == (5.0, 1.0)
    assert run.latest is run.latest


def test_it_has_whatever_a_run_of_the_analysis_has(tmp_path: Path) -> None:
    run = load_run(RunDirectory(tmp_path / "run").path)
    assert isinstance(run, analysis.RecordedRun)
    own = {"path", "latest", "damage", "record"}
    for name in {name for name in dir(run.latest) if not name.startswith("_")} - own - {"samples"}:
        assert getattr(run, name) == getattr(run.latest, name), name
    assert len(run.samples()) == len(run.latest.samples())
    assert repr(run) == f"Run({str(tmp_path / 'run')!r})"


def test_a_name_that_there_is_none_of(tmp_path: Path) -> None:
    run = load_run(RunDirectory(tmp_path / "run").path)
    with pytest.raises(AttributeError):
        run.peeks  # noqa: B018


def test_where_there_is_no_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "later")
    with pytest.raises(RunError):
        run.peaks  # noqa: B018
    with pytest.raises(RunError):
        load_run(tmp_path / "later")
