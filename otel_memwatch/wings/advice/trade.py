"""Find the memory from which a job runs at full speed, by a few runs under limits chosen by bisection.

A limit suffices if the job ends as usual and loses at most 5 % of its time in one of `_TRIES` runs (`lost`). Each run begins without
its files in the page cache, as in a new container. The first one only shows these files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from math import inf, isnan

from otel_memwatch.errors import RunError
from otel_memwatch.record.format import TRADE_FILE
from otel_memwatch.run import load
from otel_memwatch.run.stall_ledger import PRESSURES
from otel_memwatch.runtime import own_python
from otel_memwatch.runtime.descendants import descendants
from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import command_line, count, duration
from otel_memwatch.truth.stalls import SLOWEST_READ, is_worth_naming
from otel_memwatch.wings.advice.bisection import Knee, Trial, bisect
from otel_memwatch.wings.advice.measured import keep
from otel_memwatch.wings.advice.recommendation import mebibytes
from otel_memwatch.wings.advice.sizes import LEAST_REQUEST
from otel_memwatch.wings.index.indexed_run import IndexedRun
from otel_memwatch.wings.index.run_row import row_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_memwatch.run.recorded_run import RecordedRun
    from otel_memwatch.wings.advice.recommendation import Advice


_LOST = 0.05
"""Share of its time that a run at full speed loses, at most."""
_CLEARLY = 0.25
"""Share of the time in which a run read files again, from which other programs are not the reason."""
_TRIES = 3
_SIMILAR_CPU = 0.25
"""CPU time beyond that of the first run, as a share of it, below which other programs may be the reason."""
_COLD = 0.9
"""Share of the bytes that the first run read, below which another program keeps its files in memory."""
_LEAST_WORK = 0.05
"""Seconds: CPU times of a program differ by some milliseconds."""
_OF_MEMORY = {("memwatch.pressure.resource", "memory"), ("memwatch.pressure.stall_type", "some")}
_WROTE = 16 << 20
"""Bytes written from which a run may wait for its data to reach the disk."""
_PATIENCE = 4.0, 10.0
"""Factor of the usual time, and seconds, after which a run counts as hanging."""
_GIVE_UP = 10.0
"""Seconds after SIGTERM."""


def trade(advice: Advice, row: IndexedRun, picture: str | None = None) -> Iterator[str]:
    """Yield a line for each run of the command of `row`, and the knee; draw both if `picture` names a file.

    The command runs some ten times, and at most 26 times, with all its effects. Raises `RunError` if `wrap` did not start the command.
    """
    if not row.command or row.mode != "wrap":
        raise RunError(f"{row.path} cannot be repeated: wrap did not start its command.")
    yield f"trying limits with: {command_line(row.command)}"
    files: set[str] = set()
    trials: list[Trial] = []

    def suffices(limit: int) -> bool:
        for _ in range(_TRIES):
            trials.append(trial := _tried(row, limit, files, trials))
            if trial.row is None and not trial.hung:
                raise RunError(
                    f"wrap did not start the command under a limit of {limit} MiB, so no limit can be tried."
                )
            if _is_settled(trial, trials):
                break
        return _verdict(trials[-1], trials) == "full speed"

    full = mebibytes(advice.full_speed or advice.memory or LEAST_REQUEST)
    least = min(full, max(8, mebibytes(advice.median or 0) + 2))
    trials.append(_tried(row, 0, files, [_tried(row, 0, files, [])]))
    yield f"  {'limit':>10}  {'time':>10}  {'short of memory':>15}  result"
    yield _line(trials[0], trials)
    if trials[0].row is None or trials[0].hung:
        yield "  no knee: the command does not run"
        return
    knee = bisect(least, full, suffices)
    yield from _limited(trials)
    yield _knee(knee, trials)
    if knee.enough is not None:
        with contextlib.suppress(OSError):
            keep(row, knee, len(trials))
            yield f"  kept in {row.path}/{TRADE_FILE}; the next advice uses it"
    if picture is not None:
        from otel_memwatch.wings.advice.trade_picture import draw

        draw(trials, knee, row.command, picture)


def _tried(row: IndexedRun, limit: int, files: set[str], before: list[Trial]) -> Trial:
    """Run the command under a limit, with its files out of memory; add the files that it uses."""
    drop(files)
    factor, least = _PATIENCE
    usual = min((trial.seconds for trial in before if trial.seconds), default=row.seconds)
    patience = None if usual is None else max(least, factor * usual)
    with tempfile.TemporaryDirectory(prefix="memwatch-trade-") as folder:
        options = ["--quiet", "--no-plot", "--no-report", f"--out={folder}/run"]
        if limit:
            options.append(f"--limit={limit}MiB")
        argv = own_python.command_line("wrap", *options, "--", *row.command)
        with open(os.devnull, "r+b") as nothing:
            process = subprocess.Popen(argv, cwd=row.cwd or os.curdir, stdin=nothing, stdout=nothing)
        ended = False
        try:
            ended = collect(process, files, None if patience is None else time.monotonic() + patience)
        finally:
            if not ended:
                _stop(process)
        found = row_of(f"{folder}/run")
        if found.state == "broken":
            return Trial(limit, None, hung=not ended)
        run = load(f"{folder}/run")
        contention, rate = run.stalls.contention or 0.0, run.host.get("disk_rate")
        return Trial(limit, found, not ended, contention, rate, _pressure(run))


def _pressure(run: RecordedRun) -> float | None:
    """Return the seconds in which tasks waited for memory: in the run's cgroup, or else on the machine; `None`: unknown."""
    for metric in PRESSURES:
        samples = run.samples([metric])
        for column in samples.columns:
            if set(column.attributes) >= _OF_MEMORY:
                known = [value for value in samples.values(column).tolist() if not isnan(value)]
                return known[-1] - known[0] if len(known) > 1 else None
    return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a run: by its monitor, which passes SIGTERM on, then all processes that are left."""
    import psutil

    with contextlib.suppress(psutil.Error):
        tree = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GIVE_UP)
        for child in tree:
            with contextlib.suppress(psutil.Error):
                child.kill()
    process.wait()


def _verdict(trial: Trial, trials: list[Trial]) -> str:
    """Return the result of a trial in words."""
    row, first = trial.row, trials[0].row
    if row is None:
        return "did not start"
    if trial.hung:
        return "hangs"
    if row.killed_for_memory:
        return "killed"
    if first is not None and row.exit_code != first.exit_code:
        return f"fails: {row.reason}"
    return "slow" if lost(trial, trials) > _LOST else "full speed"


def lost(trial: Trial, trials: list[Trial]) -> float:
    """Return the share of a trial's time that its limit cost, at most.

    The smallest of these counts, but at least the waiting for memory that its record shows (`truth.refaults`):

    | measurement | alone it is too high, because |
    | --- | --- |
    | time beyond the quickest trial's | other programs use caches, cores and the disk |
    | CPU time and disk time beyond the first trial's, if little was written | the program computes while the disk reads |
    | pressure of memory, that disk time, and CPU time beyond a quarter more | pressure may be that of the machine |

    The last two are shares of the time that the work needs: beside other programs it takes longer. If neither is known, waiting for
    processors that other programs used does not count as time. A limit that the charge did not reach costs nothing.
    """
    row, first = trial.row, trials[0]
    if trial.is_free or row is None or not trial.own_seconds:
        return 0.0
    found = [_beyond(trial.own_seconds, [one.own_seconds for one in trials if one.ended])]
    starved = (row.starved or 0.0) if is_worth_naming(row.starved, row.seconds, _LOST) else 0.0
    if first.row is not None and None not in (row.read, first.row.read, row.cpu, first.row.cpu):
        rate, read = trial.disk_rate or SLOWEST_READ, first.row.read or 0
        cpu, disk = (row.cpu or 0.0) - (first.row.cpu or 0.0), max(0, (row.read or 0) - read) / rate
        least = min(
            one.row.cpu for one in trials if one.ended and one.row is not None and one.row.cpu is not None
        )
        work = max(_LEAST_WORK, min(first.own_seconds or inf, least + read / rate))
        time = _beyond(trial.seconds or 0.0, [one.seconds for one in trials if one.ended])
        if (row.written or 0) <= _WROTE:
            found = [time, (max(0.0, cpu) + disk) / work]
        if trial.pressure is not None:
            reclaim = max(0.0, cpu - _SIMILAR_CPU * (first.row.cpu or 0.0))
            found = [time, *found[1:], (trial.pressure + disk + reclaim) / work]
    return max(min(found), starved)


def _limited(trials: list[Trial]) -> Iterator[str]:
    """Yield a line for each run under a limit, the largest limit first."""
    for trial in sorted(trials[1:], key=lambda one: -one.limit):
        yield _line(trial, trials)
    if any(_waited_for_others(trial, trials) for trial in trials):
        yield f"  other programs made runs longer; slow is a run whose limit cost more than {100 * _LOST:.0f} % of its time"


def _waited_for_others(trial: Trial, trials: list[Trial]) -> bool:
    """Return whether a trial took much longer than the quickest one, and its limit is not the reason."""
    longer = _beyond(trial.seconds or 0.0, [one.seconds for one in trials if one.ended])
    return longer > _CLEARLY and _verdict(trial, trials) == "full speed"


def _is_settled(trial: Trial, trials: list[Trial]) -> bool:
    """Return whether no other program can be the reason for the result of a trial."""
    row, first, verdict = trial.row, trials[0].row, _verdict(trial, trials)
    if row is None or first is None:
        return True
    if verdict == "full speed":
        return (row.read or 0) >= _COLD * (first.read or 0)
    return verdict != "slow" or (row.starved or 0.0) > _CLEARLY


def _beyond(seconds: float, all_seconds: list[float | None]) -> float:
    """Return the share of these seconds beyond the least of all."""
    return 1 - min((one for one in all_seconds if one), default=seconds) / max(seconds, 1e-9)


def _line(trial: Trial, trials: list[Trial]) -> str:
    limit = f"{trial.limit} MiB" if trial.limit else "none"
    seconds = "-" if trial.seconds is None else duration(trial.seconds)
    share = None if trial.row is None else trial.row.starved
    short = "-" if share is None else f"{100 * share:.0f} %"
    return f"  {limit:>10}  {seconds:>10}  {short:>15}  {_verdict(trial, trials)}"


def _knee(knee: Knee, trials: list[Trial]) -> str:
    runs = count(len(trials), "run")
    if knee.enough is None:
        return f"  no knee in {runs}: {knee.less} MiB does not suffice"
    if knee.less is None:
        return f"  full speed from {knee.enough} MiB or less ({runs})"
    return f"  full speed from {knee.enough} MiB; {knee.less} MiB is too little ({runs})"


_PAUSE = 0.02, 1.0
"""Seconds between two looks at a tree, shortest and longest."""


def files_of(pid: int) -> set[str]:
    """Return paths of the regular files that a process maps or has open; empty if it has ended."""
    found: set[str] = set()
    with (
        contextlib.suppress(OSError),
        open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps,
    ):
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                found.add(fields[5])
    with contextlib.suppress(OSError):
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(descriptor.path))
    return {path for path in found if path.startswith("/") and os.path.isfile(path)}


def collect(process: subprocess.Popen[bytes], files: set[str], deadline: float | None) -> bool:
    """Add the files of a process's descendants until it ends; return whether it ended before the deadline.

    Args:
        process: a monitor; its descendants are the tree.
        files: receives the paths.
        deadline: monotonic seconds; `None`: wait for the end.

    """
    pause, longest = _PAUSE
    while process.poll() is None:
        if deadline is not None and time.monotonic() > deadline:
            return False
        for child in descendants(process.pid):
            files |= files_of(child)
        time.sleep(pause)
        pause = min(longest, pause * 1.1)  # files are opened early
    return True


def drop(files: set[str]) -> None:
    """Drop the clean pages of files from the page cache, except pages that living processes map.

    The kernel charges a file page to the cgroup that reads it first. A run under a limit finds the pages of an earlier
    run in memory, and the cgroup of this run never pays for them. In a new container they have to be read.
    """
    for path in files:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
