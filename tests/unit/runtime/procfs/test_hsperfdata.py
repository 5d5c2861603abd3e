"""Counters of a JVM: a file made here, damaged ones, and a real JVM's."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from random import Random

import pytest

from otel_memwatch.runtime.procfs.hsperfdata import (
    JavaMemory,
    jvm_folders,
    parse_hsperfdata,
    read_hsperfdata,
)

MIB = 1 << 20
COUNTERS = {
    "sun.gc.generation.0.space.0.capacity": 60 * MIB,
    "sun.gc.generation.0.space.1.capacity": 4 * MIB,
    "sun.gc.generation.1.space.0.capacity": 200 * MIB,
    "sun.gc.generation.1.space.0.used": 5 * MIB,
    "sun.gc.metaspace.capacity": 10 * MIB,
    "sun.gc.metaspace.used": 9 * MIB,
}


def _entry(name: bytes, kind: bytes, value: bytes, vector: int, order: str) -> bytes:
    name += b"\0" * (8 - len(name) % 8)
    length = 20 + len(name) + len(value)
    head = struct.pack(f"{order}iiicbbbi", length, 20, vector, kind, 0, 1, 1, 20 + len(name))
    return head + name + value


def hsperfdata_file(order: str = "<", collector: bytes = b"GarbageFirst", **changes: int) -> bytes:
    counters = {**COUNTERS, **changes}
    entries = [
        _entry(name.encode(), b"J", struct.pack(f"{order}q", value), 0, order)
        for name, value in counters.items()
    ]
    entries.append(_entry(b"sun.gc.policy.name", b"B", collector + b"\0", len(collector) + 1, order))
    head = b"\xca\xfe\xc0\xc0" + bytes([order == "<", 2, 0, 1])
    return head + struct.pack(f"{order}iiqii", 0, 0, 0, 32, len(entries)) + b"".join(entries)


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_old_generation_has_free_memory(order: str) -> None:
    expected = JavaMemory(64 * MIB, 5 * MIB, 200 * MIB, 9 * MIB, 10 * MIB)
    assert parse_hsperfdata(hsperfdata_file(order)) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 100,
        hsperfdata_file(collector=b"The Z Garbage Collector"),  # its heap is shared memory
        hsperfdata_file(**{"sun.gc.generation.1.space.0.used": 300 * MIB}),
        hsperfdata_file(**{"sun.gc.generation.1.space.0.capacity": 0, "sun.gc.generation.1.space.0.used": 0}),
        hsperfdata_file()[:200],
    ],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"JVM|collector|damaged"):
        parse_hsperfdata(data)


def test_a_damaged_file_ends_in_a_result_or_an_error() -> None:
    rng, sound = Random(34), hsperfdata_file()
    for _ in range(500):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 20)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            found = parse_hsperfdata(bytes(data))
        except ValueError:
            continue
        assert 0 <= found.old_used <= found.old_committed


def test_a_file_belongs_to_a_process_that_is_not_younger(tmp_path: Path) -> None:
    folder = tmp_path / "7/root/tmp/hsperfdata_user"
    folder.mkdir(parents=True)
    (folder / "3").write_bytes(hsperfdata_file())
    (folder / "4").symlink_to(folder / "3")
    (folder.parent / "other").mkdir()
    folders = jvm_folders(str(tmp_path), 7)
    assert folders == ["hsperfdata_user"]
    now = time.time()
    os.utime(folder / "3", (now, now))
    assert read_hsperfdata(str(tmp_path), 7, 3, folders, now - 60) is not None
    assert read_hsperfdata(str(tmp_path), 7, 3, folders, now + 60) is None
    assert read_hsperfdata(str(tmp_path), 7, 4, folders, now - 60) is None
    assert read_hsperfdata(str(tmp_path), 7, 5, folders, now - 60) is None
