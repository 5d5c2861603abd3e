"""Kinds and files of a process's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_memwatch.runtime.procfs.mappings import MappedFile, Part, parse_mapped_files, parts_of

SMAPS = (Path(__file__).parents[3] / "data/proc/smaps").read_bytes()
KIB = 1024


def _mapping(path: str, resident: int, anonymous: int, share: int | None = None) -> bytes:
    head = f"55a0-55b0 rw-p 00000000 fe:01 4711 {' ' * 20}{path}".rstrip()
    share = resident if share is None else share
    rows = (f"Size: {resident} kB", f"Rss: {resident} kB", f"Pss: {share} kB", "Pss_Dirty: 0 kB")
    more = ("Referenced: 1 kB", f"Anonymous: {anonymous} kB", "KSM: 0 kB", "VmFlags: rd wr")
    return "".join(f"{row}\n" for row in (head, *rows, *more)).encode()


def test_kinds_are_summed_and_sorted() -> None:
    mappings = (
        _mapping("[heap]", 100, 100),
        _mapping("", 400, 400),
        _mapping("", 100, 100),
        _mapping("/models/big model.bin", 900, 0),
        _mapping("/usr/lib/libc.so.6", 60, 20),
        _mapping("/dev/shm/queue (deleted)", 50, 0),
        _mapping("[stack]", 8, 8),
        _mapping("[anon: glibc: pthread stack: 12]", 12, 12),
        _mapping("[vdso]", 0, 0),
    )
    assert [one[:3] for one in parts_of(b"".join(mappings))] == [
        ("file", "/models/big model.bin", 900 * KIB),
        ("anonymous mappings", "", 500 * KIB),
        ("heap", "", 100 * KIB),
        ("shared memory", "/dev/shm/queue (deleted)", 50 * KIB),
        ("file", "/usr/lib/libc.so.6", 40 * KIB),
        ("private copies of file pages", "", 20 * KIB),
        ("stacks", "", 20 * KIB),
    ]


def test_a_share_is_divided_between_kinds() -> None:
    parts = parts_of(_mapping("/usr/lib/libc.so.6", 60, 20, 30) + _mapping("[heap]", 100, 100, 50))
    assert parts == [
        Part("heap", "", 100 * KIB, 50 * KIB),
        Part("file", "/usr/lib/libc.so.6", 40 * KIB, 20 * KIB),
        Part("private copies of file pages", "", 20 * KIB, 10 * KIB),
    ]


def test_this_process_is_mostly_known() -> None:
    with open("/proc/self/smaps", "rb") as file:
        data = file.read()
    parts = parts_of(data)
    assert {"heap", "file"} <= {part.kind for part in parts}
    resident = sum(int(row.split()[1]) for row in data.splitlines() if row.startswith(b"Rss:"))
    assert sum(part.bytes for part in parts) == resident * KIB


@pytest.mark.parametrize("damaged", [b"Rss: x kB\n", b"Rss:\n", b"\0" * 100])
def test_another_file_is_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="smaps"):
        parts_of(damaged)


def test_an_ended_process_has_no_parts() -> None:
    assert parts_of(b"") == []


def test_each_file_has_its_mappings_and_pages_without_private_copies() -> None:
    model, data = b"/usr/lib/model.safetensors", b"/data/with space.bin"
    assert parse_mapped_files(SMAPS) == {
        model: MappedFile(model, 1536 * KIB, 572 * KIB),
        data: MappedFile(data, 2048 * KIB, 2048 * KIB),
    }


def test_maps_does_not_show_pages_in_memory() -> None:
    maps = b"".join(line + b"\n" for line in SMAPS.splitlines() if not line[:1].isupper())
    found = parse_mapped_files(maps)
    assert [(one.mapped, one.resident) for one in found.values()] == [(1536 * KIB, None), (2048 * KIB, None)]
    assert parse_mapped_files(b"") == {}
