"""Recipes: short runs that share the file `recipes.jsonl` of a directory of runs, one line each.

`monitor/launcher/recipe.c` appends a line when a recipe of make ends. A recipe is addressed like a run directory, as
`DIRECTORY/ID`. That directory exists only if the recipe marked operations; it has nothing but their files.

A line has fields of `run.json` (schema, id, command, cwd, host, target, started, ended, exit, own_cgroup) and readings:

=================  ==================================================================================================
usage              of wait4: max_rss, read_bytes and write_bytes in bytes, cpu_user and cpu_system in seconds,
                   minor_faults, major_faults. `assigned` is the last pid of the machine at the end,
                   `helpers` the number of our processes that were started after the shell
stat, io           text of these files of the ended shell in /proc
cgroup             null, or of the recipe's cgroup (version 1) at the end: peak, usage, limit, oom_kill, lines of memory.stat
monitor_pid        pid of the recorder
processors         processors that are online, on which the errors of the kernel's counters depend
page_bytes         size of a base page
traceparent        W3C trace context of the recipe
environment        variables that identify a job of GitHub or GitLab
=================  ==================================================================================================

Its record has one sample, of the end, and one process, the shell.
"""

from __future__ import annotations

import os
import re
import zlib
from functools import cached_property, lru_cache
from pathlib import Path

from otel_memwatch import catalog
from otel_memwatch.errors import RunError
from otel_memwatch.model import Column, ProcessEvent, ProcessRecord
from otel_memwatch.record.fields import mapping, number, text, whole
from otel_memwatch.record.format import FINISHED, RECIPES_STORE
from otel_memwatch.record.jsonl import open_regular, parse
from otel_memwatch.record.reader import Record
from otel_memwatch.record.resource import ci_attributes
from otel_memwatch.record.tags import engine_tags
from otel_memwatch.runtime.kernel import rss_error
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from otel_memwatch.model import Value
    from otel_memwatch.record.samples import Samples

_UNLIMITED = 1 << 60
"""Bytes from which version 1 of cgroups means no limit."""
_HUGE_PAGE = 2 << 20
_MOST_PIDS = 1 << 22
_BEGIN = rb'{"schema":1,"id":"(\d{8}T\d{6}Z-[\w+.-]+)",'
_LONGEST = 16 << 20
"""Bytes of the longest line: Linux starts commands of up to 6 MiB."""


def id_of(line: bytes) -> str | None:
    """Return the ID of the recipe in a whole line; `None`: it is torn, or no recipe."""
    found = re.match(_BEGIN, line) if line.endswith(b"}\n") else None
    return None if found is None else found[1].decode()


def recipe_lines(directory: str | os.PathLike[str]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Yield ID and signature of each recipe of a directory of runs; none if it has no recipes. Raises nothing.

    A line never changes, so its signature is that of a row made of it: start, length, checksum.
    """
    try:
        with os.fdopen(open_regular(os.path.join(directory, RECIPES_STORE), os.O_NOFOLLOW), "rb") as file:
            place = 0
            while line := file.readline(_LONGEST):
                if (name := id_of(line)) is not None:
                    yield name, (place, len(line), zlib.crc32(line))
                place += len(line)
    except OSError:
        return


def read_recipe(path: Path) -> RecipeRecord | None:
    """Return the record of the recipe `DIRECTORY/ID`; `None`: there is no such recipe. Raises `RunError` if it is damaged."""
    parent, name = os.path.split(os.path.abspath(path))
    line = None
    try:
        with os.fdopen(open_regular(f"{parent}/{RECIPES_STORE}", os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            place = _places(parent, status.st_mtime_ns, status.st_size).get(name)
            if place is None:
                return None
            file.seek(place[0])
            line = parse(file.read(place[1]))
    except OSError:
        return None
    if not isinstance(line, dict):
        raise RunError(f"The recipe {name} in {parent}/{RECIPES_STORE} is damaged.", "restore the file")
    return RecipeRecord(path, line)


@lru_cache(4)
def _places(directory: str, _changed: int, _size: int) -> Mapping[str, tuple[int, int]]:
    """Return begin and length of each recipe's line: an index reads one recipe after the other."""
    return {name: signature[:2] for name, signature in recipe_lines(directory)}


class RecipeRecord(Record):
    """Record of one recipe."""

    def __init__(self, path: Path, line: Mapping[str, Any]) -> None:
        host, ending = mapping(line.get("host")), mapping(line.get("exit"))
        group = mapping(line.get("cgroup"))
        limit, trace = (
            whole(group.get("hierarchical_memory_limit")),
            (text(line.get("traceparent")) or "").split("-"),
        )
        environment = {
            name: value for name, value in mapping(line.get("environment")).items() if isinstance(value, str)
        }
        code, number_of_signal = whole(ending.get("exit_code")), whole(ending.get("signal"))
        info = {
            **line,
            "state": FINISHED,
            "name": None,
            "tags": engine_tags(environment, None, {}, 0),
            "ci": ci_attributes(environment),
            "monitor": {"pid": line.get("monitor_pid"), "mode": "wrap"},
            "exit": {
                "exit_code": code,
                "signal": number_of_signal,
                "oom_kills": whole(group.get("oom_kill")),
            },
            "cgroup_version": 1 if group else None,
            "own_cgroup": line.get("own_cgroup") if group else None,
            "rss_error_bytes": rss_error(
                cpus=whole(line.get("processors")), release=text(host.get("release")) or ""
            ),
            "fault_bytes": _HUGE_PAGE,
            # A process beside the shell may have ignored SIGCHLD: the use of its children is then in no figure.
            "blind": _unseen(line) > 0,
            "page_bytes": line.get("page_bytes"),
            "limits": {
                "cgroup_bytes": limit if limit is not None and 0 < limit < _UNLIMITED else None,
                "host_bytes": host.get("memory_bytes"),
            },
            "trace": {"trace_id": trace[1], "span_id": trace[2], "parent_span_id": None, "flags": trace[3]}
            if len(trace) == 4
            else {},
        }
        super().__init__(path, info)
        self._line = line

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the only sample."""
        return tuple(self._values)

    @cached_property
    def _values(self) -> Mapping[Column, Value]:
        usage, group = mapping(self._line.get("usage")), mapping(self._line.get("cgroup"))

        def of(source: Mapping[str, Any], name: str) -> Value:
            value = number(source.get(name))
            return None if value is None or value < 0 else value

        direction, mode, kind = "disk.io.direction", "cpu.mode", "system.paging.fault.type"
        values: dict[Column, Value] = {
            Column(catalog.MEMWATCH_TREE_CPU_TIME, ((mode, "user"),)): of(usage, "cpu_user"),
            Column(catalog.MEMWATCH_TREE_CPU_TIME, ((mode, "system"),)): of(usage, "cpu_system"),
            Column(catalog.MEMWATCH_TREE_DISK_IO, ((direction, "read"),)): of(usage, "read_bytes"),
            Column(catalog.MEMWATCH_TREE_DISK_IO, ((direction, "write"),)): of(usage, "write_bytes"),
            Column(catalog.MEMWATCH_TREE_PAGING_FAULTS, ((kind, "minor"),)): of(usage, "minor_faults"),
            Column(catalog.MEMWATCH_TREE_PAGING_FAULTS, ((kind, "major"),)): of(usage, "major_faults"),
            Column(catalog.MEMWATCH_TREE_PROCESS_COUNT): 0,
            Column(catalog.MEMWATCH_TREE_UNOBSERVED): _unseen(self._line),
        }
        characters = dict(
            entry.split(": ", 1) for entry in (text(self._line.get("io")) or "").splitlines() if ": " in entry
        )
        for way, name in (("read", "rchar"), ("write", "wchar")):
            counted = characters.get(name, "")
            values[Column(catalog.MEMWATCH_TREE_SYSCALL_IO, ((direction, way),))] = (
                int(counted) if counted.isascii() and counted.isdecimal() and len(counted) < 20 else None
            )
        if not group:
            return values
        cache, shared, limit = (of(group, name) for name in ("total_cache", "total_shmem", "limit"))
        values |= {
            Column(catalog.MEMWATCH_CGROUP_MEMORY_USAGE): of(group, "usage"),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_WINDOW): of(group, "peak"),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_PEAK): of(group, "peak"),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_FILE): None if cache is None else cache - (shared or 0),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_ANON): of(group, "total_rss"),
            Column(catalog.MEMWATCH_CGROUP_MEMORY_SHMEM): shared,
            Column(catalog.MEMWATCH_CGROUP_MEMORY_UNEVICTABLE): of(group, "total_unevictable"),
            Column(catalog.MEMWATCH_CGROUP_PAGING_FAULTS): of(group, "total_pgfault"),
        }
        if limit is not None and limit < _UNLIMITED:
            values[Column(catalog.MEMWATCH_CGROUP_MEMORY_LIMIT, (("memwatch.cgroup.limit.type", "max"),))] = (
                limit
            )
        return values

    def sample_rows(self) -> Iterator[Sequence[Sequence[Value]]]:
        """Yield the row of the only sample."""
        ended = number(mapping(self._line.get("ended")).get("monotonic"))
        yield [[ended, *self._values.values()]]

    @property
    def is_long(self) -> bool:
        """Return false: one sample never justifies the import of numpy."""
        return False

    def samples(self, metrics: Iterable[str] | None = None) -> Samples:
        """Return the only sample as numpy arrays."""
        import numpy as np

        from otel_memwatch.record.samples import Samples

        names = None if metrics is None else frozenset(metrics)
        (row,) = next(self.sample_rows())
        values = {
            column: np.array([np.nan if value is None else float(value)])
            for column, value in self._values.items()
            if names is None or column.metric in names
        }
        return Samples(np.array([(row[0] or 0.0) - self.started]), list(values), values)

    def process_records(self) -> Iterator[ProcessRecord]:
        """Yield the end of the shell."""
        line, usage, ending = self._line, mapping(self._line.get("usage")), mapping(self._line.get("exit"))
        target, ended = mapping(line.get("target")), mapping(line.get("ended"))
        most = whole(usage.get("max_rss"))
        yield ProcessRecord(
            ProcessEvent.EXIT,
            number(ended.get("monotonic")) or 0.0,
            whole(target.get("pid")) or 0,
            number(target.get("start")) or 0.0,
            ppid=whole(line.get("monitor_pid")),
            command=os.path.basename(next(iter(_words(line)), "")) or None,
            peak_bound=None if self.marked else most,
            cpu_user=number(usage.get("cpu_user")),
            cpu_system=number(usage.get("cpu_system")),
            minor_faults=whole(usage.get("minor_faults")),
            major_faults=whole(usage.get("major_faults")),
            exit_code=whole(ending.get("exit_code")),
            signal=whole(ending.get("signal")),
            max_rss=most,
            childless=_is_childless(line),
        )


def _words(line: Mapping[str, Any]) -> list[str]:
    command = line.get("command")
    return [word for word in command if isinstance(word, str)] if isinstance(command, list) else []


def _is_childless(line: Mapping[str, Any]) -> bool | None:
    """Return whether the shell waited for no child: field 11 of its stat counts the page faults of these."""
    fields = (text(line.get("stat")) or "").rpartition(")")[2].split()
    return fields[8] == "0" if len(fields) > 8 else None


def _unseen(line: Mapping[str, Any]) -> int:
    """Return the largest number of processes beside the shell: pids that the machine assigned meanwhile, except our own."""
    usage = mapping(line.get("usage"))
    first, last = whole(mapping(line.get("target")).get("pid")) or 0, whole(usage.get("assigned")) or 0
    others = (last - first if last >= first else _MOST_PIDS) - (whole(usage.get("helpers")) or 0)
    return max(0 if _is_childless(line) else 1, others)
