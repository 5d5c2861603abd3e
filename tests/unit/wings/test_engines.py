"""Files of workflow engines: figures with the engines' meaning, and a first version that stays beside a replaced file."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from otel_memwatch.model import Peak
from otel_memwatch.run import Peaks, RecordedRun, load
from otel_memwatch.wings.engines import nextflow, replace, snakemake
from tests.support.run_directory import MIB, RunDirectory, column

MEMORY = tuple(column(f"memwatch.tree.memory.{name}") for name in ("usage", "uss", "pss"))


def two_processes(path: Path, process: int = 70, *, samples: bool = True) -> RecordedRun:
    """Return a run that needed 75 MiB: two processes share 60 MiB, and both also map a file of 5."""
    peaks = Peaks(process=Peak.exact(process * MIB, MIB), tree=Peak.exact(75 * MIB, MIB))
    built = RunDirectory(path, peaks=peaks.to_json(), totals={})
    built.columns(MEMORY)
    if samples:
        built.tick(0.1, 70 * MIB, 65 * MIB, 68 * MIB)
        built.tick(0.2, 142 * MIB, 14 * MIB, 78 * MIB)
    return load(path)


def row_of(run: RecordedRun) -> dict[str, str]:
    out = io.BytesIO()
    snakemake.render(run, out, None)  # type: ignore[arg-type]
    head, row = (line.split("\t") for line in out.getvalue().decode().splitlines())
    return dict(zip(head, row, strict=True))


def test_sizes_have_the_meaning_of_the_engine(tmp_path: Path) -> None:
    row = row_of(two_processes(tmp_path / "forks"))
    sizes = {name: row[name] for name in ("max_rss", "max_uss", "max_pss", "max_needed")}
    assert sizes == {"max_rss": "142.00", "max_uss": "65.00", "max_pss": "78.00", "max_needed": "75.00"}
    assert list(row)[-1] == "max_needed", "readers may count Snakemake's columns"
    trace = nextflow.trace_of(two_processes(tmp_path / "task"))
    assert trace["peak_rss"] == trace["rss"] == 142 * 1024
    assert trace["%mem"] == round(1000 * 142 / 16384)


def test_the_largest_process_counts_between_samples(tmp_path: Path) -> None:
    assert row_of(two_processes(tmp_path / "spike", process=300))["max_rss"] == "300.00"
    short = row_of(two_processes(tmp_path / "short", samples=False))
    assert (short["max_rss"], short["max_pss"]) == ("70.00", "NA")


def no_link(*_: object) -> None:
    raise OSError(errno.EPERM, "no links here")


def test_the_first_version_stays_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("linked", "copied"):
        file = tmp_path / name
        file.write_text("first")
        replace(file, "second")
        replace(file, "third")
        assert (file.read_text(), (tmp_path / f"{name}.orig").read_text()) == ("third", "first")
        monkeypatch.setattr(os, "link", no_link)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copied",
        "copied.orig",
        "linked",
        "linked.orig",
    ]


def test_a_full_disk_leaves_no_half_of_the_first_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace"
    file.write_text("first")

    def write_half(path: Path, data: bytes) -> int:
        with open(path, "wb") as out:
            out.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="no space"):
        replace(file, "second")
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]
    assert file.read_text() == "first"
