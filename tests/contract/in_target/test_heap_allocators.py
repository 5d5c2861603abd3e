"""Statistics of the allocator that really serves a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_memwatch.in_target.operations import heap

PRELOADED = """
#include <stddef.h>
void *__libc_malloc(size_t size);
void *malloc(size_t size) { return __libc_malloc(size); }
void mallinfo2(void) { }
"""


@pytest.mark.skipif(heap.heap_books is None, reason="no compiled code")
def test_the_mallinfo2_of_another_allocator_is_not_glibcs(tmp_path: Path) -> None:
    """tcmalloc has one, for example."""
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(PRELOADED)
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
