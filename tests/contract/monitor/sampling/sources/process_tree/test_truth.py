"""The process tree against programs of known behaviour, watched as `wrap` watches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[6]
GUARD = 90.0
WATCH = "tests.programs.process_tree."
MIB = 1 << 20
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
pytestmark = LINUX


def path_of(program: str) -> str:
    """A program of tests/programs/process_tree."""
    return str(ROOT / "tests/programs/process_tree" / f"{program}.py")


def watch(program: str, *arguments: str, **options: Any) -> dict[str, Any]:
    """Watches a program of tests/programs/process_tree."""
    words = [json.dumps(options), "--", sys.executable, "-S", path_of(program), *arguments]
    result: dict[str, Any] = json.loads(printed("tests.support.tree_watch", *words)[-1])
    return result


def printed(*words: str) -> list[str]:
    """Lines that a module prints."""
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def most(result: dict[str, Any], name: str) -> float:
    return max(tick.get(name, 0) for tick in result["ticks"])


def of(result: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [record for record in result["records"] if record["event"] == event]


def test_memory_of_the_target_and_of_its_tree() -> None:
    result = watch("two_children_hold_memory")
    assert 100 * MIB <= most(result, "process.memory.usage") < 130 * MIB
    assert 190 * MIB <= most(result, "memwatch.tree.memory.usage") < 250 * MIB
    assert most(result, "memwatch.tree.process.count") == 3
    assert most(result, "memwatch.process.memory.peak") >= 100 * MIB
    ended = {record["pid"]: record for record in of(result, "exit")}
    assert len(ended) == 3
    main = ended[result["root"]]
    assert (main["exit_code"], main["childless"]) == (0, False)
    assert main["peak"] <= main["peak_bound"]
    assert result["totals"]["processes"] == 3


def test_what_was_touched_and_freed_before_a_tick_is_in_the_watermark(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "touch_and_free",
        ready,
        after=ready,
    )
    assert most(result, "process.memory.usage") < 100 * MIB
    assert of(result, "exit")[0]["peak"] >= 300 * MIB - MIB


def test_cpu_time_of_reaped_children_is_in_the_tree() -> None:
    result = watch("children_burn_cpu")
    totals = result["totals"]
    assert 0.85 <= totals["cpu_user"] + totals["cpu_system"] < 2.5
    main = next(record for record in of(result, "exit") if record["pid"] == result["root"])
    assert main["cpu_user"] + main["cpu_system"] < 0.5


def test_totals_never_fall(tmp_path: Path) -> None:
    result = watch(
        "children_write_files",
        str(tmp_path / "f"),
        interval=0.01,
    )
    for name in (
        "memwatch.tree.cpu.time system",
        "memwatch.tree.syscall.io write",
        "memwatch.tree.disk.io write",
    ):
        values = [tick[name] for tick in result["ticks"]]
        assert values == sorted(values)
    # the kernel has counted every byte once, whether a tick saw the child or not
    assert 48 * MIB <= result["totals"]["write_chars"] < 49 * MIB


def test_daemon_that_leaves_its_parent_stays_in_the_tree() -> None:
    result = watch(
        "daemon",
    )
    assert most(result, "memwatch.tree.memory.usage") >= 50 * MIB
    exits = {record.get("exit_code") for record in of(result, "exit")}
    assert exits >= {0, 7}
    daemon = next(record for record in of(result, "exit") if record.get("exit_code") == 7)
    assert daemon["max_rss"] >= 50 * MIB
    assert daemon["childless"] is True
    assert result["totals"]["write_chars"] >= 3 * MIB


def test_orphan_that_no_tick_saw_is_reported_by_its_end(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "orphan_ends_at_once",
        ready,
        after=ready,
    )
    told = [record for record in of(result, "exit") if record.get("exit_code") == 9]
    assert len(told) == 1
    assert told[0]["note"] == "never seen alive"


def test_new_program_in_the_same_process_is_reported() -> None:
    result = watch("execute_sleep", interval=0.05)
    told = [record for record in of(result, "figures") if record.get("note") == "exec"]
    # twice where a tick sees it in mid-exec: the kernel moves the start of the stack once more
    assert 1 <= len(told) <= 2
    assert all((record["command"], record["argv"]) == ("sleep", ["sleep", "0.4"]) for record in told)
    assert of(result, "seen")[0]["argv"][1:] == ["-S", path_of("execute_sleep")]
    assert len({(record["pid"], record["start"]) for record in result["records"]}) == 1


def test_child_between_vfork_and_exec_does_not_count_its_parents_memory_again() -> None:
    result = watch(
        "child_in_parents_memory",
    )
    assert most(result, "memwatch.tree.process.count") == 2
    assert most(result, "memwatch.tree.memory.usage") < 260 * MIB


def test_quiet_tree_has_no_unobserved_processes(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    result = watch(
        "quiet_child",
        ready,
        after=ready,
    )
    # forks of other programs on this machine must not raise it
    before_the_end = [tick for tick in result["ticks"] if tick.get("memwatch.tree.process.count") == 2]
    assert len(before_the_end) > 5
    assert {tick["memwatch.tree.unobserved"] for tick in before_the_end} == {0}


def test_short_lived_children_are_bounded() -> None:
    result = watch(
        "spawn_true",
        interval=0.1,
    )
    seen = result["totals"]["processes"]
    assert seen + result["totals"]["unobserved"] >= 201


def test_children_whose_end_is_ignored_are_bounded() -> None:
    result = watch(
        "ignored_children",
        interval=0.1,
    )
    assert result["totals"]["processes"] + result["totals"]["unobserved"] >= 51
    assert any(record.get("note") == "ignores the end of its children" for record in result["records"])


def test_last_figures_of_a_child_whose_end_is_ignored_are_kept() -> None:
    result = watch(
        "ignored_child_burns_cpu",
        interval=0.05,
    )
    assert result["totals"]["cpu_user"] + result["totals"]["cpu_system"] >= 0.35
    notes = [record.get("note") for record in of(result, "exit")]
    assert "nobody waits for it" in notes


def test_death_by_signal_is_reported() -> None:
    result = watch("kill_itself")
    end = of(result, "exit")[0]
    assert end["signal"] == 9
    assert "exit_code" not in end


def test_hundreds_of_processes_with_few_descriptors() -> None:
    result = json.loads(printed(WATCH + "watch_with_few_descriptors", path_of("hundreds_of_children"))[-1])
    assert most(result, "memwatch.tree.process.count") == 301
    assert len(of(result, "exit")) == 301


def test_thread_heavy_process() -> None:
    result = watch(
        "many_threads",
        interval=0.05,
    )
    assert most(result, "memwatch.tree.thread.count") >= 201
    assert any(record.get("command") == "sleep" for record in result["records"])
    # the numbers that its threads used up are not taken for processes
    assert result["totals"]["unobserved"] < 100


@pytest.mark.quiet  # on a busy machine it takes long to begin
def test_main_thread_that_ends_first_does_not_hide_the_memory() -> None:
    result = watch(
        "main_thread_ends_first",
    )
    sizes = [tick["process.memory.usage"] for tick in result["ticks"] if "process.memory.usage" in tick]
    large = [size for size in sizes if size >= 80 * MIB]
    # it lives for 0.8 s without its main thread, 16 ticks; only while it begins and ends it is smaller
    assert len(large) > len(sizes) / 2


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run as another user")
def test_what_the_kernel_denies_is_unknown_and_not_zero() -> None:
    read, notes = map(json.loads, printed(WATCH + "watch_as_another_user", path_of("child_holds_memory")))
    values = dict(read)
    assert values["memwatch.tree.memory.usage"] >= 40 * MIB
    assert values["memwatch.tree.process.count"] == 2
    for name in (
        "memwatch.tree.disk.io read",
        "memwatch.tree.disk.io write",
        "memwatch.tree.syscall.io read",
    ):
        assert values[name] is None
    assert set(notes) == {"denied"}


def test_both_ways_of_reading_agree() -> None:
    program = "child_holds_until_told"
    ours, other = watch(program), watch(program, system="psutil")
    for name in ("memwatch.tree.memory.usage", "process.memory.usage"):
        assert most(ours, name) == pytest.approx(most(other, name), rel=0.05)
    for name in ("memwatch.tree.process.count", "memwatch.tree.thread.count"):
        assert most(ours, name) == most(other, name) == 2
    assert most(ours, "memwatch.tree.cpu.time user") == pytest.approx(
        most(other, "memwatch.tree.cpu.time user"), abs=0.2
    )
    assert most(ours, "process.memory.virtual") == pytest.approx(
        most(other, "process.memory.virtual"), rel=0.2
    )
    # A file that the interpreter has open for a moment may be seen by one and not by the other.
    assert most(ours, "process.unix.file_descriptor.count") == pytest.approx(
        most(other, "process.unix.file_descriptor.count"), abs=2
    )
    assert [r["event"] for r in other["records"] if r["pid"] == other["root"]][-1] == "exit"
    assert [record.get("exit_code") for record in of(other, "exit") if record["pid"] == other["root"]] == [0]
