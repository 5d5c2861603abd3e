"""Parser of the files in `/proc/PID/maps` and `/proc/PID/smaps`."""

from __future__ import annotations

from otel_memwatch.runtime.typed import NamedTuple

_DELETED = b" (deleted)"


class MappedFile(NamedTuple):
    """Mappings of one file in one process, in bytes."""

    path: bytes
    """The kernel's form: newlines are escaped."""
    mapped: int
    """Sum of the mappings."""
    resident: int | None
    """Part of it in memory, without private copies; `None`: `maps` does not contain it."""


def parse_mapped_files(data: bytes) -> dict[bytes, MappedFile]:
    """Return the mapped files by path. Devices, memory files and deleted files are left out."""
    found: dict[bytes, MappedFile] = {}
    path: bytes | None = None
    for line in data.split(b"\n"):
        if line[:1].isupper():  # a figure; a mapping begins with hexadecimal digits in lower case
            if path is not None and line.startswith((b"Rss:", b"Anonymous:")):
                kib, before = int(line.partition(b":")[2].strip().removesuffix(b"kB")), found[path]
                sign = 1024 if line.startswith(b"Rss:") else -1024
                found[path] = before._replace(resident=(before.resident or 0) + sign * kib)
            continue
        fields = line.split(None, 5)
        path = None
        if len(fields) < 6 or fields[4] == b"0" or not fields[5].startswith(b"/"):
            continue
        if fields[5].endswith(_DELETED) or fields[5].startswith((b"/dev/", b"/memfd:", b"/SYSV")):
            continue
        path = fields[5]
        begin, _, end = fields[0].partition(b"-")
        size = int(end, 16) - int(begin, 16)
        before = found.get(path) or MappedFile(path, 0, None)
        found[path] = before._replace(mapped=before.mapped + size)
    return found
