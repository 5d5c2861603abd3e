"""Reports as files: whole or not at all, never over another one; CSV row by row."""

from __future__ import annotations

import csv
import os
import stat
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.errors import RunError, UsageError
from otel_memwatch.reports import REPORTS, render, renderer, text_report, write
from otel_memwatch.reports import csv as csv_report
from otel_memwatch.run import RecordedRun, load
from tests.support import recorded

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> RecordedRun:
    return load(recorded.short(tmp_path / "run"))


def test_every_report_in_the_list_can_be_made(run: RecordedRun) -> None:
    for name in REPORTS:
        assert callable(renderer(name))
    for name in ("text", "summary", "json", "plot", "csv"):
        out = BytesIO()
        render(name, run, out)
        assert out.getvalue()
    with pytest.raises(UsageError, match="Unknown report 'sonnet'"):
        renderer("sonnet")


def test_files_in_the_run_directory_are_their_owners_alone(run: RecordedRun, tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        inside = write("text", run, run.path / "report.txt")
        outside = write("text", run, tmp_path / "copy.txt")
    finally:
        os.umask(old)
    assert stat.S_IMODE(inside.stat().st_mode) == 0o600
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    assert inside.read_bytes() == outside.read_bytes()


def test_a_file_is_replaced_only_when_asked(run: RecordedRun, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("mine")
    with pytest.raises(UsageError, match=r"already exists.*--force"):
        write("text", run, path, force=False)
    assert path.read_text() == "mine"
    write("text", run, path, force=True)
    assert path.read_text().startswith("otel-memwatch: run")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "x.txt"]


def test_a_link_stays_a_link(run: RecordedRun, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write("text", run, tmp_path / "link.txt", force=True)
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text().startswith("otel-memwatch")


def test_no_process_who_comes_first_is_replaced(
    run: RecordedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"

    def slow(_run: RecordedRun, out: Any, _options: Any) -> None:
        out.write(b"ours")
        path.write_text("theirs")

    monkeypatch.setattr(text_report, "render", slow)
    with pytest.raises(UsageError, match="already exists"):
        write("text", run, path, force=False)
    assert path.read_text() == "theirs"
    assert not list(tmp_path.glob(".*"))


def test_half_a_file_is_taken_away(run: RecordedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_run: RecordedRun, out: Any, _options: Any) -> None:
        out.write(b"half")
        out.flush()
        raise ZeroDivisionError

    monkeypatch.setattr(text_report, "render", failing)
    (tmp_path / "old.txt").write_text("old")
    for name in ("new.txt", "old.txt"):
        with pytest.raises(ZeroDivisionError):
            write("text", run, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["old.txt", "run"]
    assert (tmp_path / "old.txt").read_text() == "old"


def test_what_is_no_file_is_written_to_directly(run: RecordedRun, tmp_path: Path) -> None:
    write("text", run, "/dev/null", force=False)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(RunError, match="/dev/full cannot be written: No space left"):
        write("text", run, "/dev/full")
    with pytest.raises(UsageError, match="is a directory"):
        write("text", run, tmp_path)
    with pytest.raises(RunError, match="No such file or directory"):
        write("text", run, tmp_path / "absent/x.txt")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="Not a directory"):
        write("text", run, tmp_path / "file/x.txt")


def rows_of(run: RecordedRun) -> list[list[str]]:
    out = BytesIO()
    render("csv", run, out)
    return list(csv.reader(out.getvalue().decode().splitlines()))


def test_csv_holds_every_tick_and_every_value(run: RecordedRun) -> None:
    header, *rows = rows_of(run)
    assert header == [
        "time [s]", "unix time [s]", "memwatch.tree.memory.usage [By]", "process.memory.usage [By]",
        "memwatch.tree.cpu.time{cpu.mode=user} [s]", "memwatch.tree.cpu.time{cpu.mode=system} [s]",
    ]  # fmt: skip
    assert rows[0] == [
        "0.0500",
        "1790000000.0500",
        str(9 * recorded.MIB),
        str(9 * recorded.MIB),
        "0.02",
        "0.01",
    ]
    assert len(rows) == 3


def test_csv_has_nothing_for_what_is_not_known(tmp_path: Path) -> None:
    path = recorded.record(
        tmp_path / "r",
        seconds=1,
        series=[recorded.TREE, recorded.PSS],
        ticks=[(0.1, 5), (0.2, None, 7), (0.3,)],
    )
    assert [row[2:] for row in rows_of(load(path))[1:]] == [["5", ""], ["", "7"], ["", ""]]


def test_a_header_names_metric_attributes_and_unit() -> None:
    from otel_memwatch.model import Column

    assert csv_report.header(Column("some.unknown", (("a", "b"), ("c", "d")))) == "some.unknown{a=b,c=d}"
