"""Processes that leave the run's own control group take its watermark's word: nothing is called exact then."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.model import ProcessNote
from otel_memwatch.monitor.sampling.sources.cgroup import GroupsBelow
from otel_memwatch.run import load
from otel_memwatch.runtime.kernel import GROUP_LAG_SECONDS
from tests.support.control_group import Group, group, memory_parent
from tests.support.programs import PROGRAMS
from tests.support.wrapped import MIB, Wrapped, wrap

FOLDER = PROGRAMS / "control_group"
LEFT = "left the run's cgroup"


@pytest.fixture
def elsewhere() -> Iterator[Group]:
    with group() as made:
        yield made


def tree_of(done: Wrapped) -> dict[str, Any]:
    """The tree's peak as it was reported live, which the record alone has to tell too."""
    assert done.code == 0, done.err
    live = done.info["peaks"]["tree"]
    unfinished = done.directory.with_name("unfinished")
    shutil.copytree(done.directory, unfinished)
    told = (unfinished / "run.json").read_text().replace('"peaks": {', '"not_peaks": {')
    (unfinished / "run.json").write_text(told)
    again = load(unfinished).peaks.tree
    assert again is not None
    assert again._replace(at=None).to_json() == {**live, "at": None}
    assert again.at == pytest.approx(live["at"], abs=0.001)  # the record rounds the moments of ticks
    return dict(live)


def leavers(done: Wrapped) -> list[dict[str, Any]]:
    return [line for line in done.processes("figures") if line.get("note") == ProcessNote.LEFT_CGROUP]


def marked(done: Wrapped) -> bool:
    return any(LEFT in mark["text"] for mark in done.info["marks"])


def test_a_target_that_leaves_before_it_grows(tmp_path: Path, elsewhere: Group) -> None:
    script = ["sh", str(FOLDER / "leave_and_grow.sh"), str(elsewhere.path), sys.executable]
    done = wrap(script, "--cgroup", "require", out=tmp_path / "run")
    tree, process = tree_of(done), done.peak("process")
    assert tree["certainty"] == "interval"
    assert 295 * MIB <= tree["low"] <= process["high"]
    assert tree["high"] is None or tree["high"] >= 300 * MIB
    assert leavers(done)
    assert marked(done)


def test_a_limit_does_not_hold_for_a_target_that_leaves(tmp_path: Path, elsewhere: Group) -> None:
    script = ["sh", str(FOLDER / "leave_and_grow.sh"), str(elsewhere.path), sys.executable]
    done = wrap(script, "--limit", "60MiB", out=tmp_path / "run")
    assert done.code == 0, done.err
    assert "the 60.0 MiB limit did not hold: processes left the run's cgroup" in done.err
    # No share of the limit; on a busy machine, shares of the time are stated.
    assert [line for line in done.err.splitlines() if " %" in line and "limit" in line] == []


def test_a_child_that_leaves_for_a_moment(tmp_path: Path, elsewhere: Group) -> None:
    script = [sys.executable, "-S", str(FOLDER / "child_leaves_briefly.py"), str(elsewhere.path)]
    done = wrap(script, "--cgroup", "require", "--interval", "0.5", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["certainty"] == "interval"
    assert tree["low"] <= 210 * MIB
    assert tree["high"] is None or tree["high"] >= 200 * MIB


def test_a_small_child_that_leaves_for_a_moment(tmp_path: Path, elsewhere: Group) -> None:
    """Its 20 MiB could be those of libraries, by its size: the page faults that missing from the group's count are not."""
    script = [sys.executable, "-S", str(FOLDER / "child_leaves_briefly.py"), str(elsewhere.path), "20"]
    done = wrap(script, "--cgroup", "require", "--interval", "5", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["certainty"] == "interval"
    assert tree["high"] is None or tree["high"] >= 20 * MIB


def test_a_child_that_leaves_with_few_page_faults(tmp_path: Path, elsewhere: Group) -> None:
    script = [sys.executable, "-S", str(FOLDER / "child_leaves_with_huge_pages.py"), str(elsewhere.path)]
    done = wrap(script, "--cgroup", "require", "--interval", "5", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["certainty"] == "interval"
    assert tree["high"] is None or tree["high"] >= 20 * MIB


def test_a_child_that_leaves_after_it_has_grown(tmp_path: Path, elsewhere: Group) -> None:
    script = [sys.executable, "-S", str(FOLDER / "child_leaves_after_growing.py"), str(elsewhere.path)]
    done = wrap(script, "--cgroup", "require", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["certainty"] == "interval"
    assert tree["low"] >= 295 * MIB
    assert tree["high"] is None or tree["high"] >= 300 * MIB
    assert leavers(done)
    assert marked(done)


def test_a_child_that_moves_below_the_own_group_is_still_counted(tmp_path: Path) -> None:
    script = [sys.executable, "-S", str(FOLDER / "child_moves_below.py"), str(memory_parent())]
    done = wrap(script, "--cgroup", "require", out=tmp_path / "run")
    tree = tree_of(done)
    assert "not all were" not in tree["how"]
    assert 190 * MIB <= tree["low"] <= 206 * MIB
    assert tree["high"] >= 195 * MIB
    assert not leavers(done)
    assert not marked(done)


def test_page_cache_of_a_group_below_is_not_taken_for_needed_memory(tmp_path: Path) -> None:
    """The own group's count of cache can stand at nothing while the group below has 100 MiB of it."""
    script = [sys.executable, "-S", str(FOLDER / "child_writes_file_below.py"), str(memory_parent())]
    done = wrap([*script, str(tmp_path / "file")], "--cgroup", "require", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["low"] <= 45 * MIB
    assert tree["high"] >= 20 * MIB
    assert tree["certainty"] == "interval"


def test_groups_below_are_noticed_also_when_they_have_gone(elsewhere: Group) -> None:
    below = GroupsBelow(str(elsewhere.path), ours=True)
    assert not below.lately(100.0)
    inner = elsewhere.path / "inner"
    inner.mkdir()
    assert below.lately(101.0)
    assert below.lately(120.0), "it is still there"
    inner.rmdir()
    assert below.lately(121.0)
    assert not below.lately(121.1 + GROUP_LAG_SECONDS)
    inner.mkdir()
    inner.rmdir()
    assert below.lately(200.0), "it came and went between two readings"
    below.close()


def test_a_mapped_file_that_others_were_charged_for_makes_no_bound_false(tmp_path: Path) -> None:
    """The program holds 200 MiB of a file that is in the cache already: it needs a few MiB, wherever the file counts."""
    file = tmp_path / "file"
    with file.open("wb") as written:
        for _ in range(200):
            written.write(b"x" * MIB)
    script = [sys.executable, "-S", str(FOLDER / "read_mapped_file.py"), str(file)]
    done = wrap(script, "--cgroup", "require", "--interval", "0.5", out=tmp_path / "run")
    tree = tree_of(done)
    assert tree["low"] <= 20 * MIB
    assert tree["high"] is None or tree["high"] >= 3 * MIB
    assert not leavers(done)
