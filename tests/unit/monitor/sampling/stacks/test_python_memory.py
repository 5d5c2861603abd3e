"""Tables of lines and of symbols in the memory of Python programs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

import pytest

from otel_memwatch.monitor.sampling.stacks import python_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF\2\1" + bytes(100), b"\x7fELF\2\1" + b"\xff" * 100, b"#!/bin/sh\n" * 9]
)
def test_a_file_that_is_no_interpreter(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "python3.12").write_bytes(content)
    with pytest.raises(python_memory._CHANGED):
        python_memory._symbols(tmp_path / "python3.12")


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has another table of lines")
@pytest.mark.parametrize("module", [argparse, subprocess, pytest], ids=["argparse", "subprocess", "pytest"])
def test_lines_are_those_of_the_interpreter(module: ModuleType) -> None:
    with open(module.__file__ or "", "rb") as file:
        compiled = compile(file.read(), "x", "exec")
    wrong = [
        (code.co_name, offset, line)
        for code in _codes(compiled)
        for start, end, line in code.co_lines()
        for offset in (start, end - 2)
        if python_memory.line_at(code.co_linetable, code.co_firstlineno, offset // 2) != (line or 0)
    ]
    assert list(_codes(compiled))
    assert wrong == []
