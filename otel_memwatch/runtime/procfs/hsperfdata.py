"""Counters that a JVM publishes in /tmp/hsperfdata_USER/PID, a file that any process of the same user may read.

The layout is that of version 2.0 (HotSpot, since Java 5): a prologue, then entries with a name and a value. The file is
untrusted input.
"""

from __future__ import annotations

import os
import stat
import struct

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAGIC = b"\xca\xfe\xc0\xc0"
_MOST_BYTES, _MOST_ENTRIES = 1 << 20, 4096
_FOLDER = "hsperfdata_"
_HEAP, _METASPACE, _POLICY = "sun.gc.generation.", "sun.gc.metaspace.", b"sun.gc.policy.name\0"
_COLLECTORS = b"Copy:MSC", b"ParScav:MSC", b"GarbageFirst"
"""Policies of the serial, the parallel and the G1 collector. Others keep the heap in shared memory, or have no generations."""
_CLOCK_STEP = 1.0
"""Seconds by which a file may seem older than the process that made it."""


class JavaMemory(NamedTuple):
    """Memory of a JVM in bytes. What is used is of the last collection, unless the collector updates it."""

    young: int
    """Committed for new objects."""
    old_used: int
    old_committed: int
    metaspace_used: int
    metaspace_committed: int


def parse_hsperfdata(data: bytes) -> JavaMemory:
    """Return the memory in a file's content. Raises `ValueError`."""
    try:
        values = _values(data)
    except (struct.error, IndexError):
        raise ValueError("not a file of a JVM's counters") from None

    def total(generation: int, ending: str) -> int:
        return sum(
            value
            for name, value in values.items()
            if name.startswith(f"{_HEAP}{generation}.space.") and name.endswith(ending)
        )

    found = JavaMemory(
        total(0, ".capacity"),
        total(1, ".used"),
        total(1, ".capacity"),
        values.get(f"{_METASPACE}used", 0),
        values.get(f"{_METASPACE}capacity", 0),
    )
    pairs = (found.old_used, found.old_committed), (found.metaspace_used, found.metaspace_committed)
    if found.young < 0 or not all(0 <= used <= committed for used, committed in pairs):
        raise ValueError("figures of a JVM that contradict each other")
    if not found.old_committed:
        raise ValueError("a JVM without figures of its heap")
    return found


def _values(data: bytes) -> dict[str, int]:
    """Return the counters of 64 bits by name."""
    if data[:4] != _MAGIC or data[4] > 1 or data[5] != 2:
        raise ValueError("not a file of a JVM's counters")
    if not any(_POLICY in data and name + b"\0" in data for name in _COLLECTORS):
        raise ValueError("an unknown collector")
    order = "<" if data[4] else ">"
    at, number = struct.unpack_from(f"{order}ii", data, 24)
    values = {}
    for _ in range(min(number, _MOST_ENTRIES)):
        length, name_at, vector, kind = struct.unpack_from(f"{order}iiib", data, at)
        (value_at,) = struct.unpack_from(f"{order}i", data, at + 16)
        if length < 20 or name_at < 20 or value_at < 20:
            raise ValueError("a damaged entry")
        if vector == 0 and kind == ord("J"):
            begin = at + name_at
            name = data[begin : data.index(b"\0", begin)].decode("ascii", "replace")
            values[name] = int(struct.unpack_from(f"{order}q", data, at + value_at)[0])
        at += length
    return values


def jvm_folders(proc: str, pid: int) -> list[str]:
    """Return the directories in which JVMs of a process's mount namespace publish. Raises `OSError`."""
    folder = f"{proc}/{pid}/root/tmp"
    with os.scandir(folder) as entries:
        return [one.name for one in entries if one.name.startswith(_FOLDER)]


def read_hsperfdata(
    proc: str, pid: int, inner: int, folders: Iterable[str], started: float
) -> JavaMemory | None:
    """Return the memory of a process that is a JVM; `None` for any other.

    Args:
        proc: mount point of /proc.
        pid: the process.
        inner: the PID in its namespace, after which the file is named.
        folders: names of the directories that may have it.
        started: Unix seconds of its start; an older file belongs to an earlier process with this PID.
    """
    for folder in folders:
        path = f"{proc}/{pid}/root/tmp/{folder}/{inner}"
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        try:
            descriptor = os.open(path, flags)
        except OSError:
            continue
        try:
            found = os.fstat(descriptor)
            if (
                stat.S_ISREG(found.st_mode)
                and found.st_uid == os.stat(f"{proc}/{pid}").st_uid
                and found.st_mtime >= started - _CLOCK_STEP
            ):
                return parse_hsperfdata(os.read(descriptor, _MOST_BYTES))
        except (OSError, ValueError):
            continue
        finally:
            os.close(descriptor)
    return None
