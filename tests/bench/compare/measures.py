"""The parts of the comparison; each returns what is kept as JSON. Repetitions of all tools take turns."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from otel_memwatch.runtime import system_calls
from tests.bench.compare.own_cost import Watch
from tests.bench.compare.peers import PEERS, Peer, python
from tests.bench.compare.running import WORKLOADS, begin, folder, read, refereed, run, spread, variables

Result = dict[str, Any]


class Workload(NamedTuple):
    """A program whose truth is known."""

    name: str
    words: str
    """For the table."""
    figure: str = "peak"
    """Field of `Reported` that is compared."""
    own_count: float | None = None
    """Truth by the workload's own count; `None`: the referee's."""


TRUTHS = (
    Workload("blip_1g", "1 GiB for 5 ms"),
    Workload("blip_128m", "128 MiB for 5 ms"),
    Workload("heap", "a heap grows to 400 MiB and shrinks"),
    Workload("child", "a child has 300 MiB for 30 ms"),
    Workload("fork_tree", "5 processes share 512 MiB"),
    Workload("workers", "4 workers have 100 MiB each for 0.3 s"),
    Workload("short", "100 short processes, 16 MiB each"),
    Workload("gil", "200 MiB inside a call that holds the GIL"),
    Workload("child_io", "a child writes 64 MiB to a file", "written", 64.0 * (1 << 20)),
)


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def turns(repeats: int, peers: list[Peer]) -> Iterator[tuple[int, Peer]]:
    """Every tool once, then every tool again, beginning with another one each time."""
    for turn in range(repeats):
        start = turn % len(peers)
        for peer in peers[start:] + peers[:start]:
            yield turn, peer


def truth(peers: list[Peer], repeats: int) -> Result:
    """What each tool reports of each workload, beside the truth."""
    result: Result = {}
    for workload in TRUTHS:
        say(workload.name)
        command = [python(), str(WORKLOADS / f"{workload.name}.py")]
        referees = []
        for _ in range(repeats):
            with folder() as where:
                referees.append(float(refereed(command, where)[1]))
        true = spread([workload.own_count] if workload.own_count is not None else referees)
        reported: dict[str, list[Any]] = {peer.name: [] for peer in peers}
        for _, peer in turns(repeats, peers):
            with folder() as where:
                done = run(peer.start(command, where), where, peer)
                found = read(peer, where, done.output)
                entry = None if found is None else found._asdict()
                reported[peer.name].append(entry)
        result[workload.name] = {
            "words": workload.words,
            "figure": workload.figure,
            "truth": true,
            "reported": reported,
        }
    return result


def start(peers: list[Peer], repeats: int) -> Result:
    """Wall seconds of a command that does nothing, and seconds until it runs, under each tool."""
    result: Result = {}
    commands: dict[str, Callable[[Path], list[str]]] = {
        "true": lambda _: ["/bin/true"],
        "python -c pass": lambda _: [python(), str(WORKLOADS / "nothing.py")],
        "until it runs": lambda where: ["bash", str(WORKLOADS / "moment.sh"), str(where / "moment")],
    }
    for name, command in commands.items():
        say(f"start {name}")
        able = [peer for peer in peers if not (peer.inside and name != "python -c pass")]
        seconds: dict[str, list[float]] = {"bare": [], **{peer.name: [] for peer in able}}
        for _, peer in turns(repeats, [BARE, *able]):
            with folder() as where:
                began = time.time()
                done = run(peer.start(command(where), where), where, peer)
                assert done.code == 0, (peer.name, done.output)
                if name == "until it runs":
                    seconds[peer.name].append(float((where / "moment").read_text()) - began)
                else:
                    seconds[peer.name].append(done.wall)
        result[name] = {tool: spread(figures) for tool, figures in seconds.items()}
    return result


def slowdown(peers: list[Peer], repeats: int) -> Result:
    """Seconds that a fixed amount of work takes under each tool, by the program's own clocks."""
    walls: dict[str, list[float]] = {peer.name: [] for peer in [BARE, *peers]}
    cpus: dict[str, list[float]] = {peer.name: [] for peer in [BARE, *peers]}
    say("slowdown")
    for _, peer in turns(repeats, [BARE, *peers]):
        with folder() as where:
            run(
                peer.start([python(), str(WORKLOADS / "spin.py"), str(where / "seconds")], where), where, peer
            )
            with suppress(OSError, ValueError):
                wall, cpu = map(float, (where / "seconds").read_text().split())
                walls[peer.name].append(wall)
                cpus[peer.name].append(cpu)
    return {
        "wall": {name: spread(figures) for name, figures in walls.items() if figures},
        "cpu": {name: spread(figures) for name, figures in cpus.items() if figures},
    }


SIZES = (1, 10, 50, 200)
WATCHED_SECONDS = 6.0


def watching(peers: list[Peer], repeats: int) -> Result:
    """CPU and memory of the tool itself, ten looks a second, at trees of idle processes; bytes on disk."""
    result: Result = {}
    able = [peer for peer in peers if peer.sampling is not None]
    for size in SIZES:
        say(f"watching {size}")
        entries: dict[str, list[Any]] = {peer.name: [] for peer in able}
        for _, peer in turns(repeats, able):
            entries[peer.name].append(watch(peer, size, 0.1, WATCHED_SECONDS))
        result[str(size)] = entries
    return {"seconds": WATCHED_SECONDS, "sizes": result}


def left_behind(seconds: float = 3.0) -> float:
    """CPU seconds of the processes that a tool leaves behind, such as ours for report and page. Waits so long for their ends."""
    used, end = 0.0, time.monotonic() + seconds
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
            used += usage.ru_utime + usage.ru_stime if pid else 0.0
            time.sleep(0.0 if pid else 0.01)
    return used


def watch(peer: Peer, size: int, interval: float, seconds: float) -> Result:
    """What a tool costs that samples so many idle processes."""
    assert peer.sampling is not None
    system_calls.prctl(system_calls.PR_SET_CHILD_SUBREAPER, 1)
    with folder() as where, open(where / "output", "wb") as output:
        note = where / "note"
        command = [python(), str(WORKLOADS / "crowd.py"), str(note), str(size), str(seconds)]
        process = begin(peer.sampling(interval)(command, where), where, variables(peer), output.fileno())
        watched = Watch(process.pid, note)
        watched.until_the_end(seconds)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        of_tool = usage.ru_utime + usage.ru_stime + left_behind()
        of_crowd = float(note.read_text().split()[1])
        files = [file for file in where.rglob("*") if file.is_file() and file.name not in {"note", "output"}]
        rendered = [file for file in files if file.name in {"memory.png", "report.html", "report.txt"}]
        found = read(peer, where, (where / "output").read_text(errors="replace"))
        return {
            "core_share": watched.share,
            "memory": watched.memory,
            "cpu_in_all": of_tool - of_crowd,
            "ticks": None if found is None else found.ticks,
            "disk": sum(file.stat().st_size for file in files),
            "rendered": sum(file.stat().st_size for file in rendered),
        }


KILL_AFTER = 2.4
"""Seconds: the heap is at its 400 MiB after two."""


def killed(peers: list[Peer], repeats: int) -> Result:
    """What is left when the tool is killed in mid-run, and what it says when its target is."""
    result: Result = {}
    for victim in ("tool", "target"):
        say(f"killed: the {victim}")
        entries: dict[str, list[Any]] = {peer.name: [] for peer in peers}
        for _, peer in turns(repeats, peers):
            if victim == "target" and peer.inside:
                continue
            entries[peer.name].append(_kill(peer, victim))
        result[victim] = entries
    return result


def _kill(peer: Peer, victim: str) -> Result:
    with folder() as where, open(where / "output", "wb") as output:
        pid_file = where / "pid"
        command = [python(), str(WORKLOADS / "heap_held.py"), str(pid_file)]
        process = begin(
            peer.start(command, where), where, variables(peer), output.fileno(), start_new_session=True
        )
        end = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text().endswith("\n")) and time.monotonic() < end:
            time.sleep(0.02)
        target = int(pid_file.read_text())
        time.sleep(1.2)
        os.kill(process.pid if victim == "tool" else target, signal.SIGKILL)
        time.sleep(0.3)
        survived = _alive(target)
        if victim == "tool":
            for one in {target, *Watch(process.pid, pid_file).helpers()}:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()
        else:
            with suppress(Exception):
                process.wait(20)
            process.kill()
            process.wait()
        found = read(peer, where, (where / "output").read_text(errors="replace"))
        return {
            "target_survives": survived,
            "peak": None if found is None else found.peak,
            "code": process.returncode,
        }


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


BARE = Peer("bare", (), lambda command, _: command, lambda _, __: None)  # type: ignore[arg-type, return-value]

PARTS: dict[str, tuple[Callable[[list[Peer], int], Result], int]] = {
    "truth": (truth, 3),
    "start": (start, 15),
    "slowdown": (slowdown, 7),
    "watching": (watching, 2),
    "killed": (killed, 1),
}
"""Each part with its repetitions."""


def chosen(names: list[str]) -> list[Peer]:
    """The tools named, or all."""
    return [peer for peer in PEERS if not names or peer.name in names]
