"""Parsers of /proc/PID/*: see proc(5) for the fields. All raise `ValueError` for other files.

`statm` has a separate module, which the watched program imports.
"""

from __future__ import annotations

from otel_memwatch.runtime.kernel import CLOCK_TICKS
from otel_memwatch.runtime.typed import NamedTuple

ZOMBIE_STATES = frozenset("ZXx")
"""States of a process that has ended but was not waited for."""
SIGCHLD_BIT = 1 << 16
"""Bit of SIGCHLD (17) in the masks of /proc/PID/stat and status, except on alpha, mips, parisc and sparc."""


class Stat(NamedTuple):
    """/proc/PID/stat."""

    pid: int
    command: str
    """Short name (comm), at most 15 bytes."""
    state: str
    ppid: int
    minor_faults: int
    child_minor_faults: int
    """Page faults of reaped children and of the children that they reaped."""
    major_faults: int
    child_major_faults: int
    cpu_user: float
    """Seconds of all threads, including ended ones."""
    cpu_system: float
    child_cpu_user: float
    """Seconds of reaped children and of the children that they reaped."""
    child_cpu_system: float
    threads: int
    start: int
    """Clock ticks since boot. Together with the PID it identifies a process."""
    virtual: int
    """Bytes of address space."""
    stack: int
    """Address of the stack, which changes with every exec. 0 if the kernel hides it, and for zombies."""
    ignores_sigchld: bool = False
    """True if SIGCHLD is ignored, so ended children vanish from the accounting."""


def parse_stat(data: bytes) -> Stat:
    """Parse /proc/PID/stat; the command may contain any byte, including spaces and parentheses."""
    try:
        opening, closing = data.index(b"("), data.rindex(b")")
        f = data[closing + 2 :].split(None, 31)
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
            bool(int(f[30]) & SIGCHLD_BIT),
        )
    except IndexError:
        raise ValueError("not a stat file") from None


class Io(NamedTuple):
    """/proc/PID/io, in bytes. The kernel adds the figures of reaped children to their parent's."""

    read_chars: int | None
    """Passed to read calls, including cached files, pipes and terminals; `None` if unknown."""
    write_chars: int | None
    read_bytes: int
    """Fetched from storage."""
    write_bytes: int
    """Pages made dirty, which will be written to storage unless cancelled."""


def parse_io(data: bytes) -> Io:
    """Parse /proc/PID/io."""
    f = data.split()
    if len(f) < 12 or f[0] != b"rchar:" or f[10] != b"write_bytes:":
        raise ValueError("not an io file")
    return Io(int(f[1]), int(f[3]), int(f[9]), int(f[11]))


class Status(NamedTuple):
    """Fields of /proc/PID/status that other files lack. A zombie has no memory fields: `None`."""

    peak: int | None
    """VmHWM in bytes: the largest resident memory since exec, or since the last reset."""
    anon: int | None
    file: int | None
    shmem: int | None
    swap: int | None
    ignores_sigchld: bool
    """True if SIGCHLD is ignored, so ended children vanish from the accounting."""
    voluntary: int
    """Context switches of the main thread."""
    involuntary: int


_PF_EXITING = 0x4
_PF_FORKNOEXEC = 0x40


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
        parse_ignores_sigchld(data),
        int(_field(data, b"\nvoluntary_ctxt_switches:")),
        int(_field(data, b"\nnonvoluntary_ctxt_switches:")),
    )


def parse_ignores_sigchld(data: bytes) -> bool:
    """Return only whether SIGCHLD is ignored, from /proc/PID/status."""
    return bool(int(_field(data, b"\nSigIgn:"), 16) & SIGCHLD_BIT)


class FirstThread(NamedTuple):
    """The scheduler's counts of a process's first thread."""

    seconds: float
    """CPU time."""
    migrations: int
    """Changes of processor."""
    switches: int
    """Context switches."""


def parse_first_thread(data: bytes | None) -> FirstThread | None:
    """Parse /proc/PID/sched; `None`: this kernel does not count."""
    names = b"\nse.sum_exec_runtime", b"\nse.nr_migrations", b"\nnr_switches"
    if data is None or not all(name in data for name in names):
        return None
    milliseconds, migrations, switches = (_field(data, name).partition(b":")[2] for name in names)
    return FirstThread(float(milliseconds) / 1000, int(migrations), int(switches))


def is_exiting(data: bytes) -> bool:
    """Return only whether the process has begun to exit (flag PF_EXITING), from /proc/PID/stat."""
    return bool(_flags(data) & _PF_EXITING)


def has_executed(data: bytes) -> bool:
    """Return only whether the process has executed a program since its fork, from /proc/PID/stat."""
    return not _flags(data) & _PF_FORKNOEXEC


def _flags(data: bytes) -> int:
    return int(data[data.rindex(b")") + 2 :].split(None, 7)[6])


def parse_watermark(data: bytes) -> int | None:
    """Return only VmHWM from /proc/PID/status, in bytes; `None` for a zombie and for a kernel thread."""
    return _kib(data, b"\nVmHWM:")


def parse_hugetlb(data: bytes) -> int:
    """Return only HugetlbPages from /proc/PID/status, in bytes: mapped huge pages of hugetlbfs; 0 for a zombie."""
    return _kib(data, b"\nHugetlbPages:") or 0


def parse_shmem(data: bytes) -> int:
    """Return only RssShmem from /proc/PID/status, in bytes; 0 for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssShmem:") or 0


def parse_resident_files(data: bytes) -> int | None:
    """Return only RssFile from /proc/PID/status, in bytes; `None` for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssFile:")


def parse_resident_private(data: bytes) -> int | None:
    """Return only RssAnon from /proc/PID/status, in bytes; `None` for a zombie, and before Linux 4.5."""
    return _kib(data, b"\nRssAnon:")


def parse_swapped(data: bytes) -> int:
    """Return only VmSwap from /proc/PID/status, in bytes; 0 for a zombie, and without swap."""
    return _kib(data, b"\nVmSwap:") or 0


def parse_page_tables(data: bytes) -> int:
    """Return the bytes of page tables from /proc/PID/status: VmPTE, and VmPMD before Linux 4.15; 0 for a zombie."""
    return (_kib(data, b"\nVmPTE:") or 0) + (_kib(data, b"\nVmPMD:") or 0)


def parse_private(data: bytes) -> int:
    """Return the addresses of private writable mappings in bytes, from /proc/PID/status."""
    return (_kib(data, b"\nVmData:") or 0) + (_kib(data, b"\nVmStk:") or 0)


def parse_threads(data: bytes) -> int:
    """Return only the number of threads from /proc/PID/status."""
    return int(_field(data, b"\nThreads:"))


def parse_pinned(data: bytes) -> int:
    """Return only VmPin from /proc/PID/status, in bytes.

    Devices or io_uring hold these pages. A fork copies them without a page fault.
    """
    return _kib(data, b"\nVmPin:") or 0


def parse_secret(data: bytes) -> int:
    """Return an upper bound of memfd_secret memory in bytes, from /proc/PID/status: locked (VmLck) file pages."""
    locked = _kib(data, b"\nVmLck:") or 0
    return min(locked, _kib(data, b"\nRssFile:") or 0) if locked else 0


def parse_thread_group(data: bytes) -> int:
    """Return the process of a thread (Tgid), from /proc/PID/status."""
    return int(_field(data, b"\nTgid:"))


class Rollup(NamedTuple):
    """/proc/PID/smaps_rollup, in bytes."""

    pss: int
    """Proportional set size: each shared page is divided by the number of processes that map it."""
    uss: int
    """Unique set size: pages that no other process maps."""
    swap: int
    needed: int | None = None
    """Part of `pss` without file pages; `None` before Linux 5.4."""
    shared: int = 0
    """Part of `needed` in shared memory."""


def parse_rollup(data: bytes) -> Rollup:
    """Parse /proc/PID/smaps_rollup; a process without memory has no fields and counts as 0."""
    private = (_kib(data, b"\nPrivate_Clean:") or 0) + (_kib(data, b"\nPrivate_Dirty:") or 0)
    anon, shared = _kib(data, b"\nPss_Anon:"), _kib(data, b"\nPss_Shmem:")
    needed = anon + shared if anon is not None and shared is not None else None if data else 0
    return Rollup(_kib(data, b"\nPss:") or 0, private, _kib(data, b"\nSwap:") or 0, needed, shared or 0)


_MOST_EMPTY = 8
"""Maximum number of empty arguments that may be intended."""


def parse_arguments(data: bytes) -> tuple[str, ...]:
    """Return argv from /proc/PID/cmdline, with surrogates for bytes that are not UTF-8. Empty for zombies and kernel threads."""
    if not data:
        return ()
    words = data.removesuffix(b"\0").split(b"\0")
    return without_padding(tuple(part.decode("utf-8", "surrogateescape") for part in words))


def without_padding(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return argv; of a process that wrote a title over its arguments (setproctitle), the words of the title.

    It leaves one argument with spaces, "redis-server *:6379", or a thousand empty ones behind it: "ray::IDLE". Real commands have
    neither. As one word, a title would be named by its last directory, and a secret in it would not be recognized.
    """
    if len(argv) > _MOST_EMPTY and not any(argv[1:]):
        argv = argv[:1]
    return tuple(argv[0].split()) or argv if len(argv) == 1 and argv[0][:1] not in ("/", ".") else argv
