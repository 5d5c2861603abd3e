"""/proc with hidepid, as an unprivileged user: what cannot be seen is neither left out of a figure nor bounded by one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from otel_memwatch.runtime.kernel import rss_error
from tests.support import counters
from tests.support.torture import Trial, needs_root, trial
from tests.support.wrapped import work

MIB = 1 << 20
NOBODY = 65534
TAKES = 200
"""MiB that the program with the set-user-id bit takes."""

_PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    size_t bytes = (size_t)atoi(words[1]) << 20;
    volatile char *memory = memset(malloc(bytes), 1, bytes);
    usleep(atoi(words[2]) * 1000);
    return count - 3 + (memory[bytes - 1] != 1);
}
"""


@pytest.fixture
def helper(tmp_path: Path) -> Path:
    """Takes MiB for milliseconds; it runs as root, also if another user starts it."""
    needs_root()
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler (Debian package gcc)"
    (tmp_path / "helper.c").write_text(_PROGRAM)
    program = tmp_path / "helper"
    subprocess.run([compiler, "-O1", "-o", program, tmp_path / "helper.c"], check=True)
    program.chmod(0o4755)
    tmp_path.chmod(0o777)
    return program


def recorded(
    run: Trial, argv: list[str], options: str | None, *, groups: str = "", few_files: bool = False
) -> dict[str, Any]:
    """The report of a run by an unprivileged user, below a /proc mounted with `options`; `few_files`: no user may open many."""
    reading = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    which = ["--groups", groups] if groups else ["--clear-groups"]
    user = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), *which, *reading]
    mounting = "true" if options is None else f"mount -t proc -o {options} proc /proc"
    command = run.command(argv, "--cgroup", "off", "--interval", "0.02")
    place = ["unshare", "--mount", "sh", "-c", f'{mounting} && exec "$@"', "sh"]
    few = ["prlimit", "--nofile=100:100"] if few_files else []
    outcome = run.run([*place, *few, *user, *command])
    assert outcome.code == 0, outcome.err
    assert "Traceback" not in outcome.err
    return run.report().json


SCRIPTS = {
    "waited for": "{helper} 200 800; true",
    "left behind": "{helper} 200 800 & sleep 0.3; exit 0",
    "short": "{helper} 200 5; true",
}


@pytest.mark.parametrize("options", ["hidepid=2", "hidepid=1"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_figure_is_certain_that_leaves_the_hidden_out(
    tmp_path: Path, helper: Path, script: str, options: str
) -> None:
    with trial(tmp_path) as run:
        report = recorded(run, ["sh", "-c", script.format(helper=helper)], options)
    for name in ("process", "tree"):
        peak = report["peaks"][name]
        if peak is None:  # the shell had ended before a tick saw it
            continue
        assert peak["high"] is None or peak["high"] >= TAKES * MIB, (name, peak)
        assert (peak["low"] or 0) <= (TAKES + 10) * MIB, (name, peak)
    assert any("hidepid" in quirk for quirk in report["trouble"]["quirks"])


def test_what_the_kernel_reported_of_the_hidden_is_the_lower_end(tmp_path: Path, helper: Path) -> None:
    """Without descriptors to spare: a sample may read the helper before its exec, and descriptors opened then stay readable."""
    with trial(tmp_path) as run:
        script = SCRIPTS["waited for"].format(helper=helper)
        report = recorded(run, ["sh", "-c", script], "hidepid=2", few_files=True)
    process, tree = report["peaks"]["process"], report["peaks"]["tree"]
    assert TAKES * MIB <= process["low"] <= (TAKES + 10) * MIB, report["peaks"]
    # Its file pages are unknown: its size is no lower bound of the memory that the tree needed.
    assert 0 < tree["low"] <= (TAKES + 10) * MIB, report["peaks"]
    assert process["high"] is None
    assert tree["high"] is None
    (hidden,) = [process for process in report["processes"] if process["note"] == "hidden from us"]
    assert hidden["end"] is not None
    assert hidden["peak"] is None


def test_one_that_was_seen_before_its_exec_stays_readable(tmp_path: Path, helper: Path) -> None:
    """hidepid refuses to open files of a process. It does not refuse to read those that were open before."""
    seen = """until grep -q '"pid":'"$(sh -c 'echo $PPID')" $OTEL_MEMWATCH_RUN_DIR/processes.jsonl; do sleep 0.05; done"""
    with trial(tmp_path) as run:
        report = recorded(run, ["sh", "-c", f"({seen}; exec {helper} 200 800); true"], "hidepid=2")
    process = report["peaks"]["process"]
    assert TAKES * MIB - rss_error() <= process["low"] <= process["high"] <= (TAKES + 10) * MIB
    assert "hidden from us" not in [process["note"] for process in report["processes"]]


def test_one_that_becomes_hidden_after_it_was_seen_has_not_ended(tmp_path: Path, helper: Path) -> None:
    """Without descriptors to spare its files are opened anew each time, in vain from then on."""
    script = f"(sleep 0.3; exec {helper} 200 800) & sleep 0.8; exit 0"
    with trial(tmp_path) as run:
        report = recorded(run, ["sh", "-c", script], "hidepid=2", few_files=True)
    for name in ("process", "tree"):
        peak = report["peaks"][name]
        if peak is None:  # the shell had ended before a tick saw it
            continue
        assert peak["high"] is None or peak["high"] >= TAKES * MIB, (name, peak)
    (hidden,) = [process for process in report["processes"] if process["note"] == "hidden from us"]
    assert hidden["end"] is None, "it outlives the run"


def test_nothing_changes_where_all_are_seen(tmp_path: Path, helper: Path) -> None:
    """Without hidepid, and with it for the group that it lets in."""
    for number, (options, groups) in enumerate([(None, ""), ("hidepid=2,gid=1234", "1234")]):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        with trial(folder) as run:
            script = SCRIPTS["waited for"].format(helper=helper)
            report = recorded(run, ["sh", "-c", script], options, groups=groups)
        process = report["peaks"]["process"]
        assert process["certainty"] == counters.of_process(process["bytes"]), report["peaks"]
        assert TAKES * MIB - rss_error() <= process["bytes"] <= (TAKES + 10) * MIB
        assert not any("hidepid" in quirk for quirk in report["trouble"]["quirks"])


def test_a_run_without_hidden_processes_stays_exact(tmp_path: Path, helper: Path) -> None:
    """The mount alone takes nothing away."""
    del helper
    with trial(tmp_path) as run:
        report = recorded(run, work("( a30 s500 ) ( a20 s500 ) s300 w x0"), "hidepid=2")
    process, tree = report["peaks"]["process"], report["peaks"]["tree"]
    assert process["certainty"] == counters.of_process(process["bytes"]), process
    assert tree["high"] is not None, tree
