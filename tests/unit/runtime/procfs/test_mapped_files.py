"""Files in maps and smaps."""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.runtime.procfs.mapped_files import MappedFile, parse_mapped_files

SMAPS = (Path(__file__).parents[3] / "data/proc/smaps").read_bytes()
KIB = 1024


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
