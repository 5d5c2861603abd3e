"""Exceptions that let go of memory, and stay what they are."""

from __future__ import annotations

import gc
import weakref
from typing import NoReturn

import pytest

from otel_memwatch.compat.fastai import tracebacks
from otel_memwatch.compat.fastai.tracebacks import get_ref_free_exc_info, gpu_mem_restore, gpu_mem_restore_ctx


class Big:
    """Stands for memory."""


held: list[weakref.ref[Big]] = []


def fail(error: BaseException) -> NoReturn:
    big = Big()
    held[:] = [weakref.ref(big)]
    raise error


def deeper(error: BaseException) -> NoReturn:
    try:
        fail(error)
    except ZeroDivisionError as cause:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB") from cause


def is_freed() -> bool:
    gc.collect()
    return held[0]() is None


@pytest.fixture
def in_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "is_in_ipython", lambda: True)
    monkeypatch.delenv(tracebacks.VARIABLE, raising=False)


def test_the_info_is_that_of_the_exception_without_its_locals() -> None:
    error = ValueError("x")
    try:
        fail(error)
    except ValueError:
        kind, value, trace = get_ref_free_exc_info()
    assert (kind, value) == (ValueError, error)
    assert trace is not None
    assert is_freed()
    assert get_ref_free_exc_info() == (None, None, None)


@pytest.mark.usefixtures("in_ipython")
def test_out_of_memory_lets_go_and_keeps_type_and_message() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    error = OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    with pytest.raises(OutOfMemoryError) as caught:
        gpu_mem_restore(fail)(error)
    assert caught.value is error
    assert str(caught.value) == "CUDA out of memory. Tried to allocate 20.00 GiB"
    assert is_freed()


@pytest.mark.usefixtures("in_ipython")
def test_the_exceptions_it_came_from_let_go_too() -> None:
    with pytest.raises(RuntimeError) as caught:
        gpu_mem_restore(deeper)(ZeroDivisionError())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert is_freed()


@pytest.mark.usefixtures("in_ipython")
def test_an_interrupt_lets_go() -> None:
    with pytest.raises(KeyboardInterrupt):
        gpu_mem_restore(fail)(KeyboardInterrupt())
    assert is_freed()


@pytest.mark.usefixtures("in_ipython")
def test_other_errors_keep_their_locals_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("a bug")
    with pytest.raises(ValueError, match="a bug"):
        gpu_mem_restore(fail)(error)
    assert not is_freed()
    monkeypatch.setenv(tracebacks.VARIABLE, "1")
    del error
    with pytest.raises(ValueError, match="another"):
        gpu_mem_restore(fail)(ValueError("another"))
    assert is_freed()
    monkeypatch.setenv(tracebacks.VARIABLE, "0")
    with pytest.raises(RuntimeError) as caught:
        gpu_mem_restore(fail)(RuntimeError("CUDA out of memory"))
    assert not is_freed()
    del caught


@pytest.mark.usefixtures("in_ipython")
def test_a_device_side_assertion_gives_advice() -> None:
    with (
        pytest.warns(UserWarning, match="CUDA_LAUNCH_BLOCKING"),
        pytest.raises(RuntimeError, match="device-side"),
    ):
        gpu_mem_restore(fail)(RuntimeError("CUDA error: device-side assert triggered"))


def test_outside_ipython_the_function_is_simply_called() -> None:
    with pytest.raises(RuntimeError) as caught:
        gpu_mem_restore(fail)(RuntimeError("CUDA out of memory"))
    assert not is_freed()
    del caught
    assert gpu_mem_restore(lambda: 5)() == 5


def test_the_context_manager_lets_go_of_any_exception() -> None:
    error = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "several arguments")
    with pytest.raises(UnicodeDecodeError) as caught, gpu_mem_restore_ctx():
        fail(error)
    assert caught.value is error
    assert is_freed()
    with pytest.raises(SystemExit) as left, gpu_mem_restore_ctx():
        raise SystemExit(3)
    assert left.value.code == 3
    with gpu_mem_restore_ctx() as context:
        pass
    assert context is not None


def test_a_running_generator_in_the_traceback_does_no_harm() -> None:
    def numbers() -> object:
        yield 1
        raise ValueError("in a generator")

    with pytest.raises(ValueError, match="in a generator"), gpu_mem_restore_ctx():
        list(numbers())  # type: ignore[call-overload]
