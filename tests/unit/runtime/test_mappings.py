"""Kinds of a process's memory."""

from __future__ import annotations

import pytest

from otel_memwatch.runtime.procfs.mappings import Part, parts_of

KIB = 1024


def _mapping(path: str, resident: int, anonymous: int) -> list[bytes]:
    head = f"55a0-55b0 rw-p 00000000 fe:01 4711 {' ' * 20}{path}".rstrip()
    return [
        line.encode() + b"\n"
        for line in (
            head,
            f"Size: {resident} kB",
            f"Rss: {resident} kB",
            "Pss: 1 kB",
            f"Anonymous: {anonymous} kB",
        )
    ]


def test_kinds_are_summed_and_sorted() -> None:
    lines = [
        *_mapping("[heap]", 100, 100),
        *_mapping("", 400, 400),
        *_mapping("", 100, 100),
        *_mapping("/models/big model.bin", 900, 0),
        *_mapping("/usr/lib/libc.so.6", 60, 20),
        *_mapping("/dev/shm/queue (deleted)", 50, 0),
        *_mapping("[stack]", 8, 8),
        *_mapping("[anon: glibc: pthread stack: 12]", 12, 12),
        *_mapping("[vdso]", 0, 0),
    ]
    assert parts_of(lines) == [
        Part("file", "/models/big model.bin", 900 * KIB),
        Part("anonymous mappings", "", 500 * KIB),
        Part("heap", "", 100 * KIB),
        Part("shared memory", "/dev/shm/queue (deleted)", 50 * KIB),
        Part("file", "/usr/lib/libc.so.6", 40 * KIB),
        Part("private copies of file pages", "", 20 * KIB),
        Part("stacks", "", 20 * KIB),
    ]


def test_this_process_is_mostly_known() -> None:
    with open("/proc/self/smaps", "rb") as file:
        parts = parts_of(file)
    assert {"heap", "file"} <= {part.kind for part in parts}


@pytest.mark.parametrize("damaged", [b"Rss: x kB\n", b"Rss:\n"])
def test_another_file_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"smaps|invalid literal"):
        parts_of([damaged])
