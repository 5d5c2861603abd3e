"""What tells how wrong the clocks of this machine are: one file of a run that belongs to a group. Stdlib only.

Ticks are told in monotonic time, which only processes of one start of a machine (its boot id) have in common. To put those of
several machines beside each other, each records what ties its clock to others, and leaves it to the reader to judge:

=============================  ========================================================================================
evidence                       what it says
=============================  ========================================================================================
the boot id                    same id, same monotonic clock, whatever the wall clocks say
the kernel's state of NTP      the wall clock is within `error` of UTC, as the kernel's own bound (`maxerror`) has it, which
                               grows while nobody corrects the clock; where none does (`STA_UNSYNC`), it says nothing
a file on a server's file      the server stamped the file between two moments of our clock: all that have such a stamp know
system, made by us             their distance to one clock
=============================  ========================================================================================

It is looked at when the recording begins, once a minute, and at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from otel_memwatch.record.format import CLOCK_STAMP
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERIOD = 60.0
"""Seconds between two looks."""

_SERVERS = frozenset(("nfs", "nfs4", "cifs", "smb3"))
"""File systems whose server says when a file was made, and whose source names that server.

Those of Lustre, Ceph and GPFS take the time of the machine that writes. What a virtual machine gets from its host (9p, virtiofs)
bears a tag that is the same on all hosts, each of which stamps by a clock of its own.
"""
_OWN_SERVER = ("localhost", "127.", "[::1]", "::1", "//localhost", "//127.")
"""How the sources of a server begin that every machine may have of its own, under the same name."""
_UNSYNCHRONIZED = 5
"""What adjtimex gives where nobody corrects the clock (TIME_ERROR)."""
_STATUS_UNSYNCHRONIZED = 0x40


def boot_id(proc: str = "/proc") -> str | None:
    """The id of this start of the machine; `None`: not known."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(64).strip() or None
    except (OSError, ValueError):
        return None


def monotonic_offset(proc: str = "/proc") -> float:
    """Seconds by which the monotonic clock is ahead of the machine's own: a container may have a time namespace."""
    with (
        contextlib.suppress(OSError, ValueError, IndexError),
        open(f"{proc}/self/timens_offsets", encoding="ascii") as file,
    ):
        for line in file:
            words = line.split()
            if words and words[0] == "monotonic":
                return int(words[1]) + int(words[2]) / 1e9
    return 0.0


def clock_fields() -> dict[str, Any]:
    """The field "clock" of `run.json`."""
    return {"boot_id": boot_id(), "monotonic_offset": monotonic_offset()}


def wall_clock_error() -> float | None:
    """Seconds by which the wall clock is off at most, as the kernel judges it; `None`: nobody corrects it, or the kernel does not tell.

    Needs no privilege: nothing is set.
    """
    try:
        import ctypes

        # struct timex: modes, offset, freq, maxerror (microseconds), esterror, status ... 208 bytes where long has eight.
        timex = (ctypes.c_long * 32)()
        if ctypes.sizeof(ctypes.c_long) != 8:
            return None
        state = ctypes.CDLL(None).adjtimex(timex)
        most, status = timex[3], timex[5] & 0xFFFFFFFF
    except (ImportError, OSError, AttributeError, ValueError):
        return None
    if state < 0 or state == _UNSYNCHRONIZED or status & _STATUS_UNSYNCHRONIZED:
        return None
    return most / 1e6


def server_of(directory: str, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """The server whose clock stamps files in a directory, as "nfs4 server:/export"; `None`: it is this machine's own."""
    with contextlib.suppress(OSError, ValueError):
        device = os.stat(directory).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        with open(mountinfo, encoding="utf-8", errors="replace") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                kind, source = [*after.split(" "), "", ""][:2]
                if before.split(" ")[2:3] != [number] or kind not in _SERVERS:
                    continue
                if not source.startswith(_OWN_SERVER):
                    # An address and a name may be the same server: then they are two, and nothing is claimed.
                    return f"{kind} {source}"
    return None


def stamp(directory: str) -> dict[str, Any] | None:
    """One time stamp of the server of a directory's file system; `None`: there is no server, or it cannot be written."""
    server = server_of(directory)
    if server is None:
        return None
    path = os.path.join(directory, f"{CLOCK_STAMP}.{os.getpid()}")
    try:
        before = time.monotonic()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # The server says when it made the file; asking it again would bring nothing newer.
        stamped = os.stat(path).st_ctime_ns / 1e9
        after = time.monotonic()
    except OSError:
        return None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return {"by": server, "before": before, "stamp": stamped, "resolution": 0.01, "after": after}


def look(directory: Path) -> Iterator[str]:
    """The lines of one look, for the record's file of clocks; a few microseconds, more where a server is asked."""
    before = time.monotonic()
    wall = time.time()
    after = time.monotonic()
    error = wall_clock_error()
    if error is not None:
        error = round(error + (after - before) / 2, 6)
    yield _line({"monotonic": round((before + after) / 2, 6), "wall": round(wall, 6), "error": error})
    stamped = stamp(str(directory))
    if stamped is not None:
        yield _line(stamped)


def _line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
