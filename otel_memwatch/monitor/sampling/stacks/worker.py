"""The process that captures stacks, and the monitor's side of it.

The job has `directory`, `root`, `adopter` and `exclude`. The worker ends with its stdin. Its only answer has `problems`,
sentences for the user.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from otel_memwatch.errors import describe
from otel_memwatch.monitor.sampling.stacks import means, tools
from otel_memwatch.monitor.sampling.stacks.new_peaks import GrowthWatch, NewPeak
from otel_memwatch.record.stacks import (
    MOST_CAPTURES,
    MOST_THREADS,
    Capture,
    CapturedThread,
    Stacks,
    write_stacks,
)
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.runtime.worker import Worker, serve, stop_requested

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_memwatch.runtime.typed import Any

PERIOD, POLL_SHARE, POLL_ADVANCE = 0.02, 0.005, 0.2
"""Shortest seconds between two polls, the share of a core that polling may take, and CPU seconds that it may take ahead of that."""
_SAVED = 0.8
"""The part of `POLL_SHARE` that is used while memory does not grow. The rest is for phases of growth, which may be short."""
_WINDOW = 0.01
"""Least seconds in which growth and page faults are measured: a reading of 1 ms would see none of a ramp."""
_REFUSALS = 5
"""Processes that the kernel may refuse to read before captures end: with Yama, children of the command differ from it."""
_FAILURES = 10
"""Captures that may fail one after the other before a message; programs that begin or end are often unreadable."""
_ALL_FAILED = 3
"""Failed captures of a run that has no other ones, from which on there is a message at its end."""
_PATIENCE, _LINES_PATIENCE = 2.0, 1.0
"""Longest wait of the run's end for the worker, and of the worker for source lines at the end, in seconds."""
_QUIET = 0.25
"""Seconds without a capture after which source lines are looked up."""


class StackWorker:
    """Monitor's side of the worker. Raises `OSError` or `MemoryError` if it cannot be started."""

    def __init__(self) -> None:
        self._worker = Worker(__name__, discard_output=True)

    @property
    def pid(self) -> int:
        """Process id. The worker is not part of the run."""
        return self._worker.pid

    def begin(self, directory: Path, root: int, adopter: int | None, exclude: frozenset[int]) -> None:
        """Start to watch the tree of `root`. Raises nothing."""
        job = {"directory": str(directory), "root": root, "adopter": adopter, "exclude": sorted(exclude)}
        self._worker.give(job)

    def finish(self) -> list[str]:
        """End the worker; return sentences about its failures."""
        problems = ["stacks: the process that captures them was killed"]
        for answer in self._worker.answers(_PATIENCE):
            problems = answer["problems"]
        self._worker.end()
        return problems


def start_stacks(say: Callable[[str], None]) -> StackWorker | None:
    """Start the worker. If that fails, print why and return `None`: the run is recorded without it."""
    try:
        return StackWorker()
    except (OSError, MemoryError) as error:
        say(f"otel-memwatch: no stacks are captured: {describe(error)}")
        return None


def main(_arguments: list[str]) -> None:
    """Capture stacks of the tree that the job names."""
    serve(_watch)


def _watch(job: Mapping[str, Any], say: Callable[..., None]) -> None:
    watch = GrowthWatch(job["root"], job["adopter"], frozenset(job["exclude"]))
    captures = Captures(Path(job["directory"]), job["root"])
    period, polled = PERIOD, 0.0
    start, began = time.monotonic(), time.thread_time()
    while not stop_requested(period):
        before = watch.highest
        growth = watch.poll()
        cost = time.thread_time() - began
        polled += cost
        left = POLL_ADVANCE + POLL_SHARE * (time.monotonic() - start) - polled
        period = _period(cost, left, grows=watch.highest > before)
        if growth is not None:
            captures.take(watch, growth)
        elif captures.lines_due():
            captures.find_lines(watch, tools.PATIENCE)
        began = time.thread_time()
    captures.find_lines(watch, _LINES_PATIENCE)
    captures.note_end()
    captures.write(watch.highest)
    say(problems=captures.problems)


def _period(cost: float, left: float, *, grows: bool) -> float:
    """Return the seconds until the next poll.

    Args:
        cost: CPU seconds of a poll.
        left: CPU seconds that polling may still take. Half of the advance is kept for growth.
        grows: whether the tree has more memory than at any earlier poll.
    """
    if left > (0.0 if grows else POLL_ADVANCE / 2):
        return PERIOD
    return max(PERIOD, cost / (_SAVED * POLL_SHARE))


class Captures:
    """The captures kept so far, and their file."""

    def __init__(self, directory: Path, root: int) -> None:
        self._directory, self._root = directory, root
        self._refused: set[int] = set()
        self._kept: list[Capture] = []
        self._failed = 0
        self._error: tools.NoStackError | None = None
        self._stopped = False
        self._maps: dict[float, str] = {}
        """Mapped modules of captures by their time, if source lines have not been looked up."""
        self.problems: list[str] = []

    def take(self, watch: GrowthWatch, growth: NewPeak) -> None:
        """Capture the stacks of the process that has grown, and write them."""
        if self._stopped:
            return
        pid, began = growth.pid, time.monotonic()
        cpu, faults, before = _cpu(), watch.faults(growth.pid), _size(watch, growth.pid)
        try:
            name, threads = means.capture(pid)
        except tools.NotPermittedError:
            watch.captured(growth, _cpu() - cpu)
            self._note_refusal(pid)
            return
        except tools.NoStackError as error:
            watch.spend(_cpu() - cpu)
            self._failed, self._error = self._failed + 1, self._error or error
            self.note_failure(_FAILURES)
            return
        seconds = time.monotonic() - began
        time.sleep(max(0.0, _WINDOW - seconds))
        after, later = _size(watch, pid), watch.faults(pid)
        watch.captured(growth, _cpu() - cpu)
        self._failed, self._error = 0, None
        moment = round(began, 4)
        if maps := tools.mapped_modules(pid, threads):
            self._maps[moment] = maps
        self._kept.append(
            Capture(
                time=moment,
                level=growth.level,
                pid=pid,
                command=_command(pid),
                before=before,
                after=after or before,  # it may have ended
                grown=growth.grown,
                seconds=round(seconds, 4),
                means=name,
                threads=_by_faults(threads, faults, later),
            )
        )
        if len(self._kept) > MOST_CAPTURES:
            thin(self._kept)
        self.write(watch.highest)

    def note_end(self) -> None:
        """Report failed captures if there are no others."""
        if not self._kept:
            self.note_failure(_ALL_FAILED)

    def note_failure(self, least: int) -> None:
        """Report, once, that the last `least` captures failed, by the first error: at its end a program is unreadable anyway."""
        if self._failed >= least and not self.problems:
            self.problems.append(f"stacks could not be captured: {self._error}")

    def _note_refusal(self, pid: int) -> None:
        """Report the first refusal. Captures go on as long as the command itself may be read."""
        if not self._refused:
            _, remedy = means.permission()
            remedy = remedy or "run as its owner, or as root"
            self.problems.append(
                f"stacks are not captured: the kernel refuses to read process {pid} ({remedy})"
            )
        self._refused.add(pid)
        self._stopped = pid == self._root or len(self._refused) >= _REFUSALS

    def lines_due(self) -> bool:
        """Return whether source lines are missing, and memory does not grow now."""
        return bool(self._maps) and time.monotonic() > self._kept[-1].time + self._kept[-1].seconds + _QUIET

    def find_lines(self, watch: GrowthWatch, patience: float) -> None:
        """Look up the source lines of native calls, and write them. Without debug information calls stay as they are."""
        maps, self._maps = self._maps, {}
        cpu, deadline = _cpu(), time.monotonic() + patience
        for rows in dict.fromkeys(maps.values()):
            chosen = [index for index, one in enumerate(self._kept) if maps.get(one.time) == rows]
            threads = [thread for index in chosen for thread in self._kept[index].threads]
            try:
                found = tools.find_lines(rows, threads, max(0.0, deadline - time.monotonic()))
            except tools.NoStackError:
                continue
            for index in chosen:
                one = self._kept[index]
                named = tuple(tools.with_lines(thread, found) for thread in one.threads)
                self._kept[index] = one._replace(threads=named)
        if maps:
            watch.spend(_cpu() - cpu)
            self.write(watch.highest)

    def write(self, highest: int) -> None:
        """Write the file. A full disk is reported once."""
        try:
            write_stacks(self._directory, Stacks(tuple(self._kept), highest, True, tuple(self.problems)))
        except OSError as error:
            sentence = f"captured stacks could not be written: {error.strerror}"
            if sentence not in self.problems:
                self.problems.append(sentence)


def thin(kept: list[Capture]) -> None:
    """Remove the capture with the smallest growth over the one before it; neither the first nor the last one.

    The next capture of its process gets its growth, because that is counted since the last capture that is kept.
    """
    ratios = {index: kept[index].level / max(1, kept[index - 1].level) for index in range(1, len(kept) - 1)}
    removed = kept.pop(min(ratios, key=ratios.__getitem__))
    for index, one in enumerate(kept):
        if one.pid == removed.pid and one.time >= removed.time:
            kept[index] = one._replace(grown=one.grown + removed.grown)
            return


def _by_faults(
    threads: list[CapturedThread], before: Mapping[int, int], after: Mapping[int, int]
) -> tuple[CapturedThread, ...]:
    """Return the threads with their page faults during the capture: most faults first, then the active ones."""
    counted = [
        thread._replace(faults=after[thread.id] - before.get(thread.id, 0) if thread.id in after else None)
        for thread in threads
    ]
    counted.sort(key=lambda thread: (-(thread.faults or 0), not thread.active))
    return tuple(counted[:MOST_THREADS])


def _size(watch: GrowthWatch, pid: int) -> int:
    try:
        return watch.size(pid)
    except (OSError, ValueError):
        return 0


def _cpu() -> float:
    """Return the CPU seconds of this process and its ended children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read(4096).rstrip(b"\0").split(b"\0")
        return os.fsdecode(b" ".join(words)).encode("utf-8", "replace").decode()[:200]
    return ""
