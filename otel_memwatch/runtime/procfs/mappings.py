"""Parser of /proc/PID/smaps: resident memory of a process by kind.

The kernel walks the page tables to answer: about 11 ms per GiB, during which the process can change its mappings only
between two of them.
"""

from __future__ import annotations

import re

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAP, ANONYMOUS, STACKS = "heap", "anonymous mappings", "stacks"
FILE, COPIED, SHARED = "file", "private copies of file pages", "shared memory"
_MAPPING = re.compile(rb"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")


class Part(NamedTuple):
    """Resident memory of one kind."""

    kind: str
    name: str
    """Path of a mapped file or of shared memory; empty for other kinds."""
    bytes: int


def parts_of(lines: Iterable[bytes]) -> list[Part]:
    """Return the parts of a process, the largest first. Raises `ValueError` for another file."""
    sums: dict[tuple[str, str], int] = {}
    path, resident = "", 0

    def add(kind: str, name: str, size: int) -> None:
        if size > 0:
            sums[kind, name] = sums.get((kind, name), 0) + size

    for line in lines:
        if line.startswith(b"Rss:"):
            resident = _kib(line)
        elif line.startswith(b"Anonymous:"):
            anonymous = _kib(line)
            private, named = _kinds(path)
            add(private, "", anonymous)
            # Without a path only the kernel's zero page is left.
            add(named, path if named in (FILE, SHARED) else "", resident - anonymous)
        elif found := _MAPPING.match(line):
            path = found[1].decode("utf-8", "backslashreplace")
    return sorted((Part(*key, size) for key, size in sums.items()), key=lambda part: -part.bytes)


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


def _kib(line: bytes) -> int:
    try:
        return int(line.split()[1]) * 1024
    except IndexError:
        raise ValueError("not a smaps file") from None
