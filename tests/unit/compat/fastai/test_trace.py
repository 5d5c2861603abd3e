"""GPUMemTrace: what is used and what peaked, on a scripted allocator."""

from __future__ import annotations

import gc
import inspect
import threading
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.compat.fastai import GPUMemTrace, b2mb, gpu_mem_trace
from tests.support.fake_torch import Cuda, install

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cuda]:
    fake = install(monkeypatch, Cuda(("11111111", "22222222")))
    fake.allocate(700)
    fake.blip(5000)  # a peak from before belongs to no call
    return fake


def test_used_and_peaked_as_the_older_tool_defined_them(cuda: Cuda) -> None:
    trace = GPUMemTrace()
    cuda.allocate(10)
    cuda.blip(15)
    assert trace.data() == (10, 15)
    cuda.allocate(-10)
    assert trace.data() == (0, 25)
    trace.reset()
    cuda.allocate(-100)
    assert trace.data() == (-100, 0)
    trace.reset()
    cuda.blip(50)
    cuda.allocate(-30)
    assert trace.data() == (-30, 50)


def test_growth_is_never_missed_and_a_peak_never_negative(cuda: Cuda) -> None:
    trace = GPUMemTrace()
    for _ in range(20):
        cuda.allocate(1)
        used, peaked = trace.data()
        assert peaked >= 0
    assert (used, peaked) == (20, 0)


def test_tracers_overlap_without_touching_each_other(cuda: Cuda) -> None:
    outer = GPUMemTrace()
    cuda.blip(100)
    inner = GPUMemTrace()
    cuda.blip(40)
    assert inner.data() == (0, 40)
    inner.reset()
    cuda.allocate(3)
    assert inner.data() == (3, 0)
    assert outer.data() == (3, 97)
    inner.stop()
    cuda.blip(500)
    assert inner.data() == (3, 0)
    assert outer.data() == (3, 500)


def test_the_report_to_the_character(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    trace = GPUMemTrace()
    cuda.allocate(1234)
    cuda.blip(15)
    trace.report()
    trace.report("whoah")
    trace.report(note="older")
    trace.report_n_reset("2nd run")
    cuda.allocate(-100)
    trace.ctx = "f"
    trace.report("n")
    trace.report("")
    trace.report(note="")
    print(trace)
    assert capsys.readouterr().out.splitlines() == [
        "△Used Peaked MB:  1,234     15",
        "△Used Peaked MB:  1,234     15 (whoah)",
        "△Used Peaked MB:  1,234     15 (older)",
        "△Used Peaked MB:  1,234     15 (2nd run)",
        "△Used Peaked MB:   -100      0 (f: n)",
        "△Used Peaked MB:   -100      0 (f: )",
        "△Used Peaked MB:   -100      0 (f)",
        "△Used Peaked MB:   -100      0 (f)",
    ]


def test_silent_is_a_value_and_a_method(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    trace = GPUMemTrace(silent=True)
    trace.report()
    assert trace.silent
    trace.silent(silent=False)
    assert not trace.silent
    assert trace.silent == False  # noqa: E712 - that is how it was compared
    trace.report("heard")
    trace.silent(True)
    trace.report()
    trace.silent = False
    trace.silent()
    assert repr(trace.silent) == "True"
    trace.report_n_reset()
    assert capsys.readouterr().out == "△Used Peaked MB:      0      0 (heard)\n"


def test_a_stopped_trace_is_frozen_until_it_is_started(cuda: Cuda) -> None:
    trace = GPUMemTrace()
    cuda.allocate(5)
    trace.stop()
    cuda.allocate(50)
    assert trace.data() == (5, 0)
    trace.stop()
    trace.report_n_reset()
    assert trace.data() == (5, 0)
    trace.start()
    cuda.allocate(7)
    assert trace.data() == (7, 0)


def test_as_a_context_manager_and_a_decorator(cuda: Cuda, capsys: pytest.CaptureFixture[str]) -> None:
    with GPUMemTrace(ctx="block") as trace:
        cuda.allocate(2)
    assert trace.data() == (2, 0)
    with GPUMemTrace(on_exit_report=False):
        pass

    @gpu_mem_trace
    def work(x: int, *, y: int = 1) -> int:
        """What it does."""
        cuda.allocate(x)
        if x > 5:
            raise LookupError("too much")
        return x + y

    assert work(3, y=2) == 5
    with pytest.raises(LookupError, match="too much"):
        work(6)
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    assert list(inspect.signature(work).parameters) == ["x", "y"]
    name = work.__qualname__
    assert capsys.readouterr().out.splitlines() == [
        "△Used Peaked MB:      2      0 (block: exit)",
        f"△Used Peaked MB:      3      0 ({name}: exit)",
        f"△Used Peaked MB:      6      0 ({name}: exit)",
    ]


def test_fifty_cycles_leave_no_thread_and_a_deleted_trace_is_gone(cuda: Cuda) -> None:
    before = threading.active_count()
    trace = GPUMemTrace()
    for _ in range(50):
        trace.stop()
        trace.start()
    assert threading.active_count() == before
    from otel_memwatch.compat.fastai.trace import open_tracers

    held = len(open_tracers._open["torch:0"])
    del trace
    gc.collect()
    assert len(open_tracers._open["torch:0"]) == held - 1


def test_it_follows_the_calling_thread_s_device_and_keeps_it(cuda: Cuda) -> None:
    cuda.set_device(1)
    trace = GPUMemTrace()
    cuda.allocate(64, device=0)
    cuda.allocate(8, device=1)
    seen: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: seen.append(trace.data()))
    thread.start()
    thread.join()
    assert (seen, trace.data()) == ([(8, 0)], (8, 0))


def test_nothing_is_emptied_and_cuda_is_not_started(cuda: Cuda) -> None:
    trace = GPUMemTrace()
    trace.report_n_reset()
    trace.stop()
    assert cuda.emptied == 0
    cuda.started = False
    late = GPUMemTrace()
    cuda.started = True
    cuda.allocate(9, device=0)
    assert late.data()[0] >= 9


def test_what_is_not_supported_says_what_to_use(cuda: Cuda) -> None:
    trace = GPUMemTrace()
    trace.peak_monitor_start()
    trace.peak_monitor_stop()
    with pytest.raises(NotImplementedError, match=r"data\(\)"):
        trace.peak_monitor_func()


def test_megabytes_are_rounded_towards_zero() -> None:
    assert [b2mb(x) for x in (2**20 - 1, 2**20, -(2**20) - 1, 0)] == [0, 1, -1, 0]
