"""Stacks of native programs, by two tools of elfutils.

`eu-stack` stops the process and reads the functions, in 4 ms of CPU time. Source lines need debug information, whose
reading takes ten times as long: `eu-addr2line` looks them up later, from the addresses, while the process runs.
"""

from __future__ import annotations

import re
import shutil

from otel_memwatch.monitor.sampling.stacks.tools import NoStackError, output_of
from otel_memwatch.record.stacks import CapturedThread, StackFrame, bounded
from otel_memwatch.runtime.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FRAME = re.compile(r"#(\d+)\s+0x([0-9a-f]+)(?: - \d+)?(.*?)(?: - ([/\[].*))?$")
_MOST_MAPS = 4 << 20
_MOST_ADDRESSES = 1000
_SYSTEM = re.compile(r"/(?:usr/)?lib(?:32|64)?/")
"""Modules whose lines are not looked up: of the C library alone this would take 35 ms."""


def parse_eu_stack(output: str) -> list[CapturedThread]:
    """Parse the output of `eu-stack -m`; frames have no lines."""
    threads: list[tuple[int, list[StackFrame]]] = []
    for row in output.splitlines():
        if row.startswith("TID "):
            threads.append((int(row[4:].rstrip(":")), []))
        elif threads and (found := _FRAME.match(row)):
            # All but the innermost frame have the address that follows their call.
            address = int(found[2], 16) - (int(found[1]) > 0)
            function = found[3].strip().partition("@")[0]  # "sleep@@GLIBC_2.2.5"
            threads[-1][1].append(StackFrame(function or "??", found[4] or "", 0, address))
    return [CapturedThread(thread, "", False, None, bounded(frames)) for thread, frames in threads if frames]


def read_functions(path: str, pid: int) -> list[CapturedThread]:
    """Read the stacks of all threads with eu-stack. Raises `NoStackError`."""
    threads = parse_eu_stack(output_of([path, "-m", "-p", str(pid)]))
    if not threads:
        raise NoStackError("eu-stack found no frame")
    return threads


# -- lines


def mapped_modules(pid: int, threads: Iterable[CapturedThread]) -> str:
    """Return the rows of /proc/PID/maps for the modules of these frames that may have lines; empty if there are none."""
    modules = {frame.file for thread in threads for frame in thread.frames if _may_have_line(frame)}
    if not modules:
        return ""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            rows = file.read(_MOST_MAPS).splitlines()
    except OSError:
        return ""
    return "".join(f"{row}\n" for row in rows if row[row.find("/") :] in modules)


def find_lines(maps: str, threads: Iterable[CapturedThread], patience: float) -> dict[int, list[StackFrame]]:
    """Return the calls at each address, inlined ones first, for which debug information has a line.

    Args:
        maps: rows of `mapped_modules`.
        threads: their frames have the addresses.
        patience: seconds after which the lookup is given up.

    Raises `NoStackError`.

    """
    path = shutil.which("eu-addr2line")
    addresses = {frame.address for thread in threads for frame in thread.frames if _may_have_line(frame)}
    if path is None or not addresses:
        return {}
    command = [path, "-a", "-f", "-i", "-C", "--pretty-print", "-M", "/dev/stdin"]
    given = maps.encode(errors="surrogateescape")
    return parse_addr2line(
        output_of([*command, *map(hex, sorted(addresses)[:_MOST_ADDRESSES])], patience, given)
    )


def _may_have_line(frame: StackFrame) -> bool:
    return frame.address > 0 and frame.file.startswith("/") and not _SYSTEM.match(frame.file)


_CALL = re.compile(r"(?:0x([0-9a-f]+): | \(inlined by\) )(.*) at (.*?):(\d+)(?::\d+)?$")


def parse_addr2line(output: str) -> dict[int, list[StackFrame]]:
    """Parse the output of `eu-addr2line -a -f -i -C --pretty-print`."""
    found: dict[int, list[StackFrame]] = {}
    calls: list[StackFrame] = []
    for row in output.splitlines():
        call = _CALL.match(row)
        if call is None:
            continue
        if call[1] is not None:
            calls = found.setdefault(int(call[1], 16), [])
        if call[3] != "??":
            calls.append(StackFrame(call[2], call[3], int(call[4])))
    return {address: calls for address, calls in found.items() if calls}


def with_lines(thread: CapturedThread, found: Mapping[int, list[StackFrame]]) -> CapturedThread:
    """Return the thread with these calls in place of their addresses."""
    frames = [call for frame in thread.frames for call in found.get(frame.address, [frame])]
    return thread._replace(frames=bounded(frames))
