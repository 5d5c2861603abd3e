"""`pytest --memwatch` in real sessions: figures, limits, workers, and surroundings that let it down."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.support import counters
from tests.support.control_group import group, memory_parent
from tests.support.marked import MIB, PROGRAMS, ROOT
from tests.support.wrapped import environment

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="asks /proc for exact figures"
)

PLANTED = PROGRAMS / "pytest" / "planted.py"
TOLERANCE = 1.5 * MIB
"""Python's own heap moves by as much while a test runs, and its size before is known no better than its peak."""


def run_tests(
    directory: Path, *options: str, tests: str | Path = "", python: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """A session of pytest on one file of tests, with nothing of this project's configuration."""
    file = directory / "test_it.py"
    file.write_text(tests.read_text() if isinstance(tests, Path) else textwrap.dedent(tests))
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={directory}"]
    plugins = ["-p", "no:cacheprovider", "-p", "otel_memwatch.plugins.pytest.options"]
    return subprocess.run(
        [*python, *pytest_command, *plugins, *options, file],
        cwd=directory,
        env=environment(PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )


def properties(report: Path) -> dict[str, dict[str, str]]:
    """What JUnit's report says of each test."""
    return {
        case.attrib["name"]: {found.attrib["name"]: found.attrib["value"] for found in case.iter("property")}
        for case in ET.parse(report).iter("testcase")
    }


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param((), id="alone"),
        pytest.param(("-p", "xdist.plugin", "-n", "2"), id="workers", marks=pytest.mark.thorough),
    ],
)
def test_planted_peaks_are_found(tmp_path: Path, workers: tuple[str, ...]) -> None:
    told = tmp_path / "told.json"
    session = run_tests(
        tmp_path, "--memwatch", *workers, "--junitxml=junit.xml", f"--memwatch-json={told}", tests=PLANTED
    )
    assert session.returncode == 0, session.stdout
    of_junit = properties(tmp_path / "junit.xml")
    tests = json.loads(told.read_text())["tests"]
    assert len(tests) == len(of_junit) == 40 + 10 + 10 + 5
    for name, test in tests.items():
        size = int(re.search(r"\[(\d+)", name)[1]) * MIB
        process, tree, start = test["process"], test["tree"], test["start"]
        if "test_own" in name or "test_set_up" in name:
            certainty = counters.of_process(process["bytes"])
            assert process["certainty"] == certainty, name
            assert process["low"] - start <= size + TOLERANCE, name
            assert size <= process["high"] - start + TOLERANCE, name
            assert tree == process, name
            junit = of_junit[name.rpartition("::")[2]]
            assert int(junit["memwatch.peak"]) == process["bytes"]
            assert junit["memwatch.certainty"] == certainty
            phase = "call" if "test_own" in name else "setup"
            assert process["bytes"] - test["phases"][phase]["bytes"] <= TOLERANCE, name
        else:
            # The child's own interpreter comes on top of what it touches.
            assert process["high"] - start <= 3 * MIB, name
            assert tree["low"] <= start + size + 16 * MIB, name
            assert start + size <= tree["high"] + TOLERANCE, name


def test_a_limit_fails_the_test_that_is_beyond_it(tmp_path: Path) -> None:
    session = run_tests(
        tmp_path,
        "--memwatch",
        tests="""
        import mmap, pytest, subprocess, sys

        def hold(mib):
            with mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE) as memory:
                for _ in range(mib): memory.write(b"x" * (1 << 20))

        @pytest.mark.memwatch(limit="2 GiB", added="50 MiB", growth="10MiB", tree="3 GiB")
        def test_within(): hold(20)

        @pytest.mark.memwatch(added="10 MiB")
        def test_added(): hold(20)

        kept = []
        @pytest.mark.memwatch(growth="10 MiB")
        def test_growth():
            kept.append(mmap.mmap(-1, 20 << 20))
            for _ in range(20): kept[0].write(b"x" * (1 << 20))

        @pytest.mark.memwatch(tree="90 MiB")
        def test_tree(): subprocess.run([sys.executable, "-c", "x = b'x' * (200 << 20)"], check=True)

        @pytest.mark.limit_memory("15 MB")
        def test_limit_memory(): hold(30)

        @pytest.mark.xfail
        @pytest.mark.memwatch(added="1 MiB")
        def test_expected(): hold(20)

        @pytest.mark.memwatch(added="1 MiB")
        class TestClass:
            def test_inherits(self): hold(20)
            @pytest.mark.memwatch(added="30 MiB")
            def test_has_a_separate_limit(self): hold(20)
        """,
    )
    assert session.returncode == 1
    failed = set(re.findall(r"^FAILED test_it.py::(\S+)", session.stdout, re.MULTILINE))
    assert failed == {
        "test_added",
        "test_growth",
        "test_tree",
        "test_limit_memory",
        "TestClass::test_inherits",
    }
    assert "1 xfailed" in session.stdout
    assert re.search(r"memory: added \d+\.\d-2\d\.\d MiB; limit 10.0 MiB", session.stdout)


@pytest.mark.parametrize(
    "mark",
    [
        'limit="200 XB"',
        'limt="1 MiB"',
        *(
            pytest.param(mark, marks=pytest.mark.thorough)
            for mark in ('limit="-1 MiB"', 'added="nan MiB"', '"1 MiB"')
        ),
    ],
)
def test_a_limit_that_cannot_be_used_is_reported_before_anything_runs(tmp_path: Path, mark: str) -> None:
    session = run_tests(
        tmp_path,
        "--memwatch",
        tests=f"""
        import pytest
        def test_first(): open("ran", "w").close()
        @pytest.mark.memwatch({mark})
        def test_it(): pass
        """,
    )
    assert session.returncode == pytest.ExitCode.USAGE_ERROR, session.stdout
    assert "test_it.py::test_it" in session.stdout
    assert not (tmp_path / "ran").exists()


def test_an_option_that_cannot_be_used_is_reported_before_anything_runs(tmp_path: Path) -> None:
    session = run_tests(tmp_path, "--memwatch", "--memwatch-limit=2X", tests="def test_it(): pass")
    assert session.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--memwatch-limit" in session.stdout


def test_pytest_shows_its_help_with_the_options(tmp_path: Path) -> None:
    """As in every project whose environment has the package, also without the option."""
    session = run_tests(tmp_path, "--help", COLUMNS="200")
    assert session.returncode == 0, session.stdout
    shown = [line.strip() for line in session.stdout.splitlines()]
    for start, end in (
        ("--memwatch ", "measure the memory of every test"),
        ("--memwatch-fail=+SHARE", 'such as "+5%"'),
        ("memwatch_fail (string):", 'such as "+5%"'),
        ("--memwatch-out=DIR", "(default: memwatch-runs/<time>-pytest-<pid>)"),
    ):
        (number,) = [number for number, line in enumerate(shown) if line.startswith(start)]
        assert any(line.endswith(end) for line in shown[number : number + 3]), shown[number : number + 3]


def test_without_the_option_nothing_is_loaded(tmp_path: Path) -> None:
    session = run_tests(
        tmp_path,
        "--strict-markers",
        tests="""
        import pytest, sys
        @pytest.mark.memwatch(limit="1 MiB")
        def test_it():
            ours = {name for name in sys.modules if name.startswith("otel_memwatch")}
            assert not {name for name in ours if "runtime" not in name} - {
                "otel_memwatch", "otel_memwatch._version", "otel_memwatch.plugins",
                "otel_memwatch.plugins.pytest", "otel_memwatch.plugins.pytest.options"}
        """,
    )
    assert session.returncode == 0, session.stdout
    assert not (tmp_path / "memwatch-runs").exists()


KILLED = """
import os, signal
def test_before(): pass
def test_that_dies():
    x = b"x" * (64 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
def test_after(): pass
"""


def test_the_test_in_which_pytest_died_is_named(tmp_path: Path) -> None:
    session = run_tests(tmp_path, "--memwatch", tests=KILLED)
    assert session.returncode == -signal.SIGKILL
    (line,) = [line for line in session.stdout.splitlines() if "otel-memwatch: " in line]
    assert "test_it.py::test_that_dies" in line
    assert "MiB" in line


def test_the_test_in_which_a_worker_died_is_named(tmp_path: Path) -> None:
    session = run_tests(tmp_path, "--memwatch", "-p", "xdist.plugin", "-n", "1", tests=KILLED)
    assert session.returncode == 1, session.stdout
    assert "2 passed" in session.stdout
    (line,) = re.findall(r"^memory: the worker .*", session.stdout, re.MULTILINE)
    assert "test_it.py::test_that_dies" in line


def test_of_a_worker_that_died_in_a_run_around_it_no_separate_record_is_reported(tmp_path: Path) -> None:
    wrap = (sys.executable, "-m", "otel_memwatch", "wrap", "--out=run", "--quiet", "--no-report", "--")
    workers = ("-p", "xdist.plugin", "-n", "1")
    session = run_tests(tmp_path, "--memwatch", *workers, tests=KILLED, python=wrap)
    assert "2 passed" in session.stdout
    assert re.findall(r"^recorded +(.+)$", session.stdout, re.MULTILINE) == ["run"]


HUNGRY = """
import os, pathlib, time
def test_before():
    ticks = pathlib.Path(os.environ["OTEL_MEMWATCH_RUN_DIR"], "samples.jsonl")
    until = time.monotonic() + 60
    while time.monotonic() < until and not (ticks.exists() and ticks.read_bytes().count(b"\\n") > 1):
        time.sleep(0.01)
def test_hungry():
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")  # it, and not the session that waits for it
    kept = []
    while True:
        kept.append(bytearray(b"x") * (4 << 20))
        time.sleep(0.01)
def test_after(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")], ids=["alone", "workers"])
def test_the_test_that_the_oom_killer_took_is_named(tmp_path: Path, workers: tuple[str, ...]) -> None:
    with group(300 * MIB) as limited:
        inside = ("sh", "-c", 'echo 0 >"$0/cgroup.procs" && exec "$@"', str(limited.path))
        session = run_tests(tmp_path, "--memwatch", *workers, tests=HUNGRY, python=inside)
    found = re.findall(r".*killed by the kernel's OOM killer.*", session.stdout)
    assert len(found) == 1, (session.returncode, session.stdout)
    (line,) = found
    had = re.search(r"during test_it.py::test_hungry; memory: (?:at least |at most )?([\d.]+)", line)
    assert had, line
    assert 150 <= float(had[1]) <= 301
    if workers:
        assert "2 passed" in session.stdout
        # As many workers as had the test that was killed as well.
        assert re.search(
            r"^workers   suggested .*: at least \d{3}\.\d MiB each of 300.0 MiB", session.stdout, re.MULTILINE
        )


def test_under_a_limit_of_wrap_the_test_that_wanted_more_is_named(tmp_path: Path) -> None:
    memory_parent()
    wrap = (sys.executable, "-m", "otel_memwatch", "wrap", "--out=run", "--no-report", "--limit=200MiB", "--")
    session = run_tests(tmp_path, "--memwatch", python=wrap, tests=HUNGRY)
    assert session.returncode == -signal.SIGKILL
    assert "killed at the 200.0 MiB limit, during test_it.py::test_hungry" in session.stdout


def test_a_session_that_a_user_stops_was_not_killed(tmp_path: Path) -> None:
    session = run_tests(
        tmp_path, "--memwatch", tests="import os, signal\ndef test_it(): os.kill(os.getpid(), signal.SIGINT)"
    )
    assert session.returncode == pytest.ExitCode.INTERRUPTED, session.stdout
    assert " during test_it.py" not in session.stdout


FAILING = """
import pytest
def test_passes(): pass
def test_fails(): assert not 1
def test_skips(): pytest.skip("so")
"""


TAKES_DESCRIPTORS = """
import os, pytest

@pytest.fixture(scope="session", autouse=True)
def closes_what_it_does_not_know():
    used = [int(name) for name in os.listdir("/proc/self/fd") if 3 <= int(name) < HIGHEST]
    os.closerange(3, HIGHEST)
    for number in used:
        opened = os.open(f"mine{number}", os.O_RDWR | os.O_CREAT)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
    yield
    for number in used:
        assert os.fstat(number).st_size == os.lseek(number, 0, os.SEEK_CUR) == 0

def test_one(): pass
def test_two(): assert len(bytearray(20 << 20))
"""


@pytest.mark.parametrize("highest", [256, 4096])
def test_a_session_whose_fixture_takes_our_descriptors_passes(tmp_path: Path, highest: int) -> None:
    tests = TAKES_DESCRIPTORS.replace("HIGHEST", str(highest))
    session = run_tests(tmp_path, "--memwatch", "-s", "-p", "no:faulthandler", tests=tests)
    assert session.returncode == 0, session.stdout
    assert "Traceback" not in session.stdout
    assert "2 passed" in session.stdout
    assert "::test_two" in session.stdout
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("mine*"))


def test_a_run_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "memwatch-runs").write_text("in the way")
    session = run_tests(tmp_path, "--memwatch", tests=FAILING, TMPDIR=str(tmp_path))
    assert session.returncode == 1
    assert "1 failed, 1 passed, 1 skipped" in session.stdout
    assert sum("otel-memwatch: " in line for line in session.stdout.splitlines()) == 1
    assert f"recorded in {tmp_path}/memwatch-runs-" in session.stdout


def test_no_directory_at_all_is_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "file"
    gone.write_text("")
    session = run_tests(
        tmp_path, "--memwatch", f"--memwatch-out={gone}/run", tests=FAILING, TMPDIR=f"{gone}/no"
    )
    assert "1 failed, 1 passed, 1 skipped" in session.stdout
    assert session.returncode == 1
    assert sum("otel-memwatch: " in line for line in session.stdout.splitlines()) <= 1


def test_figures_of_fixtures_and_collection_stand_apart(tmp_path: Path) -> None:
    session = run_tests(
        tmp_path,
        "--memwatch",
        tests="""
        import pytest
        @pytest.fixture(scope="session")
        def large(): return b"x" * (40 << 20)
        def test_first(large): pass
        def test_second(large): pass
        """,
    )
    assert session.returncode == 0
    assert re.search(r"\+(39|40)\.\d MiB .* large \[session\] +test_it.py::test_first", session.stdout)


MIXED = """
import pytest
@pytest.fixture
def held():
    held = b"x" * (20 << 20)
    yield
    del held
@pytest.fixture
def broken(): raise ValueError
def test_whole(): pass
def test_phases(held): x = b"x" * (40 << 20)
def test_whole_again(): x = b"x" * (30 << 20)
class TestClass:
    def test_in_class(self): x = b"x" * (10 << 20)
def test_skipped(): pytest.skip("so")
def test_broken(broken): pass
@pytest.mark.parametrize("mib", [25])
def test_last(mib): x = b"x" * (mib << 20)
"""
PHASES_OF_MIXED = {
    "test_whole": ["call"],
    "test_phases": ["call", "setup", "teardown"],
    "test_whole_again": ["call"],
    "test_in_class": ["call", "setup", "teardown"],
    "test_skipped": ["call"],
    "test_broken": ["setup", "teardown"],
    "test_last[25]": ["call"],
}

RUN_IN_CHILDREN = """
import marshal, os, pytest
from _pytest.runner import runtestprotocol

class Runner:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        # Like pytest-forked: a child runs the test, and its reports are printed here.
        hooks, ends = item.config.hook, os.pipe()
        child = os.fork()
        if not child:
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            data = [hooks.pytest_report_to_serializable(config=item.config, report=one) for one in reports]
            os.write(ends[1], marshal.dumps(data))
            os._exit(0)
        os.close(ends[1])
        with open(ends[0], "rb") as found:
            data = marshal.loads(found.read())
        os.waitpid(child, 0)
        for one in data:
            report = hooks.pytest_report_from_serializable(config=item.config, data=one)
            hooks.pytest_runtest_logreport(report=report)
        return True

def pytest_configure(config): config.pluginmanager.register(Runner())
"""

RUN_TWICE = """
import pytest
from _pytest.runner import runtestprotocol

class Runner:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        # Like plugins that repeat a failed test: only the last reports are printed.
        runtestprotocol(item, log=False, nextitem=nextitem)
        runtestprotocol(item, nextitem=nextitem)
        return True

def pytest_configure(config): config.pluginmanager.register(Runner())
"""


@pytest.mark.parametrize(
    ("runner", "options"),
    [
        pytest.param("", (), id="pytest"),
        pytest.param(RUN_IN_CHILDREN, (), id="children"),
        pytest.param(RUN_TWICE, (), id="twice"),
        pytest.param("", ("-p", "xdist.plugin", "-n", "1"), id="worker"),
    ],
)
def test_each_phase_is_measured_however_tests_are_run(
    tmp_path: Path, runner: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "own_runner.py").write_text(runner)
    session = run_tests(
        tmp_path,
        "--memwatch",
        "--memwatch-json=told",
        "--junitxml=junit.xml",
        *options,
        "-p",
        "own_runner",
        tests=MIXED,
    )
    assert re.search(r"\b5 passed, 1 skipped, 1 error", session.stdout), session.stdout
    tests = json.loads((tmp_path / "told").read_text())["tests"]
    found = {name.rpartition("::")[2]: sorted(test["phases"]) for name, test in tests.items()}
    assert found == PHASES_OF_MIXED
    of_junit = properties(tmp_path / "junit.xml")
    for name, test in tests.items():
        assert int(of_junit[name.rpartition("::")[2]]["memwatch.peak"]) == test["process"]["bytes"], name
    smallest = tests["test_it.py::test_whole"]["start"]
    for name, mib in {"test_phases": 60, "test_whole_again": 30, "test_last[25]": 25}.items():
        assert tests[f"test_it.py::{name}"]["process"]["high"] >= smallest + mib * MIB - TOLERANCE, name


SUBTESTS = """
import unittest
def hold(mib): return len(bytearray(mib << 20))
def test_with_fixture(subtests):
    for _ in range(2):
        with subtests.test(): hold(20)
    hold(80)
class TestCase(unittest.TestCase):
    def test_of_unittest(self):
        for _ in range(2):
            with self.subTest(): hold(20)
        hold(80)
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9 has subtests of its own")
def test_a_call_ends_behind_its_subtests(tmp_path: Path) -> None:
    """Each of them makes a report of the call, long before its end."""
    session = run_tests(tmp_path, "--memwatch", "--memwatch-json=told", tests=SUBTESTS)
    assert session.returncode == 0, session.stdout
    tests = json.loads((tmp_path / "told").read_text())["tests"]
    assert len(tests) == 2
    for name, test in tests.items():
        assert test["process"]["high"] >= test["start"] + 80 * MIB - TOLERANCE, name


def test_under_wrap_the_run_is_joined(tmp_path: Path) -> None:
    wrap = (sys.executable, "-m", "otel_memwatch", "wrap", "--out=run", "--quiet", "--no-plot", "--")
    session = run_tests(tmp_path, "--memwatch", python=wrap, tests="def test_it(): x = b'x' * (30 << 20)")
    assert session.returncode == 0, session.stdout
    assert not (tmp_path / "memwatch-runs").exists()
    added = {"exact": r"\+(29|30)\.\d MiB  exact ", "interval": r"\+2\d\.\d-3\d\.\d MiB  range "}
    assert re.search(added[counters.of_process(70 * MIB)] + ".*test_it.py::test_it", session.stdout)
    assert any("test_it.py::test_it" in path.read_text() for path in (tmp_path / "run").glob("operations-*"))


GROWING = """
import mmap, os
def hold(mib):
    with mmap.mmap(-1, mib << 20, mmap.MAP_PRIVATE) as memory:
        for _ in range(mib): memory.write(b"x" * (1 << 20))
def test_same(): hold(20)
def test_grows(): hold(int(os.environ["MIB"]))
"""


def test_a_test_that_needs_more_than_in_the_baseline_fails_the_session(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    saved = run_tests(tmp_path, "--memwatch", f"--memwatch-save={baseline}", tests=GROWING, MIB="20")
    assert saved.returncode == 0, saved.stdout
    assert str(tmp_path) not in baseline.read_text()
    for size, code in (("20", 0), ("30", 1)):
        session = run_tests(
            tmp_path,
            "--memwatch",
            f"--memwatch-compare={baseline}",
            "--memwatch-fail=+5%",
            tests=GROWING,
            MIB=size,
        )
        assert session.returncode == code, session.stdout
        assert "2 passed" in session.stdout
        assert bool(re.search(r"test_it.py::test_grows .*regressed", session.stdout)) == bool(code)
        assert not re.search(r"test_it.py::test_same .*regressed", session.stdout)


@pytest.mark.parametrize("end", ["pytest.skip()", "pytest.xfail()", "assert not 'so large'"])
def test_a_test_that_did_not_pass_is_not_part_of_a_baseline(tmp_path: Path, end: str) -> None:
    tests = f"""
    import os, pytest
    def test_other(): pass
    def test_it():
        if os.environ["MIB"] == "0": {end}
        held = b"x" * (int(os.environ["MIB"]) << 20)
    """
    first, second = ("0", "30") if "assert" not in end else ("30", "0")
    saved = run_tests(tmp_path, "--memwatch", "--memwatch-save=sizes", tests=tests, MIB=first)
    assert saved.returncode == 0, saved.stdout
    session = run_tests(
        tmp_path, "--memwatch", "--memwatch-compare=sizes", "--memwatch-fail=+5%", tests=tests, MIB=second
    )
    assert session.returncode == int(second == "0"), session.stdout
    assert not re.search(r"test_it.py::test_it .*(regressed|improved)", session.stdout), session.stdout


@pytest.mark.thorough
def test_workers_are_judged_by_a_baseline_of_several_sessions(tmp_path: Path) -> None:
    workers = ("--memwatch", "-p", "xdist.plugin", "-n", "2")
    baseline = tmp_path / "baseline.json"
    compare = (f"--memwatch-compare={baseline}", "--memwatch-fail=+5%")
    for sessions in (1, 2, 3):
        added = run_tests(tmp_path, *workers, f"--memwatch-add={baseline}", tests=GROWING, MIB="20")
        assert added.returncode == 0, added.stdout
        assert len(json.loads(baseline.read_text())["runs"]) == sessions
        if sessions == 1:
            early = run_tests(tmp_path, *workers, *compare, tests=GROWING, MIB="30")
            assert early.returncode == 0, early.stdout
            assert "record 3 baseline sessions (--memwatch-add)" in early.stdout
    more = run_tests(tmp_path, *workers, *compare, tests=GROWING, MIB="30")
    assert more.returncode == 1, more.stdout
    assert re.search(r"test_it.py::test_grows .*regressed", more.stdout)
    same = run_tests(tmp_path, *workers, *compare, tests=GROWING, MIB="20")
    assert same.returncode == 0, same.stdout


@pytest.mark.parametrize("option", ["--memwatch-fail=5", "--memwatch-compare=none", "--memwatch-top=many"])
def test_a_comparison_that_cannot_be_made_is_reported_before_anything_runs(
    tmp_path: Path, option: str
) -> None:
    session = run_tests(tmp_path, "--memwatch", option, tests="def test_it(): open('ran', 'w').close()")
    assert session.returncode == pytest.ExitCode.USAGE_ERROR, session.stdout
    assert not (tmp_path / "ran").exists()


def test_a_bad_mark_is_reported_by_workers_too(tmp_path: Path) -> None:
    session = run_tests(
        tmp_path,
        "--memwatch",
        "-p",
        "xdist.plugin",
        "-n",
        "1",
        tests="""
        import pytest
        def test_first(): open("ran", "w").close()
        @pytest.mark.memwatch(limit="200 XB")
        def test_it(): pass
        """,
    )
    assert session.returncode not in {0, 3}, session.stdout
    assert "test_it.py::test_it: limit: '200 XB'" in session.stdout
    assert not (tmp_path / "ran").exists()
