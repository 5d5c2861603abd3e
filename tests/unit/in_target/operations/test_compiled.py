"""The compiled boundaries say and write what the Python ones do."""

from __future__ import annotations

import json
import mmap
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_memwatch.in_target import allocators
from otel_memwatch.in_target.operations import activate, boundary, deactivate, lines, watermark
from otel_memwatch.in_target.operations.ledger import Ledger, PlainLedger
from otel_memwatch.in_target.operations.recorder import Recorder
from tests.support.standin_torch import Torch

PLAIN = bool(os.environ.get("MEMWATCH_PLAIN"))
"""These tests are to run without compiled code."""
compiled = pytest.mark.skipif(not boundary.COMPILED, reason="installed without a compiler")


def test_it_is_there() -> None:
    if not boundary.COMPILED and not PLAIN and "CI" not in os.environ:
        pytest.skip("installed without a compiler")
    assert boundary.COMPILED is not PLAIN


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """Recording into `tmp_path`; boundaries may be taken by compiled code where there is some."""
    made = activate(str(tmp_path))
    assert made is not None
    for _ in range(2):  # what is true of the first boundary only
        made.finish(made.begin("warm", None, None))
        time.sleep(0.001)
    yield made
    deactivate()


def blip(mib: int) -> None:
    with mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1


def written(directory: Path) -> list[str]:
    (path,) = directory.glob("operations-*.jsonl")
    return path.read_text().splitlines()


@compiled
def test_it_goes_by_the_same_constants() -> None:
    from otel_memwatch.in_target.operations import _boundary, counters, recorder, text

    assert _boundary.SHARED == (
        counters.BRIEF, counters.LIFE, watermark._FILL_RATE, watermark._HUGE_PAGE, recorder._LARGE_GAP,
        watermark._THREAD_PAGES, text.LONGEST_NAME
    )  # fmt: skip


class Watched:
    """Counts the boundaries that were taken by compiled code."""

    def __init__(self, recorder: Recorder) -> None:
        self._ledger = recorder._ledger
        self.taken = 0
        recorder._ledger = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {"_ledger", "taken"}:
            super().__setattr__(name, value)
        else:
            setattr(self._ledger, name, value)

    def begin(self, *arguments: Any) -> int | None:
        return self._count(self._ledger.begin(*arguments))

    def finish(self, *arguments: Any) -> int | None:
        return self._count(self._ledger.finish(*arguments))

    def _count(self, told: int | None) -> int | None:
        self.taken += told is not None
        return told


NAMES = [
    "load",
    "with spaces and %d",
    'quo"ted',
    "back\\slash",
    "tab\t",
    "naïve",
    "名",
    "x" * 512,
    "a" + "\U0001f600" * 9,
]


def is_quick(recorder: Recorder) -> bool:
    """Whether compiled code may take boundaries: not where the tests' folder is on a file system behind a network."""
    return boundary.COMPILED and recorder.journal.is_quick


def is_compiled(name: str) -> bool:
    return name.isascii() and name.isprintable() and not set(name) & set('"\\')


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attributes", [None, {"key": "välue", "n": 3}])
def test_lines_are_those_of_the_python_code(
    recorder: Recorder, tmp_path: Path, name: str, attributes: dict[str, object] | None
) -> None:
    watched = Watched(recorder)
    outer = recorder.begin("outer", None, None)
    opened = recorder.begin(name, attributes, outer)
    recorder.finish(opened)
    assert is_compiled(name) or watched.taken <= 1
    more = lines.opening_more(attributes, exported=False)
    opening = lines.opening_line(opened, name, outer.span, recorder._thread.id, more).decode()
    assert opened.closing is not None
    closing = lines.closing_line(opened, opened.closing, None, None).decode()
    for line, expected in zip(written(tmp_path)[-2:], [opening, closing], strict=True):
        read, wanted = json.loads(line), json.loads(expected)
        assert list(read) == list(wanted)
        assert read.pop("attributes", None) == wanted.pop("attributes", None)
        assert read == pytest.approx(wanted, abs=2e-6)
    assert json.loads(opening)["name"] == name


@pytest.mark.parametrize("inside", [False, True])
def test_an_operation_of_its_kind_is_taken_by_compiled_code(recorder: Recorder, inside: bool) -> None:
    """Or all that is tested here would be tested of the Python code."""
    watched = Watched(recorder)
    outer = recorder.begin("outer", None, None) if inside else None
    watched.taken = 0
    for _ in range(20):
        opened = recorder.begin("one", None, outer)
        time.sleep(0.0003)
        recorder.finish(opened)
    assert watched.taken >= 30 * is_quick(
        recorder
    )  # where the size has never been so small it is looked at closely


def test_a_gpu_library_matters_once_it_is_used(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported only, as in every process that loads data, it costs nothing; what it holds first is told already."""
    torch = Torch(initialized=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(allocators, "_here", allocators.Allocators(exact=False))
    watched = Watched(recorder)
    for _ in range(20):
        opened = recorder.begin("idle", None, None)
        time.sleep(0.0003)
        recorder.finish(opened)
    assert watched.taken >= 30 * is_quick(recorder)
    assert not torch.calls
    opened = recorder.begin("first", None, None)
    torch.initialized = True
    torch.devices[0].take(70)
    time.sleep(0.0003)
    inner = recorder.begin("inner", None, opened)
    torch.devices[0].take(30)
    recorder.finish(inner)
    torch.devices[0].give(100)
    recorder.finish(opened)
    told = {line["close"]: line.get("gpu") for line in map(json.loads, written(tmp_path)) if "close" in line}
    assert [figures["peak"] for figures in told[opened.id].values()] == [100]
    assert [(figures["start"], figures["peak"]) for figures in told[inner.id].values()] == [(70, 100)]


@pytest.mark.parametrize("extra", [0, 3, 40])
def test_the_error_of_older_kernels_grows_with_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """Before Linux 6.2 the watermark may be off by 64 pages for each thread."""
    monkeypatch.setattr(watermark, "PER_THREAD", True)
    recorder, ended = activate(str(tmp_path)), threading.Event()
    assert recorder is not None
    threads = [threading.Thread(target=ended.wait) for _ in range(extra)]
    for thread in threads:
        thread.start()
    error = 64 * os.sysconf("SC_PAGE_SIZE") * len(os.listdir("/proc/self/task"))
    watched = Watched(recorder)
    for _ in range(20):
        opened = recorder.begin("one", None, None)
        time.sleep(0.0003)
        recorder.finish(opened)
    failing = recorder.begin("failing", None, None)
    recorder.finish(failing, "ValueError")
    ended.set()
    for thread in threads:
        thread.join()
    deactivate()
    assert watched.taken >= 30 * is_quick(recorder)
    for operation in (opened, failing):
        figures = operation.figures
        assert figures is not None
        assert figures.high is not None
        assert figures.low is not None
        assert figures.high - figures.low == 2 * error
        exact = error <= 1 << 20 or 64 * error <= figures.low + error
        assert figures.certainty == ("exact" if exact else "interval")
        assert figures.peak == (figures.low + error if exact else figures.low)
    assert json.loads(written(tmp_path)[-3])["certainty"] == operation.figures.certainty


@pytest.mark.parametrize("mib", [0, 3, 40])
@pytest.mark.parametrize("inside", [False, True])
def test_its_figures_are_true(recorder: Recorder, mib: int, inside: bool) -> None:
    outer = recorder.begin("outer", None, None) if inside else None
    opened = recorder.begin("one", None, outer)
    if mib:
        blip(mib)
    recorder.finish(opened)
    figures = opened.figures
    assert figures is not None
    assert figures.certainty == "exact"
    assert figures.peak is not None
    assert figures.start is not None
    assert abs(figures.peak - figures.start - (mib << 20)) < 1 << 20
    assert figures.low is not None
    assert figures.high is not None
    assert figures.low <= figures.peak <= figures.high
    if outer is not None:
        recorder.finish(outer)
        assert outer.figures is not None
        assert outer.figures.peak is not None
        assert outer.figures.peak >= figures.peak


def test_threads_do_not_cross(recorder: Recorder, tmp_path: Path) -> None:
    """Without a lock: every operation is opened and closed once, ids and order of the lines are one sequence."""

    def work() -> None:
        for _ in range(500):
            outer = recorder.begin("outer", None, None)
            recorder.finish(recorder.begin("inner", {"a": 1}, outer))
            recorder.finish(outer, "ValueError" if _ % 7 == 0 else None)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = [json.loads(line) for line in written(tmp_path)][1:]
    openings = [line for line in read if "open" in line]
    closings = [line for line in read if "close" in line]
    assert len(openings) == len(closings) == 8 * 500 * 2 + 2
    assert {line["open"] for line in openings} == {line["close"] for line in closings}
    assert len({line["open"] for line in openings}) == len(openings)
    ledger = recorder._ledger
    assert (ledger.open, ledger.number) == (0, len(read))
    assert ledger.since(0) == (None, 0), "nothing is kept when nothing is open"


@given(st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 40)), max_size=200), st.data())
def test_the_ledger_finds_what_the_python_one_does(
    boundaries: list[tuple[int, int]], data: st.DataObject
) -> None:
    ours, plain = Ledger(), PlainLedger()
    for number, (segment, gap) in enumerate(boundaries, 1):
        ours.number = plain.number = number
        ours.fold(segment, gap)
        plain.fold(segment, gap)
        asked = data.draw(st.integers(0, number))
        assert ours.since(asked) == plain.since(asked)
    ours.forget()
    assert ours.since(0) == (None, 0)


def test_only_a_local_disk_is_written_to_with_the_lock() -> None:
    with tempfile.TemporaryFile(dir="/dev/shm") as file, open("/proc/self/clear_refs", "wb") as other:
        assert (boundary.writer(file.fileno()) is not os.write) is boundary.COMPILED
        assert boundary.writer(other.fileno()) is os.write
    assert boundary.writer(-1) is os.write


def test_totals_are_the_kernels(tmp_path: Path) -> None:
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    with open("/proc/self/io") as file:
        before = dict(line.split(": ") for line in file.read().splitlines())
    size, children, io = boundary.totals(descriptor, 1000, 10)
    assert io is not None
    assert size == len(os.pread(descriptor, 1024, 0))
    assert (io[0], io[1]) >= (int(before["read_bytes"]), int(before["write_bytes"]))
    assert 0 <= io[2] + 1000 - int(before["rchar"]) < 2000
    assert io[3] + 10 == int(before["wchar"])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert children == (used[0], used[1], used[6], used[7])
    assert boundary.totals(-1, 0, 0) == (0, children, None)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file"):
        boundary.totals(descriptor, 0, 0)


@compiled
@pytest.mark.parametrize("arguments", [(), tuple("abcdef"), (None,) * 7])
def test_wrong_arguments_raise(arguments: tuple[object, ...]) -> None:
    from otel_memwatch.in_target.operations import _boundary

    ledger = _boundary.Ledger()
    for function in (
        _boundary.turn, _boundary.totals, _boundary.write_line, _boundary.read_start, _boundary.place,
        _boundary.is_local, ledger.fold, ledger.since,
    ):  # fmt: skip
        with pytest.raises((TypeError, OSError)):
            function(*arguments)


def test_an_opened_operation_is_not_closed_twice(recorder: Recorder, tmp_path: Path) -> None:
    opened = recorder.begin("one", None, None)
    assert recorder.finish(opened)
    assert not recorder.finish(opened)
    assert sum('"close"' in line for line in written(tmp_path)) == 3


def test_a_recorder_that_was_given_up_takes_nothing(recorder: Recorder, tmp_path: Path) -> None:
    opened = recorder.begin("one", None, None)
    deactivate()
    before = written(tmp_path)
    assert not recorder.finish(opened)
    assert written(tmp_path) == before
