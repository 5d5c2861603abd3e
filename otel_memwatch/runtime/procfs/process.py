"""Parsers of /proc/PID/*, whose fields proc(5) describes. All raise `ValueError` for anything else.

`statm` has a module of its own, which the watched program imports.
"""

from __future__ import annotations

from otel_memwatch.runtime.kernel import CLOCK_TICKS
from otel_memwatch.runtime.typed import NamedTuple

ZOMBIE_STATES = frozenset("ZXx")
"""States of a process that has ended and has not been waited for."""
SIGCHLD_BIT = 1 << 16
"""SIGCHLD (17) in the masks of /proc/PID/status; the same number on all architectures but alpha, mips, parisc, sparc."""


class Stat(NamedTuple):
    """/proc/PID/stat."""

    pid: int
    command: str
    """Short name (comm), at most 15 bytes."""
    state: str
    ppid: int
    minor_faults: int
    child_minor_faults: int
    """Of reaped children and of what they had reaped."""
    major_faults: int
    child_major_faults: int
    cpu_user: float
    """Seconds, all threads, also those that ended."""
    cpu_system: float
    child_cpu_user: float
    """Seconds of reaped children and of what they had reaped."""
    child_cpu_system: float
    threads: int
    start: int
    """Clock ticks since boot: identifies a process together with its pid."""
    virtual: int
    """Bytes of address space."""
    stack: int
    """Address of the stack: changes with every exec. 0 where the kernel hides it, and for zombies."""


def parse_stat(data: bytes) -> Stat:
    """Parse /proc/PID/stat; the command may hold any byte, blanks and parentheses included."""
    try:
        opening, closing = data.index(b"("), data.rindex(b")")
        f = data[closing + 2 :].split(None, 26)
        return Stat(
            int(data[:opening]),
            data[opening + 1 : closing].decode("utf-8", "backslashreplace"),
            f[0].decode(),
            int(f[1]),
            int(f[7]),
            int(f[8]),
            int(f[9]),
            int(f[10]),
            int(f[11]) / CLOCK_TICKS,
            int(f[12]) / CLOCK_TICKS,
            int(f[13]) / CLOCK_TICKS,
            int(f[14]) / CLOCK_TICKS,
            int(f[17]),
            int(f[19]),
            int(f[20]),
            int(f[25]),
        )
    except IndexError:
        raise ValueError("not a stat file") from None


class Io(NamedTuple):
    """/proc/PID/io, in bytes. The kernel adds what reaped children had to their parent's figures."""

    read_chars: int | None
    """Passed to read calls: cached files, pipes and terminals included; `None`: not known."""
    write_chars: int | None
    read_bytes: int
    """Fetched from storage."""
    write_bytes: int
    """Pages made dirty: caused to be written, unless cancelled."""


def parse_io(data: bytes) -> Io:
    """Parse /proc/PID/io."""
    f = data.split()
    if len(f) < 12 or f[0] != b"rchar:" or f[10] != b"write_bytes:":
        raise ValueError("not an io file")
    return Io(int(f[1]), int(f[3]), int(f[9]), int(f[11]))


class Status(NamedTuple):
    """Fields of /proc/PID/status that other files lack. A zombie has no memory fields: `None`."""

    peak: int | None
    """VmHWM in bytes: the largest resident memory since exec, or since the watermark was reset."""
    anon: int | None
    file: int | None
    shmem: int | None
    swap: int | None
    uid: int
    """Effective user."""
    ignores_sigchld: bool
    """SIGCHLD is ignored: children vanish from the accounting when they end."""
    voluntary: int
    """Context switches of the main thread."""
    involuntary: int


_PF_EXITING = 0x4


def _kib(data: bytes, key: bytes) -> int | None:
    at = data.find(key)
    return None if at < 0 else int(data[at + len(key) : data.index(b"kB", at)]) * 1024


def _field(data: bytes, key: bytes) -> bytes:
    at = data.find(key)
    if at < 0:
        raise ValueError(f"status has no {key!r}")
    return data[at + len(key) : data.index(b"\n", at + len(key))]


def parse_status(data: bytes) -> Status:
    """Parse /proc/PID/status."""
    return Status(
        _kib(data, b"\nVmHWM:"),
        _kib(data, b"\nRssAnon:"),
        _kib(data, b"\nRssFile:"),
        _kib(data, b"\nRssShmem:"),
        _kib(data, b"\nVmSwap:"),
        int((_field(data, b"\nUid:").split() + [b""] * 2)[1]),
        parse_ignores_sigchld(data),
        int(_field(data, b"\nvoluntary_ctxt_switches:")),
        int(_field(data, b"\nnonvoluntary_ctxt_switches:")),
    )


def parse_ignores_sigchld(data: bytes) -> bool:
    """Whether SIGCHLD is ignored, alone from /proc/PID/status."""
    return bool(int(_field(data, b"\nSigIgn:"), 16) & SIGCHLD_BIT)


def is_exiting(data: bytes) -> bool:
    """Whether the process of this stat has begun to end (PF_EXITING among its flags), alone from /proc/PID/stat."""
    return bool(int(data[data.rindex(b")") + 2 :].split(None, 7)[6]) & _PF_EXITING)


def parse_watermark(data: bytes) -> int | None:
    """VmHWM alone from /proc/PID/status, in bytes; `None` for a zombie and for a kernel thread."""
    return _kib(data, b"\nVmHWM:")


def parse_hugetlb(data: bytes) -> int:
    """Bytes of huge pages of hugetlbfs that are mapped (HugetlbPages), alone from /proc/PID/status; 0 for a zombie too."""
    return _kib(data, b"\nHugetlbPages:") or 0


def parse_shmem(data: bytes) -> int:
    """RssShmem alone from /proc/PID/status, in bytes; 0 for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssShmem:") or 0


def parse_resident_files(data: bytes) -> int | None:
    """RssFile alone from /proc/PID/status, in bytes; `None` for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssFile:")


def parse_resident_private(data: bytes) -> int | None:
    """RssAnon alone from /proc/PID/status, in bytes; `None` for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssAnon:")


def parse_swapped(data: bytes) -> int:
    """VmSwap alone from /proc/PID/status, in bytes; 0 for a zombie, and where there is no swap."""
    return _kib(data, b"\nVmSwap:") or 0


def parse_pinned(data: bytes) -> int:
    """VmPin alone from /proc/PID/status, in bytes: pages that devices or io_uring hold; a fork copies them without a fault."""
    return _kib(data, b"\nVmPin:") or 0


def parse_secret(data: bytes) -> int:
    """Bytes of resident file pages that may be memfd_secret's, from /proc/PID/status: no more than what is locked (VmLck)."""
    locked = _kib(data, b"\nVmLck:") or 0
    return min(locked, _kib(data, b"\nRssFile:") or 0) if locked else 0


def parse_thread_group(data: bytes) -> int:
    """Process that a thread belongs to (Tgid), from /proc/PID/status."""
    return int(_field(data, b"\nTgid:"))


class Rollup(NamedTuple):
    """/proc/PID/smaps_rollup, in bytes."""

    pss: int
    """Shared pages divided by the number of those who map them."""
    uss: int
    """Pages that no other process maps."""
    swap: int
    needed: int | None = None
    """Of `pss`, what is no page of a file; `None`: not told (before Linux 5.4)."""


def parse_rollup(data: bytes) -> Rollup:
    """Parse /proc/PID/smaps_rollup; a process without memory has no fields and counts as 0."""
    private = (_kib(data, b"\nPrivate_Clean:") or 0) + (_kib(data, b"\nPrivate_Dirty:") or 0)
    anon, shared = _kib(data, b"\nPss_Anon:"), _kib(data, b"\nPss_Shmem:")
    needed = anon + shared if anon is not None and shared is not None else None if data else 0
    return Rollup(_kib(data, b"\nPss:") or 0, private, _kib(data, b"\nSwap:") or 0, needed)


_MOST_EMPTY = 8
"""Empty arguments that may have been meant."""


def parse_arguments(data: bytes) -> tuple[str, ...]:
    """The argv from /proc/PID/cmdline; bytes that are not UTF-8 become surrogates. Empty for zombies and kernel threads."""
    if not data:
        return ()
    words = data.removesuffix(b"\0").split(b"\0")
    return without_padding(tuple(part.decode("utf-8", "surrogateescape") for part in words))


def without_padding(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The argv of a process that has written a title over its arguments (setproctitle), without what it filled the rest with.

    Nobody gives a program so many empty arguments and no other one: "ray::IDLE" is followed by a thousand.
    """
    return argv[:1] if len(argv) > _MOST_EMPTY and not any(argv[1:]) else argv
