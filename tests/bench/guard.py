"""The guard against programs that take too much, and beside ordinary ones.

python -m tests.bench.guard hogs 1000 [--kind bomb] memory hogs of eight kinds in turn, each below a limit of 150 MiB
python -m tests.bench.guard starved 10              programs that read a file again and again which no longer fits into memory
python -m tests.bench.guard leave 30                hogs that `--leave` ends, and how far below it the machine was
python -m tests.bench.guard ordinary 10000          short commands with every limit, none of which may act
python -m tests.bench.guard builds 20               builds with the number of jobs that `advise --jobs` gives, with make and parallel
python -m tests.bench.guard probes 60               CPU time of `--warn` on a sleeping and on a nearly full command, seconds each

The first two need a cgroup of each run. Fork bombs need a limit of their number: a cgroup around this program that has one, RLIMIT_NPROC
(not as root), or a cgroup that is made for them (version 1); else they are left out. Prints each miss at once and a table at the end, and
exits with 1 if a goal is missed. `--slower 5` allows five times the seconds, for an emulated machine. MEMWATCH_COMMAND replaces the command `python -m otel_memwatch`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import resource
import shlex
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

MIB = 1 << 20
LIMIT = 150 * MIB
PIDS = 200
KINDS = ("native", "growing", "mapped", "tmpfs", "pthreads", "bomb", "sessions", "double forks")
GOALS = {
    "crossing to warning": 0.2,
    "limit to verdict": 1.0,
    "crossing to end": 1.0,
    "starvation to verdict": 10.0,
}
"""Seconds."""
ALLOWED = dict(GOALS)
"""Seconds by which a goal is missed: with --slower, more."""
MEMWATCH = shlex.split(os.environ.get("MEMWATCH_COMMAND", f"{sys.executable} -m otel_memwatch"))
WRAP = [*MEMWATCH, "wrap", "--quiet", "--no-report"]
PROGRAM = Path(__file__).parents[1] / "programs" / "hog.c"
TOKEN = "MEMWATCH_HOG"


class Misses(list[str]):
    """Goals that were missed, each printed at once: a bench of an hour may be stopped."""

    def append(self, sentence: str) -> None:
        print(f"  MISSED {sentence}", flush=True)
        super().append(sentence)


def progress(done: int) -> None:
    if done % 100 == 0:
        print(f"  {done} done", flush=True)


class Trial:
    """A command under the guard, when it has ended."""

    def __init__(
        self,
        place: Path,
        words: Sequence[str],
        command: Sequence[str],
        before: Callable[[], None] | None = None,
    ) -> None:
        self.token = os.urandom(8).hex()
        self._events, self._verdict = place / "events", place / "verdict.json"
        for path in (self._events, self._verdict):
            path.unlink(missing_ok=True)
        shutil.rmtree(place / "run", ignore_errors=True)
        call = [
            *WRAP,
            f"--out={place / 'run'}",
            f"--events={self._events}",
            f"--summary-file={self._verdict}",
            *words,
            "--",
            *command,
        ]
        self.began = time.time()
        done = subprocess.run(
            call, env={**os.environ, TOKEN: self.token}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            preexec_fn=before, timeout=300,
        )  # fmt: skip
        self.code, self.seconds = done.returncode, time.time() - self.began
        self.said = "".join(line for line in done.stderr.splitlines() if line.startswith("otel-memwatch"))
        self.events = [json.loads(line) for line in self._events.read_text().splitlines()]
        if not self.events:
            raise RuntimeError(f"nothing was guarded: {self.said or done.stderr}")
        self.verdict: str | None = self.events[-1]["kind"] if self.events[-1]["event"] == "verdict" else None

    def first(self, event: str, of: str | None = None) -> dict[str, Any] | None:
        return next(
            (one for one in self.events if one["event"] == event and of in (None, one.get("of"))), None
        )

    def left(self) -> list[int]:
        """Processes that outlive the run."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if f"{TOKEN}={self.token}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return found


def compiled(place: Path) -> str:
    binary = place / "hog"
    subprocess.run(["cc", "-O1", "-pthread", "-o", str(binary), str(PROGRAM)], check=True)
    return str(binary)


@contextlib.contextmanager
def bounded() -> Iterator[Callable[[], None] | list[str] | None]:
    """A way to bound the number of processes: words before the command, or a function; `None`: there is none."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    around = next((Path(f"/sys/fs/cgroup{path}") for _, name, path in own if not name), Path("/"))
    for group in (around, *around.parents):
        with contextlib.suppress(OSError, ValueError):
            if int((group / "pids.max").read_text()) < 2 * PIDS:
                yield []
                return
    if os.getuid():
        used = len([name for name in os.listdir("/proc") if name.isdigit()])
        yield lambda: resource.setrlimit(resource.RLIMIT_NPROC, (PIDS + used, PIDS + used))
        return
    parent = next((Path(f"/sys/fs/cgroup/pids{path}") for _, name, path in own if name == "pids"), None)
    if parent is None or not parent.is_dir():
        yield None
        return
    group = parent / f"hogs-{os.getpid()}"
    group.mkdir()
    try:
        (group / "pids.max").write_text(str(PIDS))
        yield ["sh", "-c", f'echo 0 >{group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def hogs(number: int, place: Path, only: str | None) -> list[str]:
    binary, notes = compiled(place), place / "notes"
    neighbour = subprocess.Popen(["sleep", "86400"])
    warned: list[float] = []
    decided: list[float] = []
    trouble = Misses()
    counts: dict[str, int] = {}
    with bounded() as bound:
        kinds = [kind for kind in KINDS if (kind != "bomb" or bound is not None) and only in (None, kind)]
        for index, kind in zip(range(number), itertools.cycle(kinds)):
            notes.write_bytes(bytes(24))
            command = [binary, kind, str(LIMIT), str(notes)]
            if kind == "bomb" and isinstance(bound, list):
                command = bound + command
            before = bound if kind == "bomb" and callable(bound) else None
            trial = Trial(place, [f"--limit={LIMIT}", "--warn=85%", "--timeout=60s"], command, before)
            _, crossed, last = struct.unpack("ldd", notes.read_bytes())
            counts[kind] = counts.get(kind, 0) + 1
            progress(index + 1)
            name = f"{index} {kind}"
            if trial.verdict != "limit":
                trouble.append(
                    f"{name}: verdict {trial.verdict}, code {trial.code}: {trial.said.strip()} {trial.events}"
                )
                continue
            if left := trial.left():
                trouble.append(f"{name}: processes are left: {left}")
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            if neighbour.poll() is not None:
                trouble.append(f"{name}: the neighbour is dead")
                neighbour = subprocess.Popen(["sleep", "86400"])
            warning = trial.first("warning", "limit")
            if warning is None:
                trouble.append(f"{name}: no warning")
            elif crossed:  # kernel memory counts too, and crosses first
                warned.append(max(0.0, warning["time"] - crossed))
                if warned[-1] > ALLOWED["crossing to warning"]:
                    trouble.append(f"{name}: crossing to warning {warned[-1]:.3f} s")
            # The processes of a bomb touch memory until the last one is dead, so the crossing is the earlier moment.
            decided.append(max(0.0, trial.events[-1]["time"] - (crossed or last if kind == "bomb" else last)))
            if decided[-1] > ALLOWED["limit to verdict"]:
                trouble.append(f"{name}: limit to verdict {decided[-1]:.3f} s")
    neighbour.kill()
    print(f"hogs: {number} ({', '.join(f'{kind} {n}' for kind, n in counts.items())})")
    distribution("crossing to warning", warned)
    distribution("limit to verdict", decided)
    return trouble


LEFT = 2 << 30
"""Bytes that `leave` lets a hog take. Without the guard, it fails at twice as many."""


def leave(number: int, place: Path, only: str | None) -> list[str]:
    """Run hogs that take memory of the machine: seconds from crossing --leave to the verdict, and bytes below."""
    binary, notes = compiled(place), place / "notes"
    kinds = [kind for kind in ("native", "growing", "mapped", "pthreads", "sessions") if only in (None, kind)]
    below: dict[str, list[float]] = {kind: [] for kind in kinds}
    decided: list[float] = []
    trouble = Misses()
    for index, kind in zip(range(number), itertools.cycle(kinds)):
        notes.write_bytes(bytes(40))
        kept = available() - LEFT
        command = ["prlimit", f"--as={2 * LEFT}", binary, kind, str(LIMIT), str(notes), str(kept)]
        trial = Trial(place, [f"--leave={kept}", "--timeout=60s"], command)
        _, _, _, fewest, crossed = struct.unpack("lddld", notes.read_bytes())
        if trial.verdict != "machine":
            trouble.append(
                f"{index} {kind}: verdict {trial.verdict}, {(kept - fewest) / MIB:.0f} MiB below: {trial.said.strip()} {trial.events}"
            )
            continue
        below[kind].append((kept - fewest) / MIB)
        decided.append(max(0.0, trial.events[-1]["time"] - crossed) if crossed else 0.0)
        if left := trial.left():
            trouble.append(f"{index} {kind}: processes are left: {left}")
    distribution("crossing to end", decided)
    for kind, values in below.items():
        if values:
            print(
                f"  {kind:<12}below --leave: median {statistics.median(values):.0f}, most {max(values):.0f} MiB ({len(values)} runs)"
            )
    return trouble


def available() -> int:
    """Bytes that the machine has available."""
    text = Path("/proc/meminfo").read_text()
    return int(text.split("MemAvailable:")[1].split()[0]) << 10


STARVES = """
import mmap, random, sys, time
with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    pages.madvise(mmap.MADV_RANDOM)
    for place in range(0, len(pages), 4096):
        pages[place]
    time.sleep(1)
    taken = bytearray(b"x") * (70 << 20)
    with open(sys.argv[2], "w") as notes:
        print(time.time(), file=notes)
    while True:
        pages[random.randrange(len(pages))]
"""
"""A program that reads a file of 60 MiB, and then takes the memory that holds it."""


def starved(number: int, place: Path, seconds: int = 10) -> list[str]:
    data, notes = place / "data", place / "notes"
    subprocess.run(
        ["dd", "if=/dev/urandom", f"of={data}", "bs=1M", "count=60"], check=True, stderr=subprocess.DEVNULL
    )
    subprocess.run(["sync"], check=True)
    decided: list[float] = []
    trouble = Misses()
    for index in range(number):
        drop = os.open(data, os.O_RDONLY)
        os.posix_fadvise(drop, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(drop)
        words = [f"--limit={100 * MIB}", f"--stalled={seconds}s", "--timeout=60s"]
        trial = Trial(place, words, [sys.executable, "-c", STARVES, str(data), str(notes)])
        if trial.verdict != "stalled":
            trouble.append(f"{index} starved: verdict {trial.verdict} after {trial.seconds:.1f} s")
            continue
        decided.append(trial.events[-1]["time"] - float(notes.read_text()))
        if decided[-1] > ALLOWED["starvation to verdict"]:
            trouble.append(f"{index} starved: {decided[-1]:.1f} s from starvation to the verdict")
        if left := trial.left():
            trouble.append(f"{index} starved: processes are left: {left}")
    print(f"starved: {number} (--stalled {seconds}s)")
    distribution("starvation to verdict", decided)
    return trouble


def ordinary(number: int, place: Path, seed: int) -> list[str]:
    text = place / "text"
    text.write_text("".join(f"{index * 7919 % 10007} line\n" for index in range(20_000)))
    (place / "one.c").write_text('#include <stdio.h>\nint main(void) { puts("one"); }\n')
    commands = [
        ["true"], ["false"], ["ls", "-la", "/usr/bin"], ["sort", str(text)], ["grep", "-c", "7", str(text)], ["sha256sum", str(text)],
        ["gzip", "-k", "-c", str(text)], ["tar", "-cf", "/dev/null", str(text)], ["sh", "-c", "exit 3"], ["sh", "-c", "sleep 0.2 & wait"],
        ["git", "log", "-5", "--stat"], ["cc", "-O2", "-o", str(place / "one"), str(place / "one.c")], ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=200"],
        [sys.executable, "-c", "import json, decimal, email; x = list(range(300000))"], ["cat", str(text)], ["find", "/etc", "-maxdepth", "2"],
    ]  # fmt: skip
    words = ["--limit=1GiB", "--warn=85%", "--stalled=5s", "--leave=64MiB", "--timeout=120s"]
    chosen, trouble = random.Random(seed), Misses()
    for index in range(number):
        command = chosen.choice(commands)
        trial = Trial(place, words, command)
        progress(index + 1)
        false = [one["kind"] for one in trial.events if one["event"] == "warning"]
        if trial.verdict != "finished" or false or trial.code not in (0, 1, 3) or trial.said:
            trouble.append(
                f"{index} {command[0]}: verdict {trial.verdict}, warnings {false}, code {trial.code}: {trial.said.strip()}"
            )
    print(f"ordinary: {number} commands, {len(trouble)} with a false verdict or warning")
    return trouble


MAKEFILE = """
OBJECTS := $(foreach n,1 2 3 4 5 6 7 8 9 10 11 12,object$(n))
LINKS := $(foreach n,1 2 3 4 5,link$(n))
all: $(LINKS)
object%:
	{python} {take} {object} 0.1
link%: $(OBJECTS)
	{python} {take} {link} 1
"""
TAKE = "import sys, time\nx = bytearray(b'x') * (int(sys.argv[1]) << 20)\ntime.sleep(float(sys.argv[2]))\n"
LINK, OBJECT = 90, 8
"""MiB that a link and a compilation take beside the interpreter."""


def builds(number: int, place: Path) -> list[str]:
    take = place / "take.py"
    take.write_text(TAKE)
    (place / "Makefile").write_text(
        MAKEFILE.format(python=sys.executable, take=take, link=LINK, object=OBJECT)
    )
    sizes = [LINK] * 5 + [OBJECT] * 12
    (place / "list").write_text("".join(f"{size}\n" for size in sizes))
    subprocess.run(
        [*MEMWATCH, "shell", "--install", "shells", "--runs", "recorded"],
        cwd=place,
        check=True,
        capture_output=True,
    )
    recorded = [f"SHELL={place}/shells/bash", "-j2"]
    subprocess.run(["make", *recorded], cwd=place, check=True, stdout=subprocess.DEVNULL)
    trouble = Misses()

    def built(runner: str, jobs: int) -> int:
        commands = {
            "make": ["make", "-s", f"-j{jobs}", "-C", str(place)],
            "parallel": ["sh", "-c", f"parallel --jobs {jobs} {sys.executable} {take} {{}} 1 <{place}/list"],
        }
        trial = Trial(place, [], commands[runner])
        peak = trial.events[-1]["peak"]
        return int(peak["high"] or 0)

    for index, within in zip(range(number), itertools.cycle((250, 350, 450, 560))):
        runner = ("make", "parallel")[index // 4 % 2]
        advised = subprocess.run(
            [*MEMWATCH, "advise", "recorded", "--jobs", f"--within={within}MiB", "--for=json"],
            cwd=place,
            check=True,
            capture_output=True,
        )
        jobs = json.loads(advised.stdout)["jobs"]
        peak, above = built(runner, jobs), built(runner, jobs + 2)
        print(
            f"  {runner} within {within} MiB: {jobs} jobs, peak {peak / MIB:.0f} MiB; {jobs + 2} jobs, {above / MIB:.0f} MiB",
            flush=True,
        )
        if peak > within * MIB:
            trouble.append(f"{runner} within {within} MiB: {jobs} jobs took {peak / MIB:.1f} MiB")
        if above <= within * MIB and jobs + 2 <= 5:
            trouble.append(f"{runner} within {within} MiB: {jobs + 2} jobs fit too")
    print(f"builds: {number}")
    return trouble


def probes(seconds: int, place: Path) -> list[str]:
    """CPU time of each thread of a guarded run; that of the guard is one of them."""
    data = place / "data"
    data.write_bytes(bytes(70 * MIB))
    holds = "import time; x = bytearray(b'x') * {size}; file = open({data!r}, 'rb', 0)\nwhile {read} and file.read(1 << 20): pass\ntime.sleep({seconds})"
    for name, share, read in (
        ("idle", 0.0, False),
        ("just below the threshold", 0.78, False),
        ("page cache above the threshold", 0.5, True),
        ("above the threshold", 0.9, False),
    ):
        command = holds.format(size=int(LIMIT * share), data=str(data), read=read, seconds=seconds)
        words = [f"--out={place / name.replace(' ', '-')}", f"--limit={LIMIT}", "--warn=85%"]
        process = subprocess.Popen([*WRAP, *words, "--", sys.executable, "-c", command])
        time.sleep(2)
        before = spent(process.pid)
        time.sleep(seconds - 4)
        shares = [
            used - before.get(task, 0.0) for task, used in spent(process.pid).items() if task != process.pid
        ]
        print(f"  {name}: " + ", ".join(f"{share / (seconds - 4):.3%}" for share in shares))
        process.wait()
    return []


def spent(pid: int) -> dict[int, float]:
    """CPU seconds of each thread."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}


def distribution(name: str, values: list[float]) -> None:
    if values:
        goal = GOALS[name]
        print(
            f"  {name:<24}median {statistics.median(values) * 1000:7.1f} ms, largest {max(values) * 1000:7.1f} ms; "
            f"above {goal * 1000:.0f} ms: {sum(value > goal for value in values)} of {len(values)}"
        )


def main(arguments: list[str]) -> int:
    what, number = arguments[0], int(arguments[1])
    only = arguments[arguments.index("--kind") + 1] if "--kind" in arguments else None
    slower = float(arguments[arguments.index("--slower") + 1]) if "--slower" in arguments else 1.0
    ALLOWED.update({name: goal * slower for name, goal in GOALS.items()})
    seed = int(arguments[arguments.index("--seed") + 1]) if "--seed" in arguments else 1
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        run: dict[str, Callable[[], list[str]]] = {
            "hogs": lambda: hogs(number, place, only),
            "starved": lambda: starved(number, place),
            "leave": lambda: leave(number, place, only),
            "ordinary": lambda: ordinary(number, place, seed),
            "builds": lambda: builds(number, place),
            "probes": lambda: probes(number, place),
        }
        trouble = run[what]()
    print(f"{what}: {'no goal missed' if not trouble else f'{len(trouble)} goals missed'}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
