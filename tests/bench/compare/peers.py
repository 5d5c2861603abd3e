"""The tools that are compared: how each is installed, started and read.

Every tool runs at its defaults, with its option for child processes where it has one; `sampling` is for measuring what
watching costs at one common rate.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import shlex
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / "build/peers"
MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
TRACKED = Path(__file__).with_name("tracked.py")
POLLED = Path(__file__).with_name("polled.py")


class Reported(NamedTuple):
    """What a tool says; `None`: nothing."""

    peak: float | None
    """Bytes: the largest memory of everything that it watched."""
    low: float | None = None
    high: float | None = None
    cpu: float | None = None
    """CPU seconds of everything that it watched."""
    written: float | None = None
    """Bytes written by everything that it watched."""
    ticks: int | None = None
    """How often it looked."""


Argv = list[str]


class Peer(NamedTuple):
    """One tool in one manner of use. `start` gives its argv for a command; it may leave anything in the folder."""

    name: str
    packages: tuple[str, ...]
    start: Callable[[Argv, Path], Argv]
    read: Callable[[Path, str], Reported]
    """From its folder and its standard output and error."""
    inside: bool = False
    """Whether it works inside a Python program, and so watches nothing else."""
    python: str | None = None
    """Name of its package, where it brings programs and interpreter; `None`: from Debian."""
    sampling: Callable[[float], Callable[[Argv, Path], Argv]] | None = None
    """Gives `start` for an interval in seconds; `None`: it does not sample, or not at any rate."""
    variables: Mapping[str, str] = MappingProxyType({})
    """Changes of its environment."""


def environment(package: str) -> Path:
    """The virtual environment of a package."""
    return ENVIRONMENTS / package


def program(package: str, name: str) -> str:
    """A program of a package's environment."""
    return str(environment(package) / "bin" / name)


def python() -> str:
    """The interpreter of workloads, with no packages around it."""
    return program("plain", "python")


@functools.cache
def interpreter() -> str:
    """Return an interpreter that every user may run: the environments have it, so programs of a user without privileges too."""
    for candidate in (sys.executable, *filter(None, map(shutil.which, ("python3", "/usr/bin/python3")))):
        found = Path(candidate).resolve()
        if all(folder.stat().st_mode & stat.S_IXOTH for folder in (found, *found.parents)):
            return str(found)
    return sys.executable


def _make_environment(folder: Path) -> None:
    if not (folder / "bin/python").exists():
        subprocess.run([interpreter(), "-m", "venv", "--without-pip", "--symlinks", folder], check=True)


def make_plain() -> None:
    """Make the environment of the workloads."""
    _make_environment(environment("plain"))


def install(peer: Peer) -> str | None:
    """Installs it; gives the reason where it cannot be."""
    if peer.python is None:
        found = shutil.which(peer.packages[0])
        return None if found else f"Debian package {peer.packages[0]} is not installed"
    folder = environment(peer.python)
    _make_environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin/python", "install", "--quiet"]
    done = subprocess.run([*pip, *peer.packages], capture_output=True, text=True)
    if done.returncode == 0 and peer.packages == _OURS:
        # the version is the same after every change: what is installed has to be replaced by hand
        again = ["--force-reinstall", "--no-deps", *peer.packages]
        subprocess.run([*pip, *again], check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "; ".join(lines) or "pip failed" if done.returncode else None


def version(peer: Peer) -> str:
    """Its version, as pip or Debian knows it."""
    if peer.python is None:
        argv = ["dpkg-query", "-W", "-f", "${Version}", peer.packages[0]]
        return subprocess.run(argv, capture_output=True, text=True).stdout.strip()
    name = peer.packages[0] if peer.packages != _OURS else peer.python
    argv = [sys.executable, "-m", "pip", "--python", program(peer.python, "python"), "show", name]
    shown = subprocess.run(argv, capture_output=True, text=True).stdout
    found = re.search(r"^Version: (.*)$", shown, re.MULTILINE)
    return found[1] if found else ""


# -- otel-memwatch


def ours(*options: str) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        return [
            program("otel-memwatch", "otel-memwatch"),
            "wrap",
            "--out",
            f"{folder}/run",
            *options,
            "--",
            *command,
        ]

    return start


def _ours_at(seconds: float) -> Callable[[Argv, Path], Argv]:
    return ours("--interval", f"{seconds:g}")


_NOBODY = 65534


def _as_a_user(start: Callable[[Argv, Path], Argv]) -> Callable[[Argv, Path], Argv]:
    """The same by a user without privileges, to whom the folder is given; the interpreters have to be theirs to read."""

    def unprivileged(command: Argv, folder: Path) -> Argv:
        os.chown(folder, _NOBODY, _NOBODY)
        ids = ["--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups"]
        return ["env", f"HOME={folder}", "setpriv", *ids, *start(command, folder)]

    return unprivileged


def _read_ours(folder: Path, _: str) -> Reported:
    argv = [program("otel-memwatch", "otel-memwatch"), "report", f"{folder}/run", "--json"]
    report = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    tree, totals = report["peaks"]["tree"] or {}, report["totals"]
    return Reported(
        # what the summary calls "about", where it reports two bounds
        tree.get("estimate") or tree.get("bytes"), tree.get("low"), tree.get("high"),
        totals["cpu_seconds"], totals["write_bytes"], report["quality"]["ticks"],
    )  # fmt: skip


# -- wrappers in Python


def _mprof(*options: str) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        out = ["--include-children", "--output", f"{folder}/out.dat"]
        return [program("memory_profiler", "mprof"), "run", *options, *out, *command]

    return start


def _read_mprof(folder: Path, _: str) -> Reported:
    lines = [line.split() for line in (folder / "out.dat").read_text().splitlines()]
    sizes = [float(words[1]) * MIB for words in lines if words and words[0] == "MEM"]
    return Reported(max(sizes, default=None), ticks=len(sizes))


def _psrecord(*options: str) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        log = ["--include-children", "--include-io", "--log", f"{folder}/log"]
        return [program("psrecord", "psrecord"), " ".join(command), *log, *options]

    return start


def _read_psrecord(folder: Path, _: str) -> Reported:
    rows = [line.split() for line in (folder / "log").read_text().splitlines() if not line.startswith("#")]
    sizes = [float(row[2]) * MIB for row in rows]
    written = [float(row[7]) for row in rows if len(row) > 7]
    return Reported(max(sizes, default=None), written=max(written, default=None), ticks=len(rows))


def _duct(*options: str) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        return [program("con-duct", "con-duct"), "run", "-p", f"{folder}/duct_", *options, *command]

    return start


def _read_duct(folder: Path, _: str) -> Reported:
    info = folder / "duct_info.json"
    summary = json.loads(info.read_text()).get("execution_summary") if info.stat().st_size else None
    if summary:
        return Reported(summary["peak_rss"], ticks=summary["num_samples"])
    lines = [json.loads(line) for line in (folder / "duct_usage.jsonl").read_text().splitlines()]
    return Reported(max((line["totals"]["rss"] for line in lines), default=None), ticks=len(lines))


def _tracker(interval: float) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        return [
            program("resource-tracker", "python"),
            str(TRACKED),
            f"{folder}/out.csv",
            str(interval),
            *command,
        ]

    return start


def _read_tracker(folder: Path, _: str) -> Reported:
    with open(folder / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    sizes = [float(row["memory_mib"]) * MIB for row in rows]
    return Reported(
        max(sizes, default=None),
        cpu=sum(float(row["utime"]) + float(row["stime"]) for row in rows) if rows else None,
        written=sum(float(row["disk_write_bytes"]) for row in rows) if rows else None,
        ticks=len(rows),
    )


def _procpath(interval: float) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        record = f"{program('procpath', 'procpath')} --logging-level ERROR record -i {interval} -f stat,io"
        tree = '"\\$..children[?(@.stat.pid == $!)]"'
        script = f'"$@" & {record} -d {folder}/out.sqlite --stop-without-result {tree}; wait'
        return ["sh", "-c", script, "sh", *command]

    return start


def _read_procpath(folder: Path, _: str) -> Reported:
    with sqlite3.connect(folder / "out.sqlite") as base:
        (ticks,) = base.execute("select count(distinct ts) from record").fetchone()
        sums = "select ts, sum(stat_rss) s, sum(io_write_bytes) w from record group by ts"
        peak, written = base.execute(f"select max(s), max(w) from ({sums})").fetchone()
    return Reported(None if peak is None else peak * PAGE, written=written, ticks=ticks)


def _polled(interval: float) -> Callable[[Argv, Path], Argv]:
    def start(command: Argv, folder: Path) -> Argv:
        return [program("polling", "python"), str(POLLED), f"{folder}/polled", str(interval), *command]

    return start


def _read_polled(folder: Path, _: str) -> Reported:
    peak, looks = (folder / "polled").read_text().split()
    return Reported(float(peak) or None, ticks=int(looks))


def _snakemake(command: Argv, folder: Path) -> Argv:
    """A rule with `benchmark:`; its braces are doubled, since the engine fills them in."""
    shell = shlex.join(command).replace("{", "{{").replace("}", "}}")
    rule = f"rule job:\n    output: touch('done')\n    benchmark: 'benchmark.tsv'\n    shell: {shell!r}\n"
    (folder / "Snakefile").write_text(rule)
    return [
        program("snakemake", "snakemake"),
        "-c",
        "4",
        "--quiet",
        "all",
        "-d",
        str(folder),
        "-s",
        f"{folder}/Snakefile",
    ]


def _read_snakemake(folder: Path, _: str) -> Reported:
    with open(folder / "benchmark.tsv", newline="") as file:
        (row,) = csv.DictReader(file, delimiter="\t")

    def number(name: str) -> float | None:
        return None if row[name] in {"NA", "-", ""} else float(row[name])

    peak, written = number("max_rss"), number("io_out")
    return Reported(
        None if peak is None else peak * MIB,
        cpu=number("cpu_time"),
        written=None if written is None else written * MIB,
    )


# -- profilers inside a Python program


def _as_test(command: Argv, folder: Path) -> str:
    """A file with a test that runs a Python program."""
    file = folder / "test_program.py"
    file.write_text(
        "import runpy, sys\n\n\ndef test_program():\n"
        f"    sys.argv = {command[1:]!r}\n    runpy.run_path({command[1]!r}, run_name='__main__')\n"
    )
    return str(file)


def _pytest_memray(command: Argv, folder: Path) -> Argv:
    test = _as_test(command, folder)
    options = ["--memray", "-p", "no:cacheprovider"]
    return [
        program("pytest-memray", "python"),
        "-m",
        "pytest",
        "-q",
        *options,
        "--rootdir",
        str(folder),
        test,
    ]


def _read_pytest_memray(_: Path, output: str) -> Reported:
    """What it prints of a test: what was allocated at the worst moment, whatever the line calls it."""
    found = re.search(r"Total memory allocated: ([\d.]+)([KMG]?)i?B", output)
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return Reported(float(found[1]) * scale[found[2]] if found else None)


def _pytest_monitor(command: Argv, folder: Path) -> Argv:
    test = _as_test(command, folder)
    options = ["--db", f"{folder}/out.pymon", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return [program("pytest-monitor", "python"), "-m", "pytest", "-q", *options, test]


def _read_pytest_monitor(folder: Path, _: str) -> Reported:
    with sqlite3.connect(folder / "out.pymon") as base:
        peak, user, system = base.execute(
            "select MEM_USAGE, USER_TIME, KERNEL_TIME from TEST_METRICS"
        ).fetchone()
    return Reported(float(peak) * MIB, cpu=float(user) + float(system))


def _memray(command: Argv, folder: Path) -> Argv:
    return [
        program("memray", "memray"),
        "run",
        "-q",
        "--follow-fork",
        "-o",
        f"{folder}/out.bin",
        *command[1:],
    ]


def _read_memray(folder: Path, _: str) -> Reported:
    peaks = []
    for place, file in enumerate(folder.glob("out.bin*")):
        target = folder / f"stats{place}.json"
        argv = [program("memray", "memray"), "stats", "--json", "-o", str(target), str(file)]
        if subprocess.run(argv, capture_output=True).returncode == 0:
            peaks.append(json.loads(target.read_text())["metadata"]["peak_memory"])
    return Reported(max(peaks, default=None))


def _fil(command: Argv, folder: Path) -> Argv:
    return [program("filprofiler", "fil-profile"), "--no-browser", "-o", f"{folder}/fil", "run", *command[1:]]


def _read_fil(folder: Path, _: str) -> Reported:
    (file,) = folder.glob("fil/*/peak-memory.prof")
    return Reported(sum(float(line.rsplit(" ", 1)[1]) for line in file.read_text().splitlines() if line))


def _scalene(command: Argv, folder: Path) -> Argv:
    return [program("scalene", "scalene"), "run", "-o", f"{folder}/out.json", *command[1:]]


def _read_scalene(folder: Path, _: str) -> Reported:
    found = json.loads((folder / "out.json").read_text())
    return Reported(found["max_footprint_mb"] * MIB if found.get("max_footprint_mb") else None)


SYSTEM_METRICS = "opentelemetry-instrumentation-system-metrics"


def _otel(command: Argv, _: Path) -> Argv:
    own = program(SYSTEM_METRICS, "python")
    return [
        program(SYSTEM_METRICS, "opentelemetry-instrument"),
        "--metrics_exporter",
        "console",
        own,
        *command[1:],
    ]


def _read_otel(_: Path, output: str) -> Reported:
    sizes = re.findall(r'"name": "process.memory.usage".*?"value": (\d+)', output, re.DOTALL)
    return Reported(max(map(float, sizes), default=None), ticks=len(sizes))


# -- of the system


def _gnu_time(command: Argv, folder: Path) -> Argv:
    return ["/usr/bin/time", "-f", "%M %U %S %O", "-o", f"{folder}/time", *command]


def _read_gnu_time(folder: Path, _: str) -> Reported:
    words = (folder / "time").read_text().splitlines()[-1].split()
    return Reported(
        float(words[0]) * 1024, cpu=float(words[1]) + float(words[2]), written=float(words[3]) * 512
    )


def _hyperfine(command: Argv, folder: Path) -> Argv:
    return [
        "hyperfine",
        "--runs",
        "1",
        "--show-output",
        "--export-json",
        f"{folder}/out.json",
        shlex.join(command),
    ]


def _read_hyperfine(folder: Path, _: str) -> Reported:
    """The times of the run; memory, which newer ones report of one process, if there is any."""
    (found,) = json.loads((folder / "out.json").read_text())["results"]
    return Reported(
        max(found.get("memory_usage_byte", ()), default=None), cpu=found["user"] + found["system"]
    )


def _heaptrack(command: Argv, folder: Path) -> Argv:
    return ["heaptrack", "-o", f"{folder}/heap", *command]


def _read_heaptrack(folder: Path, _: str) -> Reported:
    (file,) = folder.glob("heap.*")
    text = subprocess.run(["heaptrack_print", file], capture_output=True, text=True).stdout
    found = re.search(r"peak heap memory consumption: ([\d.]+)([KMG]?)", text)
    scale = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}
    return Reported(float(found[1]) * scale[found[2]] if found else None)


_OTEL_VARIABLES = {
    "OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
}  # fmt: skip
_OURS = (str(ROOT),)

PEERS: tuple[Peer, ...] = (
    Peer("otel-memwatch", _OURS, ours(), _read_ours, python="otel-memwatch", sampling=_ours_at),
    Peer("otel-memwatch, as a user", _OURS, _as_a_user(ours()), _read_ours, python="otel-memwatch",
         sampling=lambda seconds: _as_a_user(_ours_at(seconds))),
    Peer("otel-memwatch, as a user, --exact", _OURS, _as_a_user(ours("--exact")), _read_ours, python="otel-memwatch"),
    Peer("GNU time", ("time",), _gnu_time, _read_gnu_time),
    Peer("psrecord", ("psrecord",), _psrecord(), _read_psrecord, python="psrecord",
         sampling=lambda seconds: _psrecord("--interval", f"{seconds:g}")),
    Peer("mprof", ("memory_profiler",), _mprof(), _read_mprof, python="memory_profiler",
         sampling=lambda seconds: _mprof("--interval", f"{seconds:g}")),
    Peer("con-duct", ("con-duct",), _duct(), _read_duct, python="con-duct",
         sampling=lambda seconds: _duct("--sample-interval", f"{seconds:g}", "--report-interval", f"{seconds:g}")),
    Peer("resource-tracker", ("resource-tracker",), _tracker(1), _read_tracker, python="resource-tracker",
         sampling=_tracker),
    Peer("procpath -i 1", ("procpath",), _procpath(1), _read_procpath, python="procpath", sampling=_procpath),
    Peer("polling as Slurm does, 30 s", ("psutil",), _polled(30), _read_polled, python="polling", sampling=_polled),
    Peer("Snakemake's benchmark", ("snakemake",), _snakemake, _read_snakemake, python="snakemake"),
    Peer("hyperfine", ("hyperfine",), _hyperfine, _read_hyperfine),
    Peer("heaptrack", ("heaptrack",), _heaptrack, _read_heaptrack),
    Peer("memray", ("memray",), _memray, _read_memray, python="memray", inside=True),
    Peer("pytest-memray", ("pytest-memray",), _pytest_memray, _read_pytest_memray, python="pytest-memray", inside=True),
    Peer("pytest-monitor", ("pytest-monitor",), _pytest_monitor, _read_pytest_monitor, python="pytest-monitor", inside=True),
    Peer("fil", ("filprofiler",), _fil, _read_fil, python="filprofiler", inside=True),
    Peer("scalene", ("scalene",), _scalene, _read_scalene, python="scalene", inside=True),
    Peer("OTel system-metrics, 1 s", (SYSTEM_METRICS, "opentelemetry-distro"), _otel, _read_otel,
         python=SYSTEM_METRICS, inside=True, variables=_OTEL_VARIABLES),
)  # fmt: skip


def install_all() -> dict[str, str]:
    """Installs every tool; the reason for each that cannot be."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    make_plain()
    failed: dict[str, str] = {}
    done: dict[tuple[str, ...], str | None] = {}
    for peer in PEERS:
        if peer.packages not in done:
            sys.stderr.write(f"installing {' '.join(peer.packages)}\n")
            done[peer.packages] = install(peer)
        if reason := done[peer.packages]:
            failed[peer.name] = reason
    return failed
