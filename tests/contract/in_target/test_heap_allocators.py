"""Statistics of the allocator that really serves a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations import native
from tests.bench.heaps import PRELOADED, is_installed

OTHER = """
#include <stddef.h>
void *__libc_malloc(size_t size);
void *malloc(size_t size) { return __libc_malloc(size); }
void mallinfo2(void) { }
"""


LOAD = """
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
loader = ExtensionFileLoader("_native", sys.argv[1])
native = loader.create_module(ModuleSpec("_native", loader, origin=sys.argv[1]))
loader.exec_module(native)
print(native.heap_books(1)[0])
"""

pytestmark = pytest.mark.skipif(not native.COMPILED, reason="no compiled code")


@pytest.mark.parametrize("python", sorted({sys.executable, "/usr/bin/python3"}))
@pytest.mark.parametrize("preloaded", [name for name in PRELOADED if name != "pymalloc"])
def test_the_allocator_of_each_python_is_found(python: str, preloaded: str) -> None:
    """Debian's Python is an executable at a fixed address: its symbol `malloc` leads to a library."""
    if not os.path.exists(python) or not is_installed(preloaded):
        pytest.skip(f"{python} or {preloaded} is not installed")
    assert native.COMPILED
    library = native._native.__file__
    found = subprocess.run(
        [python, "-I", "-S", "-c", LOAD, str(library)],
        env={**os.environ, "LD_PRELOAD": PRELOADED[preloaded]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == preloaded


def test_the_mallinfo2_of_another_allocator_is_not_glibcs(tmp_path: Path) -> None:
    """tcmalloc has one, for example."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(OTHER)
    subprocess.run(["cc", "-shared", "-fPIC", "-fno-builtin", "-o", str(library), str(source)], check=True)
    code = "from otel_memwatch.in_target.operations.native import heap_books; print(heap_books(1)[0])"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for variables in ({}, {"LD_PRELOAD": str(library)})
    ]
    assert names == ["glibc", "None"]
