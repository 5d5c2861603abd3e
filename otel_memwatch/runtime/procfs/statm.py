"""Parsers of /proc/PID/statm. They raise `ValueError` for anything else.

The watched program imports this too, so it imports nothing that a bare Python has not loaded already.
"""

from __future__ import annotations

from otel_memwatch.runtime.kernel import PAGE_SIZE


def parse_resident(data: bytes) -> int:
    """Return resident memory in bytes; 0 for a zombie and for a kernel thread."""
    return _pages(data.split(None, 2), 1) * PAGE_SIZE


def parse_private(data: bytes) -> int:
    """Return private resident memory in bytes, without pages of files and shared memory; 0 for a zombie."""
    fields = data.split(None, 3)
    return max(0, _pages(fields, 1) - _pages(fields, 2)) * PAGE_SIZE


def parse_virtual(data: bytes) -> int:
    """Return the address space in bytes."""
    return _pages(data.split(None, 1), 0) * PAGE_SIZE


def _pages(fields: list[bytes], index: int) -> int:
    try:
        return int(fields[index])
    except IndexError:
        raise ValueError("not a statm file") from None
