"""Run directories in places that others may write to: links, pipes, directories of strangers."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from otel_memwatch.errors import RunError
from otel_memwatch.in_target.operations.journal import Journal
from otel_memwatch.monitor.run.run_directory import temporary_runs
from otel_memwatch.record.follower import OperationFollower
from otel_memwatch.record.jsonl import Damage, open_regular, text_lines
from otel_memwatch.record.open import read_run
from otel_memwatch.record.writer import RunWriter
from tests.support.run_directory import RunDirectory
from tests.support.torture import needs_root


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory that is everybody's."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_the_usual_place_is_for_its_owner_alone(shared: Path) -> None:
    assert Path(temporary_runs()) == shared / f"memwatch-runs-{os.geteuid()}"
    assert Path(temporary_runs()).stat().st_mode & 0o777 == 0o700
    assert Path(temporary_runs()) == shared / f"memwatch-runs-{os.geteuid()}", "the same one again"


def _link(usual: Path) -> None:
    (usual.parent / "elsewhere").mkdir()
    usual.symlink_to(usual.parent / "elsewhere")


def _dangling(usual: Path) -> None:
    usual.symlink_to(usual.parent / "not-there-yet")


def _file(usual: Path) -> None:
    usual.write_text("")


def _open_to_all(usual: Path) -> None:
    usual.mkdir()
    usual.chmod(0o777)


def _strangers(usual: Path) -> None:
    needs_root()
    usual.mkdir()
    os.chown(usual, 12345, 12345)


@pytest.mark.parametrize("lay", [_link, _dangling, _file, _open_to_all, _strangers])
def test_what_another_program_has_laid_there_is_left_alone(shared: Path, lay) -> None:
    usual = shared / f"memwatch-runs-{os.geteuid()}"
    lay(usual)
    before = {path: path.lstat().st_mtime_ns for path in shared.rglob("*")}
    place = Path(temporary_runs())
    assert place != usual
    assert place.parent == shared
    found = place.lstat()
    assert found.st_mode & 0o7777 == 0o700
    assert found.st_uid == os.geteuid()
    assert {path: path.lstat().st_mtime_ns for path in before} == before
    assert len(list(place.iterdir())) == 0


# -- operations


def _targets(tmp_path: Path) -> Path:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    return precious


def test_operations_follow_no_link(tmp_path: Path) -> None:
    precious = _targets(tmp_path)
    (tmp_path / "operations-7.jsonl").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic links"):
        Journal(str(tmp_path), "7")
    os.link(precious, tmp_path / "operations-8.jsonl")
    with pytest.raises(OSError, match="not a file of operations"):
        Journal(str(tmp_path), "8")
    assert precious.read_text() == "mine\n"


def test_operations_wait_for_no_pipe(tmp_path: Path) -> None:
    """Without a reader, and with one."""
    os.mkfifo(tmp_path / "operations-7.jsonl")
    with pytest.raises(OSError, match="No such device"):
        Journal(str(tmp_path), "7")
    reader = os.open(tmp_path / "operations-7.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(OSError, match="not a file of operations"):
            Journal(str(tmp_path), "7")
    finally:
        os.close(reader)


# -- reading


def test_readers_wait_for_no_pipe_and_read_no_device(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    for name in ("samples.jsonl", "processes.jsonl", "operations-1.jsonl"):
        os.mkfifo(run.path / name)
    (run.path / "operations-2.jsonl").symlink_to("/dev/zero")
    record = read_run(run.path)
    assert list(record.sample_values()) == []
    assert record.processes == []
    assert record.operations == []
    assert len([sentence for sentence in record.damage if "no regular file" in sentence]) == 4
    (run.path / "run.json").unlink()
    os.mkfifo(run.path / "run.json")
    with pytest.raises(RunError, match="no regular file"):
        read_run(run.path)


def test_the_follower_follows_no_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text('{"schema":1,"pid":1,"start":0,"exact":true}\n{"open":1,"time":1,"name":"x"}\n')
    (tmp_path / "run").mkdir()
    (tmp_path / "run/operations-1.jsonl").symlink_to(elsewhere)
    os.mkfifo(tmp_path / "run/operations-2.jsonl")
    follower = OperationFollower(tmp_path / "run")
    assert follower.poll().opened == 0
    assert follower.open_operations() == []
    follower.close()


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no regular file"):
        open_regular("/dev/null")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    damage = Damage("x")
    assert list(text_lines(tmp_path / "missing", damage)) == []
    assert damage.sentences() == []


# -- writing


def test_the_writer_stays_with_its_directory(tmp_path: Path) -> None:
    """Whatever is put in its place: what is written goes to the directory that was made."""
    told: list[str] = []
    place, precious = tmp_path / "run", _targets(tmp_path)
    place.mkdir(0o700)
    writer = RunWriter(place, told.append)
    writer.update(state="running")
    place.rename(tmp_path / "moved")
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "run.json").symlink_to(precious)
    (trap / "samples.jsonl").symlink_to(precious)
    place.symlink_to(trap)
    assert not writer.in_place
    writer.columns(())
    writer.update(state="finished")
    assert (tmp_path / "moved/samples.jsonl").exists()
    assert '"finished"' in (tmp_path / "moved/run.json").read_text()
    assert not told
    assert not writer.check()
    assert len(told) == 1
    assert "removed or replaced" in told[0]
    writer.close()
    assert precious.read_text() == "mine\n"
    assert {path.name for path in trap.iterdir()} == {"run.json", "samples.jsonl"}


def test_the_writer_takes_no_link_for_a_directory(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    writer = RunWriter(tmp_path / "run", told.append)
    writer.update(state="running")
    writer.columns(())
    writer.close()
    assert len(told) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
