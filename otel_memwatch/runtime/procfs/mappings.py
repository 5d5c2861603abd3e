"""Parsers of /proc/PID/smaps and /proc/PID/maps: resident memory of a process by kind, and its files.

The kernel walks the page tables to answer: about 11 ms per GiB and 14 us for each mapping, during which the process can
change its mappings only between two of them.
"""

from __future__ import annotations

from otel_memwatch.runtime.light import lru_cache
from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re

HEAP, ANONYMOUS, STACKS = "heap", "anonymous mappings", "stacks"
FILE, COPIED, SHARED = "file", "private copies of file pages", "shared memory"
_MAPPING = (
    rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)\n(?:[A-Z].*\n)*?Rss: +(\d+) kB\n(?:[A-Z].*\n)*?Pss: +(\d+) kB\n"
    rb"(?:[A-Z].*\n)*?Anonymous: +(\d+) kB$"
)


class Part(NamedTuple):
    """Memory of one kind, in bytes."""

    kind: str
    name: str
    """Path of a mapped file or of shared memory; empty for other kinds."""
    bytes: int
    """Resident memory."""
    share: int
    """Proportional share: a page that several processes map is divided among them."""


def parts_of(smaps: bytes) -> list[Part]:
    """Return the parts of a process, the largest first. Raises `ValueError` for another file."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}

    def add(kind: str, name: str, size: int, share: int) -> None:
        if size > 0:
            known = sums.get((kind, name), (0, 0))
            sums[kind, name] = known[0] + size, known[1] + share

    found = _mapping().findall(smaps)
    if smaps and not found:
        raise ValueError("not a smaps file")
    for row in found:
        resident, share, anonymous = (int(value) << 10 for value in row[1:])
        if resident:
            path = row[0].decode("utf-8", "backslashreplace")
            private, named = _kinds(path)
            part = share * anonymous // resident
            add(private, "", anonymous, part)
            # Without a path only the kernel's zero page is left.
            add(named, path if named in (FILE, SHARED) else "", resident - anonymous, share - part)
    return sorted((Part(*key, *sizes) for key, sizes in sums.items()), key=lambda part: -part.bytes)


@lru_cache(None)
def _mapping() -> re.Pattern[bytes]:
    """Return the compiled `_MAPPING`. Small commands have no use for it, and loading `re` takes 4 ms."""
    import re

    return re.compile(_MAPPING, re.MULTILINE)


def _kinds(path: str) -> tuple[str, str]:
    """Return the kinds of a mapping's anonymous pages and of its other pages."""
    if path.startswith(("/dev/shm/", "/memfd:", "/SYSV", "/dev/zero")):  # noqa: S108 - a path in a listing
        return SHARED, SHARED
    if path.startswith("/"):
        return COPIED, FILE
    if path == "[heap]":
        return HEAP, HEAP
    if "stack" in path:
        return STACKS, STACKS
    return ANONYMOUS, ANONYMOUS


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
