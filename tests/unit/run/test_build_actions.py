"""Which processes made which file, what each action needed, and how many fit at once."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from otel_memwatch.model import Peak
from otel_memwatch.reports import build_report
from otel_memwatch.run.build_actions import (
    BuildAction,
    beside_actions,
    build_actions,
    output_of,
    parallelism,
)
from otel_memwatch.run.results import ProcessFigures

MIB = 1 << 20


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("g++ -O2 -c -o obj/a.o a.cpp", "obj/a.o"),
        ("/usr/bin/x86_64-linux-gnu-gcc-12 -oa.out a.c", "a.out"),
        ("gcc -c a.c", None),
        ("gcc -c a.c -o", None),
        ("clang++-17 -c a.cpp -o a.o", "a.o"),
        ("ccache g++ -c a.cpp -o a.o", "a.o"),
        ("ld -ofile.so a.o", "file.so"),
        ("ar qc libx.a a.o b.o", "libx.a"),
        ("llvm-ar rcs libx.a a.o", "libx.a"),
        ("ar --version", None),
        ("tar -cf x.tar x", None),
        ("rustc --crate-name serde src/lib.rs", "crate serde"),
        ("rustc --crate-name serde -o out src/lib.rs", "out"),
        ("javac -d classes A.java", "classes"),
        ("protoc --output=gen a.proto", "gen"),
        ("python gen.py --output table.h", "table.h"),
        ("bash -o pipefail -c x", None),
        ("/bin/sh -c gcc -o a.o", None),
        ("grep -o x file", None),
        ("ps -o pid", None),
        ("make -o old", None),
        ("sleep 5", None),
        ("java -offline", None),
    ],
)
def test_the_output_that_a_command_names(command: str, output: str | None) -> None:
    assert output_of(command.split()) == output


def test_no_command_is_known() -> None:
    assert output_of(None) is None
    assert output_of([]) is None


def process(
    pid: int, ppid: int, command: str, start: float, end: float | None, mib: int, high: int | None = -1
) -> ProcessFigures:
    upper = mib if high == -1 else high
    peak = (
        Peak.interval(mib * MIB, None if upper is None else upper * MIB)
        if upper != mib
        else Peak.exact(mib * MIB)
    )
    argv = tuple(command.split())
    return ProcessFigures(pid, argv[0], argv, ppid, start, end, peak, cpu_seconds=1.0)


def no_bound(*_: float) -> int | None:
    return None


BUILD = [
    process(10, 1, "make -j2", 0.0, 9.0, 4),
    process(11, 10, "sh -c g++", 0.1, 4.0, 1),
    process(12, 11, "g++ -c -o a.o a.cpp", 0.1, 4.0, 3),
    process(13, 12, "cc1plus a.cpp -o /tmp/a.s", 0.2, 3.0, 200),
    process(14, 12, "as -o a.o /tmp/a.s", 3.1, 4.0, 20),
    process(15, 10, "g++ -c -o b.o b.cpp", 0.1, 5.0, 3),
    process(16, 15, "cc1plus b.cpp -o /tmp/b.s", 0.2, 5.0, 90, 110),
    # The pid of the first compiler again, of a link; and a.o once more, smaller.
    process(12, 10, "g++ -o app a.o b.o", 6.0, None, 3),
    process(17, 12, "ld -o app", 6.1, None, 40, None),
    process(18, 10, "g++ -c -o a.o a.cpp", 5.1, 5.9, 50),
]


def test_an_action_is_the_topmost_process_with_an_output_and_what_it_started() -> None:
    a, b, app = build_actions(BUILD, 9.0, no_bound)
    assert (a.output, a.times, a.program, a.processes) == ("a.o", 2, "cc1plus", 3)
    assert a.needed == 203 * MIB, "the assembler came after the compiler, the driver was there with both"
    assert a.peak == Peak.exact(200 * MIB)
    assert (a.start, a.seconds, a.cpu_seconds) == (0.1, pytest.approx(3.9), 3.0)
    assert (b.output, b.needed) == ("b.o", 113 * MIB), "the largest counts by its upper bound"
    assert (app.output, app.program, app.needed) == ("app", "ld", 43 * MIB)
    assert app.seconds == pytest.approx(3.0), "it was there at the end"
    assert beside_actions(BUILD) == 5 * MIB


def test_how_many_fit_at_once() -> None:
    actions = build_actions(BUILD, 9.0, no_bound)
    assert parallelism(actions, 5 * MIB, 200 * MIB)[:2] == (0, 5 * MIB)
    assert parallelism(actions, 5 * MIB, 208 * MIB)[:2] == (1, 208 * MIB)
    assert parallelism(actions, 5 * MIB, 340 * MIB)[:2] == (2, 321 * MIB)
    whole = parallelism(actions, 5 * MIB, 400 * MIB)
    assert (whole.jobs, whole.needed, whole.every) == (3, 364 * MIB, True)


def test_an_action_never_needed_more_than_the_tree_in_its_time() -> None:
    """Only the build tool's wait4 bounds a linker that ended between two samples: by its largest compiler."""
    link = process(30, 10, "ld -o app", 6.0, 6.1, 22, 311)
    asked = []

    def tree_bound(start: float, end: float) -> int | None:
        asked.append((start, end))
        return 31 * MIB if start > 5 else None

    a, app = build_actions([*BUILD[:5], link], 6.05, tree_bound)
    assert (a.needed, app.needed) == (203 * MIB, 31 * MIB)
    assert asked[1:] == [pytest.approx((5.99, 6.05))], "its end was noticed after the end of the run"
    (small,) = build_actions([link], 6.05, lambda *_: 9 * MIB)
    assert (small.needed, small.seen) == (9 * MIB, 9 * MIB), "sizes of processes include files"


def test_a_wide_range_makes_no_largest_action() -> None:
    """A linker that lived between two samples: its lower bound is what is certain."""
    link = process(30, 10, "ld -o app", 6.0, 6.1, 22, 311)
    actions = build_actions([*BUILD[:5], link], 9.0, no_bound)
    assert [(one.output, one.seen // MIB, one.needed // MIB) for one in actions] == [
        ("a.o", 203, 203),
        ("app", 22, 311),
    ]
    fits = parallelism(actions, 5 * MIB, 600 * MIB)
    assert (fits.jobs, fits.needed // MIB) == (2, 519)
    text = io.BytesIO()
    run: Any = SimpleNamespace(
        processes=[*BUILD[:5], link],
        seconds=9.0,
        totals={},
        host={},
        limits={},
        recorded_limit=None,
        command=("make",),
        tree_bound=no_bound,
    )
    build_report.render(run, text, {"within": 600 * MIB})
    first, second, *_ = text.getvalue().decode().splitlines()[1:]
    assert first.split()[:4] == ["200.0", "MiB", "exact", "203.0"]
    assert second.split()[:5] == ["22.0-311", "MiB", "range", "311.0", "MiB"]
    assert "All at once need up to 519.0 MiB of 600.0 MiB" in text.getvalue().decode()


def test_a_record_that_makes_no_sense_does_not_keep_us() -> None:
    circle = [process(1, 2, "g++ -o x", 0.0, 1.0, 5), process(2, 1, "g++ -o y", 0.0, 1.0, 6)]
    found = build_actions(circle, 1.0, no_bound)
    assert all(isinstance(action, BuildAction) for action in found)
    assert sum(action.processes for action in found) == 2
    alone = ProcessFigures(5, None, ("cc", "-o", "z"), None, 0.0, None, None)
    (action,) = build_actions([alone], 1.0, no_bound)
    assert (action.needed, action.peak, action.cpu_seconds) == (0, None, None)
