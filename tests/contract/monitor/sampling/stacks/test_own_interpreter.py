"""Readers of stacks that are processes of the program's interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from otel_memwatch.monitor.sampling.stacks import own_interpreter, tools
from otel_memwatch.record.stacks import StackFrame

STAND_IN = """
import sys, types
class RemoteUnwinder:
    reads = 0
    def __init__(self, pid, all_threads):
        self.pid = pid
    def get_stack_trace(self):
        RemoteUnwinder.reads += 1
        {body}
sys.modules["_remote_debugging"] = types.SimpleNamespace(RemoteUnwinder=RemoteUnwinder)
"""
PLACE = "(7, 7, 0, 3)"
PYTHON_3_14 = "return [(5, [('a.py', 7, 'load')]), (6, [('<frozen>', None, 'wait')])]"
PYTHON_3_15 = f"return [types.SimpleNamespace(threads=[(5, 4, [('a.py', {PLACE}, 'load', None)]), (6, 4, [('<frozen>', None, 'wait', None)])])]"
REFUSED = "try:\n            raise PermissionError(1, 'no')\n        except PermissionError:\n            raise RuntimeError('cannot read')"


@pytest.fixture(autouse=True)
def _no_readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own_interpreter, "_readers", {})
    yield
    own_interpreter.end()


def _behave(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(own_interpreter, "_PROGRAM", STAND_IN.format(body=body) + own_interpreter._PROGRAM)


@pytest.mark.parametrize("body", [PYTHON_3_14, PYTHON_3_15], ids=["3.14", "3.15"])
def test_one_reader_answers_several_times(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    _behave(monkeypatch, body)
    for _ in range(2):
        threads = own_interpreter.read(sys.executable, 9)
        assert [(one.id, one.frames) for one in threads] == [
            (5, (StackFrame("load", "a.py", 7),)),
            (6, (StackFrame("wait", "<frozen>", 0),)),
        ]
    assert len(own_interpreter._readers) == 1
    assert own_interpreter.cpu() > 0


def test_a_stack_that_changes_during_a_reading_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _behave(monkeypatch, f"if self.reads < 3: raise RuntimeError('changed')\n        {PYTHON_3_14}")
    assert own_interpreter.read(sys.executable, 9)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (REFUSED, tools.NotPermittedError, "cannot read"),
        ("raise OSError('no python')", tools.NoStackError, "no python"),
        ("sys.exit(1)", tools.NoStackError, "no answer"),
    ],
)
def test_failures(
    monkeypatch: pytest.MonkeyPatch, body: str, kind: type[tools.NoStackError], words: str
) -> None:
    _behave(monkeypatch, body)
    with pytest.raises(tools.NoStackError, match=words) as caught:
        own_interpreter.read(sys.executable, 9)
    assert type(caught.value) is kind


def test_an_interpreter_without_remote_debugging_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _behave(monkeypatch, "pass\nsys.exit(1)")
    for words in ("no answer", "has ended"):
        with pytest.raises(tools.NoStackError, match=words):
            own_interpreter.read(sys.executable, 9)


def test_an_interpreter_that_cannot_be_started_is_a_failure() -> None:
    with pytest.raises(tools.NoStackError):
        own_interpreter.read("/gone/python3.14", 9)
