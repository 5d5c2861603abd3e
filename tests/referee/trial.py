"""One real program under `wrap` in its referee's cgroup, and what is wrong with the figure."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.referee.programs import Program, prepare
from tests.support.control_group import group
from tests.support.counters import error_here, tree_error
from tests.support.wrapped import HERE, PROGRAM, environment
from tests.zoo.surroundings import VERSION, delegated

MIB = 1 << 20
USERS = ("root", "user", "contained")
NOBODY = 65534
SLACK = 1.5 * MIB
"""Charged before the referee's cgroup is entered, and what a cgroup may be charged ahead on each processor."""
TIMEOUT = 600
"""Seconds: on a machine with a load of 14, 22 s of `xz -T2` took 112."""
LASTING_SECONDS = 0.3
"""Time for which `Truth.lasting` was there, at least."""
LEAST_SAMPLES = 10
"""Of the referee: with fewer, it did not see the program."""
MUCH_KERNEL = 0.05
"""Share of the truth from which on kernel memory, if it is a MiB too, deserves a second run."""
SETTLED_SECONDS = 0.1
"""Time in which the kernel frees what ended processes leave (RCU), which is no cache."""

_ROOT, _CONTROLLER = ("/sys/fs/cgroup/memory", "memory") if VERSION == 1 else ("/sys/fs/cgroup", "")
_ENTER = {
    # The run's own cgroup is sampled: one below it would make its memory.stat late, and the figure a wide range.
    "root": f"""echo "{_ROOT}$(sed -n 's/^[0-9]*:{_CONTROLLER}://p' /proc/self/cgroup)" >"$1.new"
mv "$1.new" "$1"; while [ ! -e "$1.ready" ]; do sleep 0.01; done; sh -c "$2"; exit $?""",
    # Descriptor 9 was opened by root: the cgroup may be read-only here.
    "user": 'echo 0 >&9; exec 9>&-; sh -c "$2"',
}


class Truth(NamedTuple):
    """Printed by sampler.c, in bytes, but for the last field."""

    least: int
    most: int
    mapped: int
    kernel: int
    samples: int
    anonymous: int = 0
    lasting: int = 0
    reclaimable: int = 0
    """Kernel memory that the kernel gives back on request: dentries, inodes, nodes of the page cache. It is no memory needed.
    Version 1 does not count it. It is the larger of two: after the end, and at the peak of a second run (`_reclaimed_at`)."""

    @property
    def needed_least(self) -> int:
        """The largest memory seen, without the kernel's caches. These may be larger at another moment, as at a `git clone`."""
        return max(self.mapped, self.least - min(self.reclaimable, self.kernel))

    @property
    def needed_most(self) -> int:
        """The most that can have been between two samples, without these caches: they may have been smaller then."""
        return max(self.needed_least, self.most - min(self.reclaimable, self.kernel))


class Trial(NamedTuple):
    """Figure of one program, watched by one user."""

    program: str
    user: str
    truth: Truth | None
    peak: dict[str, Any] | None
    problem: str

    def error(self) -> float | None:
        """Return the relative error of the headline; `None` if there is no figure."""
        if self.peak is None or self.truth is None:
            return None
        told = self.peak["estimate"] or self.peak["bytes"]
        least, most = self.truth.needed_least, self.truth.needed_most
        if least <= told <= most:
            return 0.0
        near = least if told < least else most
        return float(told - near) / max(near, 1)

    def width(self) -> float | None:
        """Return the upper by the lower bound, both at least 1 MiB; `None` without an upper bound."""
        if self.peak is None or self.peak["high"] is None:
            return None
        return float(max(self.peak["high"], MIB) / max(self.peak["low"] or 0, MIB))


@functools.cache
def sampler() -> str:
    """Return the path of the compiled sampler."""
    folder = Path(tempfile.mkdtemp(prefix="memwatch-referee-"))
    subprocess.run(
        ["cc", "-O2", "-o", folder / "sampler", Path(__file__).parent / "sampler.c"], check=True, timeout=60
    )
    return str(folder / "sampler")


@contextlib.contextmanager
def sampling(place: Path, ready: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Sample a cgroup while the block runs; without a reset of its watermark if `ready`, which exists from the first sample on."""
    argv = [sampler(), str(place), *map(str, filter(None, [ready]))]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def _words(user: str) -> list[str]:
    if user == "root":
        return []
    reading = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    words = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *reading]
    if user == "user":
        return words
    readonly = f'mount -o remount,bind,ro {_ROOT} && exec "$@"'
    return ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", readonly, "sh", *words]


def run(program: Program, user: str) -> Trial:
    """Run one program; a program that fails is a problem of the program, not of the figure."""
    data = prepare()
    folder = Path(tempfile.mkdtemp(prefix="memwatch-referee-run-"))
    folder.chmod(0o777)
    home = folder / "home"
    home.mkdir()
    home.chmod(0o777)
    if user != "root":
        os.chown(home, NOBODY, NOBODY)
    told = folder / "place"
    variables = environment(
        HOME=str(home), TMPDIR=str(home), D=str(data), PYTHONPATH=str(HERE.parents[1]), LC_ALL="C.UTF-8"
    )
    try:
        with group(parent=delegated() if VERSION == 2 else None) as referee:
            entrance = os.open(referee.path / ("tasks" if VERSION == 1 else "cgroup.procs"), os.O_WRONLY)
            enter = _ENTER["root" if user == "root" else "user"]
            argv = [
                *_words(user),
                *PROGRAM,
                "wrap",
                "--out",
                str(folder / "run"),
                "--quiet",
                "--no-plot",
                "--no-report",
            ]
            argv += [
                "--cgroup",
                "require" if user == "root" else "off",
                "--",
                "sh",
                "-c",
                enter,
                "sh",
                str(told),
            ]
            command = ["sh", "-c", f'exec "$@" 9>&{entrance}', "sh", *argv, program.script]
            process = subprocess.Popen(
                command, cwd=home, env=variables, stdin=subprocess.DEVNULL, text=True, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=(folder / "errors").open("w"), pass_fds=(entrance,),
            )  # fmt: skip
            os.close(entrance)
            place = _place(told, process) if user == "root" else referee.path
            with sampling(place, told.with_suffix(".ready") if user == "root" else None) as sampled:
                try:
                    code = process.wait(TIMEOUT)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    code = -1
            truth = Truth(*map(int, (sampled.communicate(timeout=10)[0] or "0 0 0 0 0 0 0").split()))
            left = (referee.path / "cgroup.procs").read_text().split()
            if user != "root" and not left:
                truth = truth._replace(reclaimable=_reclaimed(referee.path))
            _signal(left, signal.SIGKILL)  # daemons that its script left
        errors = (folder / "errors").read_text(errors="replace")
        if code:
            return Trial(program.name, user, truth, None, f"the program failed: {code}: {errors[-300:]!r}")
        if truth.samples < LEAST_SAMPLES:
            return Trial(program.name, user, None, None, "the referee came too late")
        info = json.loads((folder / "run/run.json").read_text())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if user != "root" and VERSION == 1 and truth.kernel > max(MIB, MUCH_KERNEL * truth.least):
        again = _reclaimed_at(truth.kernel, program, data)
        truth = truth._replace(reclaimable=max(truth.reclaimable, again))
    peak, gap = info["peaks"]["tree"], info["quality"]["longest_gap"] or 0.0
    return Trial(program.name, user, truth, peak, problem(peak, truth, error_here(), user, gap))


def _reclaimed(group: Path) -> int:
    """Let the kernel drop the caches of a cgroup; return the bytes of the kernel's memory among them.

    An inode is dropped after its pages, and these once they are written to disk. It is freed a little later (RCU): without a
    wait, the 2 500 KiB of the 2 000 files that `tar` unpacks counted as needed.
    """
    try:
        before = _kernel_of(group)
        os.sync()
        for _ in range(10):  # one request drops a part of the inodes
            (group / "memory.force_empty").write_text("0")
            time.sleep(SETTLED_SECONDS)
        return max(0, before - _kernel_of(group))
    except OSError:
        return 0


def _kernel_of(group: Path) -> int:
    return int((group / "memory.kmem.usage_in_bytes").read_text())


def _signal(pids: list[str], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(int(pid), number)


def _reclaimed_at(kernel: int, program: Program, data: Path) -> int:
    """Run a program again until it has 80 % as much kernel memory; return how much the kernel would give back at the peak.

    Example: `git gc` deletes 2 000 files at its end. Their inodes, 4 MiB, are no longer there after it. The processes are
    stopped, and killed afterwards. The share that the kernel gives back is assumed to be that at the peak.
    """
    folder = Path(tempfile.mkdtemp(prefix="memwatch-referee-again-"))
    folder.chmod(0o777)
    variables = environment(HOME=str(folder), TMPDIR=str(folder), D=str(data), LC_ALL="C.UTF-8")
    found, until = 0, time.monotonic() + TIMEOUT
    with group() as referee:
        enter = ["sh", "-c", 'echo 0 >"$1"; shift; exec "$@"', "sh", str(referee.path / "cgroup.procs")]
        process = subprocess.Popen(
            [*enter, *_words("user"), "sh", "-c", program.script], cwd=folder, env=variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and time.monotonic() < until:
            if (now := _kernel_of(referee.path)) >= 0.8 * kernel:
                _signal((referee.path / "cgroup.procs").read_text().split(), signal.SIGSTOP)
                time.sleep(SETTLED_SECONDS)
                found = kernel * _reclaimed(referee.path) // now
                break
            time.sleep(0.001)
        while left := (referee.path / "cgroup.procs").read_text().split():
            _signal(left, signal.SIGKILL)
            process.poll()
            time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _place(told: Path, process: subprocess.Popen[str]) -> Path:
    until = time.monotonic() + 20
    while not told.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    return Path(told.read_text().strip()) if told.exists() else told


def problem(peak: dict[str, Any] | None, truth: Truth, error: int, user: str, gap: float = 0.0) -> str:
    """Return a sentence about a claim that cannot be true, or nothing.

    Without a cgroup no program can read pipes, sockets and slab: the upper bound has to hold for mapped memory. One that
    excludes files in memory has to hold for anonymous memory, and for files that lasted from one sample to the next.

    Args:
        peak: the claim; `None`: none.
        truth: from the referee.
        error: bytes by which the kernel's figures of a process are really off.
        user: who watched.
        gap: the most seconds between two samples.
    """
    if peak is None:
        return "no figure"
    slack = SLACK + tree_error(error)
    low, high = peak["low"], peak["high"]
    exact = "exact " if peak["certainty"] == "exact" else ""
    if low is not None and low > truth.most + slack:
        return f"false {exact}lower bound"
    needed = truth.least if user == "root" else truth.mapped
    if "files in memory" in (peak.get("excludes") or ()):
        needed = max(truth.anonymous, truth.lasting if gap < LASTING_SECONDS else 0)
    return f"false {exact}upper bound" if high is not None and high < needed - slack else ""
