"""What `pytest --memwatch` costs, how true its figures are, and whether suites of others run unchanged with it.

Run: python tests/bench/bench_pytest.py cost | planted [TESTS] | suites

`cost`: the start (budget 40 ms) and an empty test (40 us), each the difference of the best of several sessions with and without
it. Other work on the machine makes both larger: look at them on a quiet one. Without compiled code a test costs twice as much,
so it measures the installed package, and these sources only if there is none.
`planted`: 1 000 tests that touch 1 MiB to 1 GiB, in themselves or in a child, alone and with four workers.
`suites`: those of pluggy, attrs and numpy.lib, with and without it, and beside pytest-memray, xdist, rerunfailures, timeout
and asyncio. It downloads their sources, and these plugins, into a temporary directory.
The last two end with 1 where a figure is wrong, or a suite ends otherwise with it than without.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests/programs/pytest/planted.py"
OURS = ("-p", "otel_memwatch.plugins.pytest.options", "--memwatch")
INSTALLED = any(point.name == "memwatch" for point in entry_points(group="pytest11"))
MIB = 1 << 20
ROUNDS = 5

TIMES = """
import os, sys, time, pytest
started, spent = time.perf_counter(), []

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    spent.append(time.perf_counter() - started)

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol():
    begin = time.perf_counter()
    result = yield
    spent.append(time.perf_counter() - begin)
    return result

def pytest_unconfigure():
    tests = sorted(spent[1:])
    native = sys.modules.get("otel_memwatch.in_target.operations.native")
    with open(os.environ["TIMES"], "w") as out:
        out.write(f"{spent[0]} {tests[len(tests) // 10]} {tests[len(tests) // 2]} {int(native is not None and native.COMPILED)}")
"""
"""A plugin that is loaded first: seconds until the first test, and of a test (the quickest tenth, and the median), and 1 if
our code is compiled."""


def session(
    directory: Path, *options: str, python: str | Path = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": f"{directory}:{ROOT}"} | variables
    return subprocess.run(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def cost(python: str | Path | None = None) -> tuple[float, float]:
    """Print the cost of the start and of an empty test; return both in seconds. `python` has the package and pytest."""
    installed = python is not None or INSTALLED
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "times.py").write_text(TIMES)
        (directory / "test_empty.py").write_text(
            "import pytest\n@pytest.mark.parametrize('i', range(3000))\ndef test_it(i): pass\n"
        )
        best: dict[bool, list[float]] = {}
        for _ in range(ROUNDS):
            for ours in (False, True):
                out = directory / "out"
                plugins = ("-c", os.devnull, "-p", "times", *(OURS if ours else ()))
                cached = {
                    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                    "PYTHONPYCACHEPREFIX": str(directory / "pyc"),
                }
                if installed:
                    cached["PYTHONPATH"] = str(directory)
                session(
                    directory, *plugins, "test_empty.py", python=python or sys.executable,
                    TIMES=str(out), **cached, PYTHONDONTWRITEBYTECODE="",
                )  # fmt: skip
                *found, compiled = (float(word) for word in out.read_text().split())
                best[ours] = [min(pair) for pair in zip(found, best.get(ours, found), strict=True)]
        start, quick, median = (after - before for before, after in zip(best[False], best[True], strict=True))
        if not compiled:
            print("without compiled code, which doubles the cost of a test")
        print(f"start          {start * 1e3:6.1f} ms   {start / 40e-3:.2f} of the budget")
        print(
            f"an empty test  {quick * 1e6:6.1f} us   {quick / 40e-6:.2f} of the budget (median {median * 1e6:.1f} us)"
        )
    return start, quick


def planted(count: int) -> int:
    all_wrong = 0
    for workers in ((), ("-n", "4")):
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            (directory / "test_planted.py").write_text(PLANTED.read_text())
            ran = session(
                directory, "-c", os.devnull, *OURS[2 * INSTALLED :], *workers, "--memwatch-json=told", "test_planted.py",
                PLANTED_TESTS=str(count), PLANTED_LARGEST="1024",
            )  # fmt: skip
            tests = json.loads((directory / "told").read_text())["tests"]
        wrong = 0
        widths = []
        for nodeid, test in tests.items():
            size = int(re.search(r"\[(\d+)", nodeid)[1]) * MIB
            process, tree, start = test["process"], test["tree"], test["start"]
            inside = "test_own" in nodeid or "test_set_up" in nodeid
            own = size if inside else 0
            exact = process["certainty"] == "exact" and process["low"] <= start + own + 2 * MIB
            exact = exact and start + own <= process["high"] + MIB
            # A child's own interpreter comes on top of what it touches.
            holds = (tree["low"] <= start + size + 16 * MIB) and (
                tree["high"] or 1 << 62
            ) >= start + size - MIB
            if not (exact and holds):
                wrong += 1
                print(f"  {nodeid}: planted {size / MIB:.0f} MiB on {start / MIB:.1f}: {process} {tree}")
            if tree["high"] and not inside:
                widths.append(tree["high"] / (start + size))
        all_wrong += wrong + (len(tests) < count)
        widths.sort()
        width = f"{widths[len(widths) // 2]:.2f}" if widths else "none"
        label = " ".join(workers) or "alone"
        print(
            f"{label}: {len(tests)} tests, {wrong} wrong; upper bound with children, median: {width} of the truth"
        )
        print(f"  {ran.stdout.splitlines()[-1]}")
    return all_wrong


def outcome(text: str) -> str:
    last = text.rstrip().splitlines()[-1] if text.strip() else ""
    # Workers do not tell what was deselected, and each of them warns.
    return re.sub(r" in [\d.]+s.*|,? *\d+ (deselected|warnings?)", "", last).strip("= ")


def suites() -> int:
    different = 0
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        pip = [sys.executable, "-m", "pip", "-q"]
        plugins = [
            "pytest-memray",
            "pytest-rerunfailures",
            "pytest-asyncio",
            "pytest-timeout",
            "pytest-xdist",
        ]
        subprocess.run(
            [*pip, "install", "--target", directory / "plugins", "--no-deps", *plugins, "memray"], check=True
        )
        for project in ("pluggy", "attrs"):
            subprocess.run(
                [*pip, "download", "--no-deps", "--no-binary", ":all:", "-d", directory, project], check=True
            )
            (archive,) = directory.glob(f"{project}-*.tar.gz")
            subprocess.run(["tar", "xzf", archive, "-C", directory], check=True)
        pluggy, attrs = (next(p for p in directory.glob(f"{n}-*") if p.is_dir()) for n in ("pluggy", "attrs"))
        numpy = ("-c", os.devnull, "--pyargs", "numpy.lib", "-m", "not slow", "-W", "ignore")
        quiet = (
            "-o",
            "asyncio_default_fixture_loop_scope=function",
        )  # it warns otherwise, an error to some suites
        ours = OURS[2 * INSTALLED :]
        for label, place, tests in (
            ("pluggy", pluggy, ("testing", "--ignore=testing/benchmark.py")),
            ("attrs", attrs, ("tests",)),
            ("numpy.lib", directory, numpy),
        ):
            told = {
                what: outcome(
                    session(place, *options, *tests, PYTHONPATH=f"{ROOT}:{directory / 'plugins'}").stdout
                )
                for what, options in (
                    ("without", quiet),
                    ("with", (*quiet, *ours)),
                    ("with, -n 2", (*quiet, *ours, "-n", "2")),
                )
            }
            same = len(set(told.values())) == 1
            different += not same
            print(f"{label}: {'the same' if same else 'DIFFERENT'}")
            for what, text in told.items():
                print(f"  {what:12} {text}")
    return different


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "cost"
    if wanted == "cost":
        cost()
    elif wanted == "suites":
        sys.exit(bool(suites()))
    else:
        sys.exit(bool(planted(int(sys.argv[2]) if len(sys.argv) > 2 else 1000)))
