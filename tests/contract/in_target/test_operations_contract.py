"""Both implementations of operations keep one contract: `plain.py` is its specification, `_native.c` does the same.

OTEL_MEMWATCH_TEST_PROGRAMS=3000 tries that many new programs; without it a few, always the same.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import activate, deactivate, native, plain, process_state, recorder
from otel_memwatch.in_target.operations.operation_values import LiveOperation
from otel_memwatch.in_target.operations.recorder import Recorder
from otel_memwatch.record.operation_writer import CLOSING, END, OPENING
from otel_memwatch.record.segments import Segments
from otel_memwatch.runtime import kernel
from otel_memwatch.runtime.exactness import EXACT_BYTES, EXACT_PARTS, is_exact, is_small
from tests.support import counters
from tests.support.marked import ROOT
from tests.support.standin_torch import Torch
from tests.support.wrapped import environment

PROGRAMS = int(os.environ.get("OTEL_MEMWATCH_TEST_PROGRAMS", "0"))
PROGRAM = Path(__file__).parents[2] / "programs" / "marks_in_any_way.py"
MIB = 1 << 20
LINUX = sys.platform == "linux" or "CI" in os.environ

pytestmark = pytest.mark.skipif(not LINUX, reason="compiled for Linux only")
compiled = pytest.mark.skipif(not native.COMPILED, reason="installed without a compiler")


@pytest.mark.skipif(bool(os.environ.get(native.PLAIN_VARIABLE)), reason="switched off")
def test_compiled_code_exists() -> None:
    if not native.COMPILED and "CI" not in os.environ:
        pytest.skip("installed without a compiler")
    assert native.COMPILED


# The same programs.

THREADS = [0, 0, 1, 2]
NAMES = [
    "load",
    'quo"ted',
    "back\\slash",
    "tab\t",
    "naïve",
    "名" * 9,
    "x" * 512,
    "y" * 600,
    "a" + "\U0001f600" * 9,
    "\udc80",
]
ACTIONS: dict[str, st.SearchStrategy[Any]] = {
    "open_one": st.sampled_from(NAMES),
    "close_one": st.none(),
    "close_other": st.none(),
    "fail": st.sampled_from(NAMES),
    "touch": st.integers(3, 40),
    "write": st.integers(1, 5000),
    "mark": st.sampled_from(NAMES),
    "unmark": st.none(),
    "tasks": st.integers(1, 3),
    "generator": st.integers(1, 3),
    "finalizer": st.none(),
    "signal": st.none(),
    "fork": st.booleans(),
    "close_descriptors": st.sampled_from([[3, 4096], [3, 600], [600, 4096]]),
    "reset": st.none(),
    "interpreter": st.none(),
}
COMMON = ["open_one", "open_one", "open_one", "close_one", "close_one", "touch", "touch", "write"]


@st.composite
def programs(draw: st.DrawFn) -> list[list[Any]]:
    steps = []
    for _ in range(draw(st.integers(4, 25))):
        action = draw(st.sampled_from(COMMON + list(ACTIONS)))
        # Python would not survive the C library's fork beside threads.
        alone = action in {"interpreter", "fork"}
        steps.append([0 if alone else draw(st.sampled_from(THREADS)), action, draw(ACTIONS[action])])
    if any(who for who, _, _ in steps):
        steps = [[who, what, False if what == "fork" else argument] for who, what, argument in steps]
    if draw(st.booleans()):
        steps.append([0, "exec", None])
    return steps


Lines = list[dict[str, Any]]


def run(steps: list[list[Any]], *, plainly: bool, exact: bool) -> list[Lines]:
    """What each process has written, in the order of their first operations."""
    with tempfile.TemporaryDirectory(prefix="memwatch-contract-") as directory:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(PROGRAM), json.dumps(steps)],
            env=environment(
                OTEL_MEMWATCH_RUN_DIR=directory,
                PYTHONPATH=str(ROOT),
                OTEL_MEMWATCH_EXACT=str(int(exact)),
                **{native.PLAIN_VARIABLE: str(int(plainly))},
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        files = [
            [json.loads(line) for line in path.read_text().splitlines()] for path in Path(directory).iterdir()
        ]
    for lines in files:
        assert "schema" in lines[0]
    return sorted(files, key=lambda lines: lines[1]["time"] if len(lines) > 1 else 0)


SIZES = {"rss", "segment", "peak", "low", "high"}
SAME = {"name", "status", "error", "attributes", "exported", "certainty", "exact", "schema"}
IO = {"read_chars", "write_chars"}
"""The same for the operations that write; what others read is mostly modules that are imported meanwhile."""
SLACK = 4 * MIB
"""Python's own memory differs from run to run, and by the modules of either implementation."""


class Names:
    """Numbers for what is drawn or given anew in each run, in the order of its first appearance."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def __call__(self, value: Any) -> int | None:
        return None if value is None else self._known.setdefault(value, len(self._known))


def compare(native_files: list[Lines], plain_files: list[Lines], *, foreign: bool) -> None:
    assert len(native_files) == len(plain_files)
    names = Names(), Names()
    for files in zip(native_files, plain_files, strict=True):
        assert len(files[0]) == len(files[1])
        base = [next((line["rss"] for line in lines if line.get("rss")), 0) for lines in files]
        writes = {line["open"] for line in files[0] if line.get("name") == "Write"}
        for pair in zip(*files, strict=True):
            ours, theirs = pair
            assert list(ours) == list(theirs), "the fields, in their order"
            if "schema" not in ours:
                table = OPENING if "open" in ours else CLOSING
                assert tuple(ours)[: len(table)] == table
            for field, value in ours.items():
                other = theirs[field]
                if field in SIZES:
                    assert (value is None) is (other is None), (field, ours, theirs)
                    # The end of a range may be the size of the address space, which each implementation has for itself.
                    range_end = field == "high" and ours["certainty"] == "interval"
                    if value and other and not range_end:
                        assert abs(value - base[0] - (other - base[1])) < SLACK, (field, ours, theirs)
                elif field in {"open", "close", "trace", "span", "parent", "thread"}:
                    if not (foreign and field in {"open", "close"}):
                        kind = "id" if field in {"open", "close"} else "span" if field == "parent" else field
                        found = [
                            names[index]((kind, line[field]) if line[field] is not None else None)
                            for index, line in enumerate(pair)
                        ]
                        assert found[0] == found[1], (field, ours, theirs)
                elif field == "certainty" and not files[0][0]["exact"]:
                    pass  # whether the watermark of the whole life rose is a matter of single pages
                elif field in SAME or (field in IO and ours["close"] in writes):
                    assert value == other, (field, ours, theirs)
                elif field.startswith("cpu_") or field == "time":
                    assert value >= 0


def both_write_the_same(steps: list[list[Any]], *, exact: bool, foreign: bool) -> list[Any]:
    """What both wrote, compared.

    A process that is kept waiting between reading its watermark and resetting it may have missed something, and says
    "between" where the other says "exact". A machine that is busy for a moment is not for three times.
    """
    for left in (2, 1, 0):
        files = [run(steps, plainly=plainly, exact=exact) for plainly in (False, True)]
        try:
            compare(files[0], files[1], foreign=foreign)
        except AssertionError:
            if not left:
                raise
        else:
            return files
    raise AssertionError("not reached")


@compiled
@settings(
    max_examples=PROGRAMS or 15,
    derandomize=not PROGRAMS,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink] if PROGRAMS else [Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs(), st.sampled_from([True, True, True, False]))
def test_both_write_the_same(steps: list[list[Any]], exact: bool) -> None:
    note(json.dumps(steps))
    both_write_the_same(steps, exact=exact, foreign=any(what == "interpreter" for _, what, _ in steps))


EVERY_WAY = [
    [0, "open_one", "load"],
    *([0, action, argument] for action, argument in (
        ("touch", 30), ("write", 100), ("fail", "naïve"), ("mark", "Phase"), ("tasks", 3), ("generator", 2),
        ("finalizer", None), ("signal", None), ("fork", False), ("interpreter", None), ("reset", None),
    )),
    [1, "open_one", "x"], [2, "open_one", "y"], [1, "close_one", None], [1, "touch", 20], [2, "close_one", None],
    [0, "close_descriptors", [3, 4096]], [0, "touch", 25], [0, "close_one", None], [0, "close_descriptors", [3, 600]],
    [0, "open_one", "last"], [0, "touch", 12], [0, "close_one", None], [0, "exec", None],
]  # fmt: skip


@compiled
@pytest.mark.parametrize("exact", [True, False])
def test_both_write_the_same_of_every_way_to_mark(exact: bool) -> None:
    files = both_write_the_same(EVERY_WAY, exact=exact, foreign=True)
    found = {line["name"]: line["open"] for line in files[0][0] if "open" in line}
    closings = {line["close"]: line for line in files[0][0] if "close" in line}
    last = closings[found["last"]]
    certainty = counters.of_process(last["peak"]) if exact else "interval"
    assert last["certainty"] == certainty, "the watermark was found again"
    assert counters.is_counter_error(last["low"], last["high"]) or not exact


# The same judgements.

UNKNOWN = -1
SIZE = st.just(UNKNOWN) | st.integers(0, 200).map(lambda mib: mib * MIB)
LARGE = st.integers(0, 8 * MIB)


def known(number: int) -> int | None:
    return None if number == UNKNOWN else number


@compiled
@settings(max_examples=PROGRAMS * 100 or 500)
@given(*[st.booleans()] * 3, *[SIZE] * 5, LARGE | SIZE, LARGE)
def test_both_judge_alike(
    own: bool, resets: bool, foreign: bool,
    start: int, end: int, before: int, after: int, inside: int, missed: int, error: int,
) -> None:  # fmt: skip
    missed = max(missed, 0)
    expected = plain.judge(
        plain.PeakEvidence(
            own_boundary=own, resets=resets, foreign=foreign, start=known(start), end=known(end),
            before=known(before), after=known(after), inside=known(inside), missed=missed, error=error,
        )
    )  # fmt: skip
    judge = native._native.judge
    flags = int(own), int(resets), int(foreign)
    assert judge(*flags, start, end, before, after, inside, missed, error) == expected
    peak, low, high, certainty = expected
    assert low is None or peak is None or low <= peak
    assert high is None or peak is None or peak <= high
    if certainty == "exact":
        assert peak is not None
        assert low is not None
        assert high is not None
        assert is_exact(peak, low, high)


@compiled
def test_both_go_by_the_same_constants() -> None:
    assert native._native.SHARED == (
        process_state.BRIEF, process_state.LIFE, process_state.FILL_RATE, process_state.HUGE_PAGE, EXACT_BYTES, process_state.FOREIGN_SLACK,
        EXACT_PARTS, kernel.PER_THREAD_PAGES, process_state.IGNORED_FAULTS, process_state.JOURNAL,
    )  # fmt: skip


# Each by itself.

IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {"plain": plain.PlainBoundaries}
if native.COMPILED:
    IMPLEMENTATIONS["native"] = native.NativeBoundaries


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(recorder, "_implementation", IMPLEMENTATIONS[request.param])
    return str(request.param)


@pytest.fixture
def recording(implementation: str, tmp_path: Path) -> Iterator[Recorder]:
    """Recording into `tmp_path`."""
    made = activate(str(tmp_path))
    assert made is not None
    for _ in range(2):  # what is true of the first boundary only
        made.close(made.open("warm"))
        time.sleep(0.001)
    yield made
    deactivate()


def written(directory: Path) -> Lines:
    (path,) = directory.glob("operations-*.jsonl")
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [line for line in lines if "heap" not in line]  # only of a large process


def blip(mib: int) -> None:
    if mib:
        with mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for place in range(0, len(memory), mmap.PAGESIZE):
                memory[place] = 1


@pytest.mark.parametrize("mib", [0, 3, 40])
@pytest.mark.parametrize("inside", [False, True])
def test_figures_are_true(recording: Recorder, mib: int, inside: bool) -> None:
    outer = recording.open("outer") if inside else None
    live = recording.open("one", None, outer)
    blip(mib)
    assert live.figures is None
    recording.close(live)
    figures = live.figures
    assert figures is not None
    assert figures.peak is not None
    assert figures.certainty == counters.of_process(figures.peak)
    assert figures.start is not None
    assert abs(figures.peak - figures.start - (mib << 20)) < 1 << 20
    assert figures.low is not None
    assert figures.high is not None
    assert figures.low <= figures.peak <= figures.high
    if outer is not None:
        recording.close(outer)
        assert outer.figures is not None
        assert outer.figures.peak is not None
        assert outer.figures.peak >= figures.peak


def test_figures_are_those_of_the_line(recording: Recorder, tmp_path: Path) -> None:
    live = recording.open("one")
    blip(5)
    time.sleep(0.001)
    recording.close(live)
    line, figures = written(tmp_path)[-1], live.figures
    assert figures is not None
    for name in ("peak", "low", "high", "certainty"):
        assert line[name] == getattr(figures, name)
    assert (figures.end, figures.start) == (line["rss"], written(tmp_path)[-2]["rss"])
    assert figures.io() == tuple(line[name] for name in CLOSING[-4:])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 99), st.booleans(), st.integers(0, 6)), max_size=120))
def test_each_peak_is_the_largest_segment_since_its_opening(
    recording: Recorder, tmp_path: Path, steps: list[tuple[int, bool, int]]
) -> None:
    """However operations overlap: the record's own arithmetic finds the same."""
    live: list[LiveOperation] = []
    begun = 0
    for which, closes, mib in steps:
        blip(mib)
        if closes and live:
            recording.close(live.pop(which % len(live)))
        else:
            live.append(recording.open("one"))
            begun += 1
    for one in live:
        recording.close(one)
    segments, opened = Segments(), {}
    lines = written(tmp_path)[1:]
    assert sum("close" in line for line in lines) == len(lines) / 2 >= begun
    for number, line in enumerate(lines):
        segments.push(number, line["segment"])
        if "open" in line:
            opened[line["open"]] = number
        elif counters.is_counter_error(line["low"], line["high"]):
            assert line["peak"] == segments.since(opened[line["close"]])


def test_threads_do_not_cross(recording: Recorder, tmp_path: Path) -> None:
    """Every operation is opened and closed once, ids and order of the lines are one sequence."""

    def work() -> None:
        for number in range(300):
            outer = recording.open("outer")
            recording.close(recording.open("inner", {"a": 1}, outer))
            recording.close(outer, "ValueError" if number % 7 == 0 else None)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = written(tmp_path)[1:]
    openings = [line for line in read if "open" in line]
    closings = [line for line in read if "close" in line]
    assert len(openings) == len(closings) == 8 * 300 * 2 + 2
    ids = [line["open"] for line in openings]
    assert ids == sorted(set(ids)), "in the order of the boundaries"
    assert set(ids) == {line["close"] for line in closings}


def test_an_operation_is_not_closed_twice(recording: Recorder, tmp_path: Path) -> None:
    live = recording.open("one")
    assert recording.close(live)
    assert not recording.close(live)
    assert recording.boundaries.close(live.opening, None, END) is False
    assert sum("close" in line for line in written(tmp_path)) == 3


def test_a_recorder_that_was_given_up_takes_nothing(recording: Recorder, tmp_path: Path) -> None:
    live = recording.open("one")
    deactivate()
    before = written(tmp_path)
    assert not recording.close(live)
    assert recording.boundaries.close(live.opening, None, END) is False
    recording.open("late")
    assert written(tmp_path) == before


def test_a_line_of_any_length_is_one_line(recording: Recorder, tmp_path: Path) -> None:
    many = {f"key {number}": "x" * 4000 for number in range(100)}
    live = recording.open("long", many)
    recording.close(live, "ValueError", many)
    opening, closing = written(tmp_path)[-2:]
    assert opening["attributes"] == many
    assert closing["attributes"] == many


def test_a_full_disk_is_reported_once(
    recording: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the program goes on."""
    from otel_memwatch.in_target.operations import journal

    monkeypatch.setattr(journal, "_warned", set())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = os.fstat(recording.journal.descriptor).st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))  # a part of a line still gets in
    try:
        for _ in range(3):
            live = recording.open("one")
            assert recording.close(live)
            assert live.figures is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capfd.readouterr().err.count("no longer recorded") == 1
    (path,) = tmp_path.glob("operations-*.jsonl")
    assert path.stat().st_size == size + 100


@pytest.mark.parametrize("extra", [0, 3, 40])
def test_the_error_of_older_kernels_grows_with_the_threads(
    implementation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """Before Linux 6.2 the watermark may be off by 64 pages for each thread."""
    for module in (process_state, plain, native):
        monkeypatch.setattr(module, "PER_THREAD", True)
    recording, ended = activate(str(tmp_path)), threading.Event()
    assert recording is not None
    threads = [threading.Thread(target=ended.wait) for _ in range(extra)]
    for thread in threads:
        thread.start()
    error = 3 * 64 * os.sysconf("SC_PAGE_SIZE") * len(os.listdir("/proc/self/task"))
    live = recording.open("one")
    recording.close(live)
    failing = recording.open("failing")
    recording.close(failing, "ValueError")
    ended.set()
    for thread in threads:
        thread.join()
    deactivate()
    for operation in (live, failing):
        figures = operation.figures
        assert figures is not None
        assert figures.high is not None
        assert figures.low is not None
        assert figures.high - figures.low == 2 * error
        assert figures.peak == figures.low + error
        assert figures.certainty == ("exact" if is_small(error, figures.peak) else "interval")


def test_a_range_ends_within_the_address_space(
    implementation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1024 processors the watermark may be off by 25 GB; the address space has never been as large."""
    for module in (process_state, plain, native):
        monkeypatch.setattr(module, "PER_THREAD", False)
    monkeypatch.setenv(kernel.PROCESSORS_VARIABLE, "1024")
    recording = activate(str(tmp_path))
    assert recording is not None
    before = largest_address_space()
    live, brief = recording.open("one"), recording.open("brief")
    recording.close(brief)
    time.sleep(2 * process_state.LIFE)
    recording.close(live)
    after = largest_address_space()
    deactivate()
    assert live.figures is not None
    assert live.figures.high is not None
    assert live.figures.certainty == "interval"
    assert before <= live.figures.high <= after


def largest_address_space() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmPeak:")[1].split()[0]) << 10


def test_a_gpu_library_matters_once_it_is_used(
    recording: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported only, as in every process that loads data, it costs nothing; its first memory is reported already."""
    torch = Torch(initialized=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(allocators, "_here", allocators.Allocators(exact=False))
    for _ in range(20):
        live = recording.open("idle")
        time.sleep(0.0003)
        recording.close(live)
    assert not torch.calls
    first = recording.open("first")
    torch.initialized = True
    torch.devices[0].take(70)
    time.sleep(0.0003)
    inner = recording.open("inner", None, first)
    torch.devices[0].take(30)
    recording.close(inner)
    torch.devices[0].give(100)
    recording.close(first)
    told = {line["close"]: line.get("gpu") for line in written(tmp_path) if "close" in line}
    assert [figures["peak"] for figures in told[first.id].values()] == [100]
    assert [(figures["start"], figures["peak"]) for figures in told[inner.id].values()] == [(70, 100)]


# What only compiled code can do.

LONG = 1 << 20


@compiled
def test_a_call_that_takes_long_is_made_without_the_lock_from_then_on(tmp_path: Path) -> None:
    """In a separate process: that lasts for a while. The long call is a write to a pipe that is full for 0.2 s."""
    pipe = tempfile.mktemp(prefix="memwatch-", dir="/dev/shm")
    os.mkfifo(pipe)
    try:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os._exit(_writes_to_a_full_pipe(os.open(pipe, os.O_WRONLY)))
        os.set_blocking(reader, True)
        for _ in range(2):
            time.sleep(0.2)
            left = LONG
            while left > 0:
                left -= len(os.read(reader, left))
        _, status = os.waitpid(pid, 0)
    finally:
        os.unlink(pipe)
    assert os.waitstatus_to_exitcode(status) == 0


def _writes_to_a_full_pipe(writer: int) -> int:
    """0: another thread stood still during the first long write and went on during the second."""
    steps = [0]

    def step() -> None:
        while True:
            steps[0] += 1
            time.sleep(0.001)

    threading.Thread(target=step, daemon=True).start()
    boundaries = native._native.Boundaries(
        1, lambda _: boundaries.use_journal(writer, 0, 0), lambda *_: None, str
    )
    boundaries.use_journal(writer, 0, 0)
    assert boundaries.is_local

    def steps_meanwhile() -> int:
        before = steps[0]
        boundaries.open("long", "0" * 32, "1" * 16, None, bytes(LONG))
        return steps[0] - before

    held, free = steps_meanwhile(), steps_meanwhile()
    return 0 if held <= 2 and free >= 10 else 1


@compiled
def test_only_a_local_disk_is_written_to_with_the_lock() -> None:
    boundaries = native._native.Boundaries(1, print, print, str)
    with tempfile.TemporaryFile(dir="/dev/shm") as file, open("/proc/self/clear_refs", "wb") as other:
        for descriptor, local in ((file.fileno(), True), (other.fileno(), False), (-1, False)):
            boundaries.use_journal(descriptor, 0, 0)
            assert bool(boundaries.is_local) is local


@compiled
@pytest.mark.parametrize("arguments", [(), tuple("abcdef"), (None,) * 7, (None,) * 3, (None,) * 5, (None,)])
def test_wrong_arguments_raise(arguments: tuple[Any, ...]) -> None:
    boundaries = native._native.Boundaries(1, print, print, str)
    for function in (
        boundaries.open, boundaries.close, boundaries.figures, boundaries.use, boundaries.use_journal,
        native._native.judge, native._native.Boundaries,
    ):  # fmt: skip
        with pytest.raises(TypeError):
            function(*arguments)
